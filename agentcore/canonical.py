"""One spelling for one meaning: canonical JSON, digests and the keys made from them.

Everything that is compared, bound to an approval or sent as an idempotency key goes through here.
Canonical JSON is RFC 8785. Floats are refused (money is a string), and so are NUL and lone
surrogates, which PostgreSQL and UTF-8 cannot hold.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import unicodedata
from functools import lru_cache
from typing import Any

import rfc8785

from agentcore.values import Json

MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
REPLACEMENT = "\ufffd"
# Made once: `json.dumps` makes another one each time, which took half of its time.
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))
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
    return _dumps(_walk(value, nfc=False))


def normalize_params(value: Json) -> Json:
    """A copy of `value` with every string and key in NFC; raises `NotCanonical`.

    Two keys that become equal are refused: dropping one of them would change the meaning.
    """
    return _walk(value, nfc=True)


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
    value: list[Json] = [previous, body]
    chained = _keyed(key).copy()
    chained.update(_quick(value) or canonical_json(value))
    return chained.hexdigest()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    """HMAC-SHA-256 that has taken its key. OpenSSL looks for the algorithm anew in each
    `hmac.digest`, which took 2 % of the Python of a run."""
    return hmac.new(key, digestmod="sha256")


def _digest(purpose: str, parts: list[Json]) -> str:
    # The purpose keeps two digests of equal parts apart.
    return sha256_hex(_dumps(_walk([f"agentcore/{purpose}/1", *parts], nfc=True)))


def _dumps(value: Any) -> bytes:
    """RFC 8785 of what `_walk` gave back: text, integers, truth values, lists and objects.

    The standard library writes these as the RFC says, ten times as fast, except for the order of
    keys: the RFC sorts UTF-16 units, which differ from code points beyond U+D7FF.
    """
    try:
        text = _ENCODER.encode(value)
        if text.isascii() or max(text) < "\ud800":
            return text.encode()
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise NotCanonical(str(error)) from None


def _quick(value: Json) -> bytes | None:
    """Canonical JSON of what the runtime itself has put together (its keys are text), where nothing
    in it needs care; None where something might. Looking for that in the text took four times as
    long as in the value.
    """
    try:
        text = _ENCODER.encode(value) if _needs_no_care(value) else ""
    except (TypeError, ValueError, RecursionError):
        return None
    plain = text.isascii() or max(text) <= "\ud7ff"
    return text.encode() if text and plain and "\\u0000" not in text else None


def _needs_no_care(value: Any) -> bool:
    """No float, and no integer that a double cannot hold."""
    if isinstance(value, str) or value is None:
        return True
    if isinstance(value, dict):
        return all(map(_needs_no_care, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_needs_no_care, value))
    return isinstance(value, int) and -MAX_INTEGER <= value <= MAX_INTEGER


class _Refused(Exception):  # noqa: N818  (becomes a NotCanonical)
    """What is wrong with a value; its place is put together on the way out."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(problem)
        self.problem, self.place = problem, place

    def inside(self, place: str) -> _Refused:
        self.place = place + self.place
        return self


def _walk(value: Json, *, nfc: bool) -> Json:
    """A copy of `value` made of plain types. Raises `NotCanonical`."""
    try:
        return _copy(value, 0, nfc)
    except _Refused as refused:
        raise NotCanonical(f"${refused.place}: {refused.problem}") from None


def _copy(value: Json, depth: int, nfc: bool) -> Json:
    if depth > MAX_DEPTH:
        raise _Refused(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        return _text(value, nfc)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise _Refused("integer beyond 2^53-1; use a string")
        return int(value)
    if isinstance(value, float):
        raise _Refused("float; use a string or an integer of minor units")
    if isinstance(value, (list, tuple)):
        return _list(value, depth, nfc)
    if isinstance(value, dict):
        return _object(value, depth, nfc)
    raise _Refused(f"{type(value).__name__} is not JSON")


def _list(value: list[Json] | tuple[Json, ...], depth: int, nfc: bool) -> list[Json]:
    result: list[Json] = []
    for item in value:
        try:
            result.append(_copy(item, depth + 1, nfc))
        except _Refused as refused:
            raise refused.inside(f"[{len(result)}]") from None
    return result


def _object(value: dict[Any, Json], depth: int, nfc: bool) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Refused("a key that is not text")
        name = _key(key, nfc)
        if name in result:
            raise _Refused("two keys with one normal form")
        try:
            result[name] = _copy(item, depth + 1, nfc)
        except _Refused as refused:
            raise refused.inside(f".{name}") from None
    return result


def _key(key: str, nfc: bool) -> str:
    try:
        return _text(key, nfc)
    except _Refused as refused:
        raise refused.inside(" (a key)") from None


def _text(value: str, nfc: bool) -> str:
    if not storable(value):
        raise _Refused("NUL or lone surrogate")
    if not nfc or value.isascii():
        return str(value)
    return unicodedata.normalize("NFC", value)
