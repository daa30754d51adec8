"""Is an identifier supported by what the run was given or has observed? If not, it was guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from agentcore.values import Json


def ungrounded(
    *, names: Sequence[str], arguments: Mapping[str, Json], sources: Iterable[str]
) -> tuple[str, ...]:
    """The parameters of `names` with a value that stands in none of the `sources`.

    A value is found as a whole word, in whatever case; of a list every element must be found.
    Nothing has to be known for null.
    """
    texts = list(sources)
    return tuple(
        name
        for name in names
        if any(not _stands_in(value, texts) for value in _values(arguments.get(name)))
    )


def _values(value: Json) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [text for item in value for text in _values(item)]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _values(item)]
    return [str(value)]


def _stands_in(value: str, texts: Sequence[str]) -> bool:
    word = rf"(?<![\w-]){re.escape(value)}(?![\w-])"
    return bool(value.strip()) and any(re.search(word, text, re.IGNORECASE) for text in texts)
