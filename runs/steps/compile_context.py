"""Link 1: check the limits, compile what the model will be shown, open the next turn."""

from __future__ import annotations

from typing import Any

from agentcore import budgets
from agentcore.context import ContextPack, compile_context
from agentcore.ids import new_id
from agentcore.lifecycle import RunState, StopReason
from agentcore.version import CODE_VERSION
from runs.models import Turn
from runs.steps.base import Answer, Next
from runs.transitions import Draft
from runs.view import View


def plan(view: View, draft: Draft) -> Answer:
    """Open a turn, or set the stop reason that a used-up budget gives."""
    run = view.run
    if run.state == RunState.QUEUED:
        draft.move_run(RunState.COMPILING_CONTEXT)
    spent = budgets.exceeded(
        max_turns=run.max_turns,
        max_actions=run.max_actions,
        deadline_at=run.deadline_at,
        turns=run.turn,
        actions=run.actions_used,
        now=draft.now,
    )
    if spent is not None:
        draft.set_run(stop_reason=spent, reason=_why(spent, view))
        return Next()
    view.pack = compile_pack(view)
    turn = Turn(
        id=new_id(),
        run_id=run.id,
        number=run.turn + 1,
        model=view.agent.spec["model"],
        manifest=view.pack.manifest,
        request_sha256=view.pack.sha256,
        code_version=CODE_VERSION,
        created_at=draft.now,
    )
    view.turns.append(turn)
    draft.add(turn)
    draft.event = "turn.started"
    draft.move_run(RunState.CALLING_MODEL, turn=turn.number)
    return Next()


def compile_pack(view: View) -> ContextPack:
    """The exact request of the turn after the finished ones: the same rows, the same bytes."""
    spec = view.agent.spec
    done = view.exchanges()
    used = sum(action.turn <= len(done) for action in view.actions)
    return compile_context(
        instructions=spec["instructions"],
        model=spec["model"],
        settings=spec["settings"],
        tools=[tool["function"] for tool in spec["tools"]],
        run_input=view.run.input,
        exchanges=done,
        budget_left=_left(view, len(done), used),
    )


def _left(view: View, turns: int, actions: int) -> dict[str, Any]:
    return {"turns": view.run.max_turns - turns, "actions": view.run.max_actions - actions}


def _why(spent: StopReason, view: View) -> str:
    run = view.run
    if spent is StopReason.DEADLINE:
        return f"the deadline {run.deadline_at.isoformat()} has passed"
    turns = f"{run.turn} of {run.max_turns} turns"
    return f"{turns} and {run.actions_used} of {run.max_actions} actions used"
