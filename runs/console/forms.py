"""What a reviewer may post, and the form of a tool's arguments, made from its schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django import forms

from agentcore.canonical import canonical_json
from agentcore.policy import LADDER
from runs.approving import MAX_REASON
from runs.console.text import visible
from tools.spec import ToolSpec

_REASON = forms.Textarea(attrs={"rows": 4, "maxlength": MAX_REASON})
CHOICES = {
    "wrong_target": "Wrong customer, order or account",
    "wrong_amount": "Wrong amount or content",
    "not_needed": "Not needed, or done already",
    "against_policy": "Against our rules",
    "other": "Another reason (write it)",
}
"""The usual reasons of a rejection; the model is given the words."""


class DecisionForm(forms.Form):
    """One decision about the content whose hash the page showed. A rejection needs its reason."""

    approval_id = forms.UUIDField(widget=forms.HiddenInput)
    params_hash = forms.RegexField(r"^[0-9a-f]{64}$", widget=forms.HiddenInput)
    decision = forms.ChoiceField(
        choices=[(word, word) for word in ("APPROVE", "REJECT", "RESPOND")]
    )
    choice = forms.ChoiceField(choices=[("", ""), *CHOICES.items()], required=False)
    reason = forms.CharField(required=False, max_length=MAX_REASON, widget=_REASON)

    @property
    def said(self) -> str:
        """The reason in words: the choice, then what was written."""
        choice = self.cleaned_data["choice"]
        words = CHOICES[choice] if choice and choice != "other" else ""
        return ": ".join(filter(None, (words, self.cleaned_data["reason"])))


class EscalateForm(forms.Form):
    """Passing a question on."""

    params_hash = forms.RegexField(r"^[0-9a-f]{64}$")
    reason = forms.CharField(max_length=MAX_REASON)
    role = forms.ChoiceField(choices=[("", ""), *((name, name) for name in LADDER)], required=False)


@dataclass(frozen=True, slots=True)
class Field:
    """One argument in the edit form. `kind`: text, number, choice, yes_no or json."""

    name: str
    kind: str
    value: str
    hint: str
    choices: tuple[str, ...] = ()
    error: str = ""
    multiline: bool = False

    @property
    def spelled(self) -> str:
        """The value with what cannot be seen spelled out; empty where all of it can be seen."""
        shown = visible(self.value)
        return shown if shown != self.value else ""


def fields_of(spec: ToolSpec, arguments: dict[str, Any]) -> list[Field]:
    """The arguments that a person may change; secret ones are not shown and stay."""
    found = []
    schema: Any = spec.schema
    for name, about in schema.get("properties", {}).items():
        if name in spec.redact:
            continue
        kind, choices = _kind(about, schema.get("$defs", {}))
        value = arguments.get(name)
        found.append(
            Field(
                name=name,
                kind=kind,
                value=_shown(value, kind),
                hint=str(about.get("description", "")),
                choices=choices,
                multiline=kind == "json" or (isinstance(value, str) and len(value) > 80),
            )
        )
    return found


def _kind(about: Any, known: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    if "$ref" in about:
        about = known.get(str(about["$ref"]).rpartition("/")[2], {})
    values = about.get("enum")
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return "choice", tuple(values)
    match about.get("type"):
        case "string":
            return "text", ()
        case "integer" | "number":
            return "number", ()
        case "boolean":
            return "yes_no", ("true", "false")
    return "json", ()


def _shown(value: Any, kind: str) -> str:
    if kind in ("text", "choice") and isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if kind == "json" else None)


def changed(fields: list[Field], sent: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """What a person changed, by argument; and what could not be read, by argument."""
    changes: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for item in fields:
        text = sent.get(f"arg-{item.name}")
        if text is None or _same(text, item.value):
            continue
        if item.kind in ("text", "choice"):
            changes[item.name] = text
            continue
        try:
            changes[item.name] = json.loads(text)
            canonical_json(changes[item.name])
        except (ValueError, RecursionError):
            errors[item.name] = f"{text[:40]!r} is not a {item.kind.replace('_', '/')} value"
    return changes, errors


def _same(text: str, value: str) -> bool:
    """Browsers send line ends as CR LF."""
    return text.replace("\r\n", "\n") == value.replace("\r\n", "\n")
