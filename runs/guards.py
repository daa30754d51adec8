"""Asking the guardrails of an agent, with a time limit. They are a developer's code.

They get copies: what they change in them changes nothing that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from agentcore.canonical import clean_text
from agentcore.guardrails import Broken, Guardrail, Passed, Proposed, Refused, Stage, Verdict
from agentcore.values import Json
from runs.agents import get_agent
from runs.models import ActionJournal
from runs.view import View
from tools.limits import run_limited

SECONDS = 2.0
"""What one guardrail may take."""


def check_input(view: View) -> Verdict:
    return _ask(view, "input", lambda: deepcopy(view.run.input))


def check_action(view: View, action: ActionJournal) -> Verdict:
    return _ask(
        view,
        "action",
        lambda: Proposed(
            tool=action.tool,
            arguments=deepcopy(action.arguments or {}),
            tenant=view.run.tenant,
            principal=view.run.principal,
            run_input=deepcopy(view.run.input),
        ),
    )


def check_output(view: View, output: dict[str, Json]) -> Verdict:
    return _ask(view, "output", lambda: deepcopy(output))


def _ask(view: View, stage: Stage, copy: Callable[[], Any]) -> Verdict:
    """The first guardrail that does not pass decides; most agents have none to copy for."""
    declaration = get_agent(view.agent.name)
    all_of_it = declaration.guardrails if declaration is not None else ()
    rails = [rail for rail in all_of_it if rail.stage == stage]
    value = copy() if rails else None
    for rail in rails:
        verdict = _one(rail, value)
        if not isinstance(verdict, Passed):
            return verdict
    return Passed()


def _one(rail: Guardrail, value: Any) -> Verdict:
    try:
        answer = run_limited(lambda: rail.check(value), seconds=SECONDS)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (whatever it raises: it has not decided)
        return Broken(rail.name, clean_text(f"{type(error).__name__}: {error}", 500))
    if not isinstance(answer, str):
        return Broken(rail.name, f"it returned {type(answer).__name__}, not text")
    return Refused(rail.name, clean_text(answer, 500)) if answer else Passed()
