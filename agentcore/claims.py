"""Does an answer claim an effect that the journal does not have? Read from its words, by code.

Each write has words by which an answer says that it was made: those that its tool declares, else
the past forms of the verbs in its name. A sentence with such a word claims the effect, unless it
denies it, puts it into the future or makes it a condition. A wrong alarm costs one more turn, in
which the model can say it plainly; a claim that slips through costs a customer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentcore.values import Json

_NO_VERBS = (
    "a all an and as at by details for from get in into item items list new of on or order orders "
    "record records request requests row rows single status the to with"
)
_IRREGULAR = {
    "buy": "bought",
    "cut": "cut",
    "do": "done",
    "give": "given",
    "make": "made",
    "pay": "paid",
    "put": "put",
    "send": "sent",
    "set": "set",
    "take": "taken",
    "tell": "told",
    "withdraw": "withdrawn",
    "write": "written",
}
_UNDONE = re.compile(
    r"\b(?:not|no|nothing|none|nobody|never|neither|nor|without|unable|cannot|can't|couldn't|wasn't|weren't|isn't|"
    r"hasn't|haven't|hadn't|didn't|don't|doesn't|won't|unless|if|whether|once|before|when|until|"
    r"will|would|shall|should|could|can|may|might|must|to be|pending|awaiting|waiting|rejected|"
    r"refused|denied|declined|failed|fails|instead of|try|trying|want|wants|asked|asks|request|"
    r"requested|please|propose|proposed|already|so far|to date)\b|\b0[.,]00\b",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(r"\b(?:i|we|i've|we've|my|our|done)\b", re.IGNORECASE)
_CLAUSES = re.compile(
    r"[.!?;\n]+\s|[.!?;\n]+$|,\s*(?:but|however|although|though)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Effect:
    """A write that an answer might speak of. `made`: the journal has it, in this run. `seen`:
    words of it that the system of record said in a read of this run, so that others may have
    done it.
    """

    tool: str
    words: tuple[str, ...]
    made: bool
    seen: tuple[str, ...] = ()


def words_of(name: str, *, declared: Sequence[str] = ()) -> tuple[str, ...]:
    """The words that claim the effect of a tool: declared, or made of its function's name."""
    if declared:
        return tuple(word.lower() for word in declared)
    no_verbs = _NO_VERBS.split()
    parts = [part for part in name.rsplit(".", 1)[-1].split("_") if part not in no_verbs]
    return tuple(dict.fromkeys(past for part in parts for past in _past(part)))


def _past(verb: str) -> list[str]:
    if verb in _IRREGULAR:
        return [_IRREGULAR[verb]]
    if len(verb) < 3 or not verb.isalpha():
        return []
    if verb.endswith("e"):
        return [verb + "d"]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return [verb[:-1] + "ied"]
    doubled = verb + verb[-1] + "ed"
    return [verb + "ed", doubled] if verb[-1] in "bdglmnprt" else [verb + "ed"]


def unsupported(*, text: str, effects: Iterable[Effect]) -> tuple[str, ...]:
    """The tools whose effect `text` claims although it was not made, each once.

    A word that also an effect of this run stands for is supported by it. What a read has shown
    may be told, but not as the agent's own doing.
    """
    known = list(effects)
    backed = {word for effect in known if effect.made for word in effect.words}
    parts = _CLAUSES.split(text.replace("\u2019", "'"))
    clauses = [clause for clause in parts if not _UNDONE.search(clause)]
    return tuple(
        effect.tool
        for effect in known
        if not effect.made
        and any(
            _claims(clause, word, seen=word in effect.seen)
            for clause in clauses
            for word in effect.words
            if word not in backed
        )
    )


def shown_in(result: Json, words: Sequence[str]) -> tuple[str, ...]:
    """The words that the answer of a read says of the world: as a field that holds something
    (not false, zero or nothing), or as a value of its own, such as a status.
    """
    found: set[str] = set()
    _collect(result, [word.lower() for word in words], found)
    return tuple(sorted(found))


def _collect(value: Json, words: list[str], found: set[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, words, found)
    elif isinstance(value, dict):
        for name, item in value.items():
            if item and not _ZERO.fullmatch(str(item)):
                found.update(w for w in words if w in re.split(r"[^a-z]+", str(name).lower()))
            _collect(item, words, found)
    elif isinstance(value, str):
        found.update(word for word in words if value.strip().lower() == word)


_ZERO = re.compile(r"\s*(?:0+(?:[.,]0+)?(?:\s*[A-Z]{3})?|no|none|false|null|-)\s*", re.IGNORECASE)


def _claims(clause: str, word: str, *, seen: bool) -> bool:
    if seen and not _FIRST_PERSON.search(clause):
        return False
    return _says(clause, word)


def _says(clause: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", clause, re.IGNORECASE) is not None


def statements(output: Json) -> str:
    """What a structured answer states, as text: its texts, and the names of its true fields.

    `{"refunded": true}` says "refunded"; `{"refunded": false}` does not.
    """
    return "\n".join(_statements(output))


def _statements(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _statements(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if item is True:
                yield str(name).replace("_", " ")
            yield from _statements(item)
