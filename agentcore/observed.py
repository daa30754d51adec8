"""What the model is told about a tool call: labelled as data, bounded, without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from agentcore.canonical import clean_text, sha256_hex
from agentcore.values import Json

MAX_OBSERVATION = 64 * 1024  # bytes of UTF-8
REDACTED = "[redacted]"
MIN_SECRET = 4
"""Shorter values are in every text by chance; hiding them would hide everything."""
_MARK = "\n[cut by the runtime: {shown} of {total} bytes are shown]"


def observation(
    *, tool: str, status: str, data: Json, compensates: str = "", person: Json = None
) -> str:
    """The fixed envelope of what a tool call led to: always valid JSON, at most
    `MAX_OBSERVATION` bytes. `status` is a word of the runtime (`ok`, `failed`, `denied` …);
    `data` comes from outside and is labelled so. `compensates` names the tool whose effect this
    one compensates; `person` says what a person changed in the call.
    """
    envelope = {"source": "tool", "untrusted": True, "tool": tool, "status": status, "data": data}
    if compensates:
        envelope["compensates"] = compensates
    if person is not None:
        envelope["person"] = person
    text = clean_text(json.dumps(envelope, ensure_ascii=False, sort_keys=True))
    if len(text.encode()) <= MAX_OBSERVATION:
        return text
    envelope["truncated"] = True
    written = json.dumps(data, ensure_ascii=False, sort_keys=True)
    # As text inside text a character may need up to six bytes: a ninth of the room always fits.
    for room in (8, 7, 6, 4, 2, 1):
        envelope["data"] = cap_text(written, MAX_OBSERVATION * room // 9)
        text = json.dumps(envelope, ensure_ascii=False, sort_keys=True)
        if len(text.encode()) <= MAX_OBSERVATION:
            break
    return text


def cap_text(text: str, limit: int = MAX_OBSERVATION) -> str:
    """`text` in at most `limit` bytes of UTF-8, with a visible mark where it was cut."""
    text = clean_text(text)
    data = text.encode()
    if len(data) <= limit:
        return text
    room = limit - len(_MARK.format(shown=len(data), total=len(data)).encode())
    head = data[: max(room, 0)].decode(errors="ignore")
    return head + _MARK.format(shown=len(head.encode()), total=len(data))


def hide(text: str, secrets: Iterable[str]) -> str:
    """An observation with every secret in its data replaced, also inside JSON that stands in a
    text. What the envelope itself says stays.
    """
    hidden = sorted({s for s in secrets if len(s) >= MIN_SECRET}, key=len, reverse=True)
    if not any(spelling in text for secret in hidden for spelling in spellings(secret)):
        return text
    envelope = json.loads(text)
    envelope["data"] = _hidden(envelope["data"], hidden)
    return json.dumps(envelope, ensure_ascii=False, sort_keys=True)


def _hidden(value: Json, secrets: list[str]) -> Json:
    if isinstance(value, str):
        for secret in secrets:
            for spelling in spellings(secret):
                value = value.replace(spelling, REDACTED)
        return value
    if isinstance(value, list):
        return [_hidden(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_hidden(name, secrets): _hidden(item, secrets) for name, item in value.items()}
    if isinstance(value, int | float) and str(value) in secrets:
        return REDACTED
    return value


def spellings(secret: str) -> tuple[str, ...]:
    """How a text may stand in JSON: as it is, escaped once, and escaped once more in a string."""
    once = [json.dumps(secret, ensure_ascii=only)[1:-1] for only in (False, True)]
    twice = [json.dumps(text, ensure_ascii=True)[1:-1] for text in once]
    return tuple(dict.fromkeys((*twice, *once, secret)))


# --- stored without a second copy of the result ------------------------------------------------

_FOLDED = "@result "
_SLOT = "\ue000"
_WORTH_IT = 128  # characters of a result; place and hash take 73


def fold(text: str, result: Json) -> str:
    """An observation as it is stored beside its result: where the result stands in it, only the
    place is kept, and the hash of the whole. Other texts stay as they are.
    """
    written = json.dumps(result, ensure_ascii=False, sort_keys=True)
    foldable = len(written) >= _WORTH_IT and _SLOT not in text and not _has_float(result)
    if not foldable or text.count(written) != 1:
        return text
    return f"{_FOLDED}{sha256_hex(text)} {text.replace(written, _SLOT)}"


def unfold(stored: str, result: Json) -> str:
    """The observation again. Raises ValueError when the result is not the one it was made of."""
    if not stored.startswith(_FOLDED):
        return stored
    digest, _, template = stored.removeprefix(_FOLDED).partition(" ")
    text = template.replace(_SLOT, json.dumps(result, ensure_ascii=False, sort_keys=True))
    if sha256_hex(text) != digest:
        raise ValueError("the stored result is not the one that was shown")
    return text


def digest_of(stored: str) -> str:
    """The hash of an observation as it was shown, however it is stored."""
    if not stored.startswith(_FOLDED):
        return sha256_hex(stored)
    return stored.removeprefix(_FOLDED).partition(" ")[0]


# --- stored without a second copy of the reply -------------------------------------------------

_PLACE = "@output "
_AT = re.compile(r"([0-9]{1,9}) ([0-9]{1,9})")


def place_in(output: str, text: str) -> str:
    """A text of the model as it is stored beside the reply (JSON in ASCII) that it comes from: its
    place there, where it stands in one piece. Short texts stay as they are.
    """
    written = json.dumps(text)[1:-1]
    at = output.find(written) if len(written) > _WORTH_IT else -1
    if at >= 0:
        return f"{_PLACE}{at} {len(written)}"
    return f"{_PLACE}{text}" if text.startswith(_PLACE) else text


def said_in(output: str, stored: str) -> str:
    """The text again."""
    if not stored.startswith(_PLACE):
        return stored
    place = stored.removeprefix(_PLACE)
    if not (found := _AT.fullmatch(place)):
        return place
    at, length = map(int, found.groups())
    if not _WORTH_IT < length <= len(output) - at:
        return stored  # of a time when each text was stored as it is
    text: str = json.loads(f'"{output[at : at + length]}"')
    return text


def _has_float(value: Json) -> bool:
    """The database may give a float back in another spelling."""
    if isinstance(value, dict):
        return any(_has_float(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_float(item) for item in value)
    return isinstance(value, float)
