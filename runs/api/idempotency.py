"""The `Idempotency-Key` header: reading it, and what a repetition is compared by."""

from __future__ import annotations

import json
import re
from typing import Any

from agentcore.canonical import sha256_hex
from agentcore.values import Json
from runs.refusals import Refused

_PLAIN = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]{1,255}")  # visible ASCII, no quote, no comma
_QUOTED = re.compile(r'"([\x20-\x21\x23-\x5b\x5d-\x7e]{1,255})"')  # RFC 8941 string, no escapes


def key_of(request: Any) -> str:
    """The key of a request, plain or as an RFC 8941 string: `abc` and `"abc"` are the same key.

    Raises `Refused` (idempotency_key_missing).
    """
    header: str = request.META.get("HTTP_IDEMPOTENCY_KEY", "").strip()
    if not header:
        raise _missing(
            "Send an Idempotency-Key header: a fresh UUID for each new request, the "
            "same one when you repeat a request."
        )
    quoted = _QUOTED.fullmatch(header)
    if quoted:
        return quoted[1]
    if _PLAIN.fullmatch(header):
        return header
    raise _missing(
        "The Idempotency-Key must be one value of 1 to 255 visible ASCII characters, "
        "without quotes inside. A UUID is a good key."
    )


def body_sha256(body: Json) -> str:
    """SHA-256 of the meaning of a body: the order of members and white space do not count.

    Any one spelling will do, since nothing but this function makes what is compared; this one
    takes fractions, which canonical JSON refuses.
    """
    return sha256_hex(json.dumps(body, sort_keys=True, separators=(",", ":")))


def _missing(detail: str) -> Refused:
    return Refused(code="idempotency_key_missing", detail=detail)
