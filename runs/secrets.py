"""What must never reach a model: the secrets of this installation and those of a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings

from agentcore.observed import MIN_SECRET, REDACTED
from approvals.models import Approval
from runs.models import ActionJournal
from runs.view import spec_of
from tools.invocation import redacted

LONG_ENOUGH = 16
"""Characters from which a configured secret is looked for; a shorter one is in any text."""


def of_the_runtime() -> tuple[str, ...]:
    """The configured secrets: API key, event key, Django's key, passwords of the servers."""
    options = settings.AGENTCORE_OPTIONS
    return _long(
        options.openai_api_key,
        options.event_key,
        settings.SECRET_KEY,
        getattr(settings, "DATABASE_URL", ""),
        getattr(settings, "REDIS_URL", ""),
    )


@cache
def _long(*values: str | bytes) -> tuple[str, ...]:
    found = []
    for value in values:
        text = value.decode("utf-8", "ignore") if isinstance(value, bytes) else value
        if "://" in text:
            text = unquote(urlsplit(text).password or "")
        if len(text) >= LONG_ENOUGH:
            found.append(text)
    return tuple(dict.fromkeys(found))


def of_call(action: ActionJournal | Approval) -> tuple[str, ...]:
    """The secret values among the arguments of a call: of Secret parameters, and those that the
    tool declares as redacted.
    """
    hidden = _hidden(action)
    return tuple(text for value in hidden for text in _texts(value) if len(text) >= MIN_SECRET)


def shown_arguments(action: ActionJournal) -> str:
    """The arguments of a call as JSON text, its secrets hidden; "" when there are none."""
    if action.arguments is None:
        return ""
    spec = spec_of(action)
    shown = action.arguments if spec is None else redacted(spec=spec, arguments=action.arguments)
    return json.dumps(shown, sort_keys=True, ensure_ascii=False)


def _hidden(action: ActionJournal | Approval) -> list[Any]:
    spec = spec_of(action)
    if spec is None or not action.arguments:
        return []
    shown = redacted(spec=spec, arguments=action.arguments)
    return [value for name, value in action.arguments.items() if _is_hidden(shown.get(name), value)]


def _is_hidden(shown: Any, value: Any) -> bool:
    return bool(shown != value and REDACTED in json.dumps(shown))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
