"""How a language denies, postpones and owns a claim: what `claims` needs to read an answer.

English, German and Chinese come along, as small lists of words and not as grammar. An agent that
answers in another language declares a `Language` of its own; its tools name the words of each
language by which an effect is claimed.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import cached_property

from agentcore.values import Json


@dataclass(frozen=True)
class Language:
    """Regular expressions, read without regard to case. `undone`: what takes the claim out of a
    clause (denied, future, condition, question); `own`: the speaker means itself; `clauses`: where
    one clause ends. Raises ValueError for an expression that cannot be read.
    """

    name: str
    undone: str
    own: str
    clauses: str = r"[.!?;\n]+\s|[.!?;\n]+$"

    def __post_init__(self) -> None:
        for text in (self.undone, self.own, self.clauses):
            try:
                groups = re.compile(text, re.IGNORECASE).groups
            except re.error as error:
                raise ValueError(f"language {self.name}: {text!r}: {error}") from None
            if groups:
                raise ValueError(f"language {self.name}: {text!r}: groups are (?:…)")

    def stored(self) -> dict[str, Json]:
        """The patterns as part of a frozen agent version; `Language(**stored)` reads them."""
        return asdict(self)

    def denies(self, clause: str) -> bool:
        return self._undone.search(clause) is not None

    def owns(self, clause: str) -> bool:
        return self._own.search(clause) is not None

    @cached_property
    def _undone(self) -> re.Pattern[str]:
        return re.compile(self.undone, re.IGNORECASE)

    @cached_property
    def _own(self) -> re.Pattern[str]:
        return re.compile(self.own, re.IGNORECASE)


ENGLISH = Language(
    "en",
    undone=(
        r"\b(?:not|no|nothing|none|nobody|never|neither|nor|without|unable|cannot|can't|couldn't|"
        r"wasn't|weren't|isn't|hasn't|haven't|hadn't|didn't|don't|doesn't|won't|unless|if|whether|"
        r"once|before|when|until|will|would|shall|should|could|can|may|might|must|to be|pending|"
        r"awaiting|waiting|rejected|refused|denied|declined|failed|fails|instead of|try|trying|"
        r"want|wants|asked|asks|request|requested|please|propose|proposed|already|so far|to date)"
        r"\b|\b0[.,]00\b"
    ),
    own=r"\b(?:i|we|i've|we've|my|our|done)\b",
    clauses=r"[.!?;\n]+\s|[.!?;\n]+$|,\s*(?:but|however|although|though)\b",
)
GERMAN = Language(
    "de",
    undone=(
        r"\b(?:nicht|kein\w*|nichts|nie|niemals|niemand|weder|noch|ohne|wenn|falls|ob|sobald|bevor|"
        r"bis|wird|werden|würde\w*|soll\w*|kann|können|könnte\w*|darf|dürfen|muss|müssen|möchte\w*|"
        r"bitte|ausstehend|wartet|abgelehnt|verweigert|fehlgeschlagen|unmöglich|statt|versuch\w*|"
        r"beantragt|bereits|schon)\b|\b0[.,]00\b"
    ),
    own=r"\b(?:ich|wir|mein\w*|unser\w*|erledigt)\b",
    clauses=r"[.!?;\n]+\s|[.!?;\n]+$|,\s*(?:aber|jedoch|sondern|obwohl)\b",
)
CHINESE = Language(
    "zh",
    undone=(
        "未|没有|没能|尚|不能|不会|不可|无法|并非|如果|若|是否|将|会在|可以|可能|应该|需要|请|"
        "等待|待审|拒绝|失败|申请|打算|之前"
    ),
    own="我|我们|为您|帮您",
    clauses=r"[\u3002\uff01\uff1f\uff1b\uff0c\n]+",
)
BUILT_IN = {language.name: language for language in (ENGLISH, GERMAN, CHINESE)}


def languages_of(given: tuple[Language | str, ...]) -> tuple[Language, ...]:
    """The languages that an agent declares, by name or as they are. Raises ValueError."""
    unknown = [name for name in given if isinstance(name, str) and name not in BUILT_IN]
    if unknown or not given:
        known = ", ".join(BUILT_IN)
        raise ValueError(
            f"languages: {unknown or 'none'}; known are {known}, or declare a Language"
        )
    return tuple(BUILT_IN[item] if isinstance(item, str) else item for item in given)


def has_no_spaces(word: str) -> bool:
    """Whether a word is written in a script that does not part its words (from U+2E80 on)."""
    return any(ord(character) >= 0x2E80 for character in word)
