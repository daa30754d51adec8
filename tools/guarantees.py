"""What stands behind a tool when a reply is lost, in a few words for people."""

from __future__ import annotations

from typing import Literal

from agentcore.values import Key, Natural, Query
from tools.spec import ToolSpec

Guarantee = Literal[
    "read only",
    "run of an agent",
    "dedupe + probe",
    "dedupe only",
    "lookup",
    "absolute write",
    "none",
]

MEANING: dict[Guarantee, str] = {
    "read only": "changes nothing; asked again when it fails",
    "run of an agent": "made once; its tools guarantee what each of them does",
    "dedupe + probe": "sent again under the same key, which the downstream does once; can be asked",
    "dedupe only": "sent again under the same key, which the downstream does once; cannot be asked",
    "lookup": "asked by our reference; sent again only after it is proven absent",
    "absolute write": "sent again with the same precondition: twice is as once",
    "none": "sent once; when the reply is lost a person decides",
}
"""What each class means. None of them is "exactly once"."""


def guarantee(spec: ToolSpec) -> Guarantee:
    """The guarantee class of a tool."""
    if spec.agent:
        return "run of an agent"
    if not spec.effect.is_write:
        return "read only"
    match spec.contract:
        case Key():
            return "dedupe only" if spec.probe_fn is None else "dedupe + probe"
        case Natural():
            return "absolute write"
        case Query():
            return "lookup"
        case _:
            return "none"
