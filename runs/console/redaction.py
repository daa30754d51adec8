"""What a tool declares secret stays hidden wherever its value turns up: arguments, replies, events.

Two ways to find it: by name (a member called like a redacted parameter) and by value (the text of
a secret argument, also inside a longer text).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agentcore.observed import MIN_SECRET
from approvals.models import Approval
from runs import secrets
from runs.models import ActionJournal
from tools import registry
from tools.invocation import redacted as redacted_arguments
from tools.spec import ToolSpec
from tools.types import REDACTED

MOST_CALLS = 2000
HIDDEN = "(hidden: the tool declares this field secret)"


@dataclass(frozen=True, slots=True)
class Redactor:
    """Hides the secrets of some calls. `reveal` shows everything: the caller has recorded why."""

    names: frozenset[str] = frozenset()
    values: tuple[str, ...] = ()
    reveal: bool = False

    @property
    def hides(self) -> bool:
        """Whether there is anything to hide."""
        return not self.reveal and bool(self.names or self.values)

    def text(self, value: Any) -> Any:
        """A text without the secret values; JSON inside it also without the secret members."""
        if not self.hides or not isinstance(value, str) or not value:
            return value
        if value[0] in "{[":
            try:
                inner = json.loads(value)
            except ValueError:
                inner = None
            if inner is not None and (clean := self.json(inner)) != inner:
                return json.dumps(clean, ensure_ascii=False)
        for secret in self.values:
            value = value.replace(secret, HIDDEN)
        return value

    def json(self, value: Any) -> Any:
        """A JSON value without the secrets."""
        if not self.hides:
            return value
        if isinstance(value, dict):
            return {
                self.text(name): HIDDEN if name in self.names else self.json(item)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return HIDDEN if str(value) in self.values else value
        return self.text(value)

    def hide(self, row: Any, *columns: str) -> Any:
        """`row` with these columns cleaned in memory; such a row is for reading only."""
        for name in columns:
            setattr(row, name, self.json(getattr(row, name)))
        return row


def redactor_of(calls: Iterable[ActionJournal | Approval], *, reveal: bool = False) -> Redactor:
    """The secrets of these calls, by the declarations of their tools."""
    names: set[str] = set()
    values: list[str] = []
    for call in calls:
        spec = registry.get(call.tool)
        names |= set(spec.redact) if spec else set()
        values += _values(call, spec)
    return Redactor(frozenset(names), tuple(sorted(set(values), key=len, reverse=True)), reveal)


def redactors_of(*, runs: Sequence[UUID]) -> dict[UUID, Redactor]:
    """The secrets of these runs, by run; one query, and none where no tool has secrets."""
    tools = [spec.name for spec in registry.all_tools() if _has_secrets(spec)]
    if not tools:
        return {}
    calls: dict[UUID, list[ActionJournal]] = defaultdict(list)
    for action in ActionJournal.objects.filter(run_id__in=runs, tool__in=tools)[:MOST_CALLS]:
        calls[action.run_id].append(action)
    return {run: redactor_of(found) for run, found in calls.items()}


def _has_secrets(spec: ToolSpec) -> bool:
    fields = spec.params_model.model_fields.values()
    return bool(spec.redact) or any("Secret" in str(field.annotation) for field in fields)


def _values(call: ActionJournal | Approval, spec: ToolSpec | None) -> list[str]:
    if spec is None or not isinstance(call.arguments, dict):
        return []
    named = [str(call.arguments[name]) for name in spec.redact if name in call.arguments]
    found = [text for text in named if len(text) >= MIN_SECRET]
    return [*found, *secrets.of_call(call)] if _is_whole(spec) else found


def redacted(tool: str, arguments: Any, *, reveal: bool = False) -> Any:
    """`arguments` of one call with the fields that the tool declares secret replaced."""
    spec = registry.get(tool)
    if reveal or spec is None or not isinstance(arguments, dict):
        return arguments
    typed = redacted_arguments(spec=spec, arguments=arguments) if _is_whole(spec) else {}
    return {
        name: HIDDEN if name in spec.redact else _typed(typed.get(name), item)
        for name, item in arguments.items()
    }


def _typed(shown: Any, item: Any) -> Any:
    """The value, or what stands for it where its type is Secret or where it does not fit the
    declaration any more: nothing is known of it then."""
    return shown if REDACTED in json.dumps(shown) else item


def _is_whole(spec: ToolSpec) -> bool:
    return hasattr(spec, "params_model")
