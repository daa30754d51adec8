"""One spelling for one meaning: canonical JSON, digests and the keys made from them.

Everything that is compared, bound to an approval or sent as an idempotency key goes through here.
Canonical JSON is RFC 8785. Floats are refused (money is a string), and so are NUL and lone
surrogates, which PostgreSQL and UTF-8 cannot hold.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from typing import Any

import rfc8785

from agentcore.values import Json

MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class NotCanonical(ValueError):  # noqa: N818
    """The value has no canonical form; the message names the place, never the value."""


def storable(text: str) -> bool:
    """Whether PostgreSQL and UTF-8 can hold `text`: no NUL, no lone surrogate."""
    return _UNSTORABLE.search(text) is None


def clean_text(text: str, limit: int | None = None) -> str:
    """`text` with what cannot be stored replaced by U+FFFD, cut to `limit` characters."""
    text = _UNSTORABLE.sub(REPLACEMENT, text)
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def canonical_json(value: Json) -> bytes:
    """RFC 8785 bytes of `value`; raises `NotCanonical`. Unicode is kept as it is."""
    return _dumps(_walk(value, "$", 0, nfc=False))


def normalize_params(value: Json) -> Json:
    """A copy of `value` with every string and key in NFC; raises `NotCanonical`.

    Two keys that become equal are refused: dropping one of them would change the meaning.
    """
    return _walk(value, "$", 0, nfc=True)


def sha256_hex(data: bytes | str) -> str:
    """SHA-256 in lower-case hex (64 characters); text is taken as UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def params_hash(*, tool: str, tool_version: str, tenant: str, params: Json) -> str:
    """What an approval is bound to: these arguments of this version of this tool."""
    return _digest("params", [tenant, tool, tool_version, params])


def fingerprint(*, tool: str, contract_version: str, tenant: str, params: Json) -> str:
    """All arguments of a write: one key with two fingerprints is refused."""
    return _digest("fingerprint", [tenant, tool, contract_version, params])


def intent_key(*, tenant: str, tool: str, contract_version: str, scope: str, identity: Json) -> str:
    """The business intent of a write. Made of trusted values and the declared identity only, so
    the same proposal under a new call id, in another turn or another process has the same key.
    """
    if not scope:
        raise NotCanonical("an intent needs a scope")
    return _digest("intent", [tenant, tool, contract_version, scope, identity])


def idempotency_key(*, intent_key: str, generation: int) -> str:
    """What the downstream deduplicates by: 60 characters of [a-z0-9_], one case only.

    `generation` counts the released owners of the intent; it never changes for one action.
    """
    if isinstance(generation, bool) or generation < 0:
        raise ValueError("a generation is a count")
    return "ac1_" + _digest("idempotency", [intent_key, generation])[:56]


def event_hash(*, key: bytes, previous: str, body: dict[str, Json]) -> str:
    """HMAC-SHA-256 that chains an event to the one before it (`previous` is "" for the first)."""
    return hmac.new(key, canonical_json([previous, body]), hashlib.sha256).hexdigest()


def _digest(purpose: str, parts: list[Json]) -> str:
    # The purpose keeps two digests of equal parts apart.
    return sha256_hex(_dumps(_walk([f"agentcore/{purpose}/1", *parts], "$", 0, nfc=True)))


def _dumps(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise NotCanonical(str(error)) from None


def _walk(value: Json, path: str, depth: int, *, nfc: bool) -> Json:
    if depth > MAX_DEPTH:
        raise NotCanonical(f"{path}: nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path, nfc)
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise NotCanonical(f"{path}: integer beyond 2^53-1; use a string")
        return int(value)
    if isinstance(value, float):
        raise NotCanonical(f"{path}: float; use a string or an integer of minor units")
    if isinstance(value, (list, tuple)):
        return [_walk(item, f"{path}[{n}]", depth + 1, nfc=nfc) for n, item in enumerate(value)]
    if isinstance(value, dict):
        return _object(value, path, depth, nfc)
    raise NotCanonical(f"{path}: {type(value).__name__} is not JSON")


def _object(value: dict[Any, Json], path: str, depth: int, nfc: bool) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotCanonical(f"{path}: a key that is not text")
        name = _text(key, f"{path} (a key)", nfc)
        if name in result:
            raise NotCanonical(f"{path}: two keys with one normal form")
        result[name] = _walk(item, f"{path}.{name}", depth + 1, nfc=nfc)
    return result


def _text(value: str, path: str, nfc: bool) -> str:
    if not storable(value):
        raise NotCanonical(f"{path}: NUL or lone surrogate")
    return unicodedata.normalize("NFC", value) if nfc else str(value)
