"""Does an answer claim an effect that the journal does not have? Read from its words, by code.

Each write has words by which an answer says that it was made: those that its tool declares, else
the past forms of the verbs in its name. A sentence with such a word claims the effect, unless it
denies it, puts it into the future or makes it a condition: which words do that is a matter of the
language (`languages.py`). A wrong alarm costs one more turn, in which the model can say it plainly;
a claim that slips through costs a customer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentcore.languages import ENGLISH, Language, has_no_spaces
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


def unsupported(
    *, text: str, effects: Iterable[Effect], languages: Sequence[Language] = (ENGLISH,)
) -> tuple[str, ...]:
    """The tools whose effect `text` claims although it was not made, each once.

    A word that also an effect of this run stands for is supported by it. What a read has shown
    may be told, but not as the agent's own doing. `languages`: those that the agent answers in.
    """
    known = list(effects)
    backed = {word for effect in known if effect.made for word in effect.words}
    clauses = [
        clause
        for clause in _clauses(text.replace("\u2019", "'"), languages)
        if not any(language.denies(clause) for language in languages)
    ]
    return tuple(
        effect.tool
        for effect in known
        if not effect.made
        and any(
            _says(clause, word) and (word not in effect.seen or _owns(clause, languages))
            for clause in clauses
            for word in effect.words
            if word not in backed
        )
    )


def _clauses(text: str, languages: Sequence[Language]) -> list[str]:
    return re.split("|".join(language.clauses for language in languages), text, flags=re.IGNORECASE)


def _owns(clause: str, languages: Sequence[Language]) -> bool:
    return any(language.owns(clause) for language in languages)


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


def _says(clause: str, word: str) -> bool:
    if has_no_spaces(word):
        return word in clause
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
