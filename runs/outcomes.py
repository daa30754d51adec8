"""What a run came to for the business, apart from how the run itself ended."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agentcore.canonical import clean_text, sha256_hex
from agentcore.claims import Effect, shown_in, words_of
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from agentcore.values import Json
from runs.account_models import Evidence
from runs.agents import get_agent
from runs.models import ActionJournal, Run
from runs.transitions import locked_run
from runs.view import View, is_write, spec_of
from tools import registry
from tools.limits import run_limited

A = ActionState
SECONDS = 2.0
MAX = 40  # characters of the column
NO_EFFECT, EFFECT_MADE, IN_PROGRESS = "no_effect", "effect_made", "in_progress"


def business_outcome(view: View, output: dict[str, Json] | None = None) -> str:
    """One word for the business: what the agent's own function says of its output, else what the
    journal says: nothing was changed, something was, or a downstream is still at it.
    """
    declaration = get_agent(view.agent.name)
    if output is not None and declaration is not None and declaration.business_outcome is not None:
        said = _asked(declaration.business_outcome, output)
        if said:
            return said
    made = [action for action in view.in_state(A.SUCCEEDED) if is_write(action)]
    if any(_only_accepted(action) for action in made):
        return IN_PROGRESS
    return EFFECT_MADE if made else NO_EFFECT


def _asked(function: Any, output: dict[str, Json]) -> str:
    """The developer's word; nothing when it gives none: the journal's word stands then."""
    try:
        said = run_limited(lambda: function(output), seconds=SECONDS)
    except Exception as error:  # noqa: BLE001  (developer's code; the run is complete without it)
        return clean_text(f"error:{type(error).__name__}", MAX)
    return clean_text(said, MAX) if isinstance(said, str) else ""


def _only_accepted(action: ActionJournal) -> bool:
    """Counted as done when it was accepted; the final word of the downstream is still to come."""
    spec = spec_of(action)
    accepted = isinstance(action.result, dict) and action.result.get("accepted") is True
    return spec is not None and spec.accepted_is_done and accepted


def effects(view: View) -> list[Effect]:
    """The writes that the agent may make, and whether this run has made them."""
    made = {action.tool for action in view.actions if _is_made(action)}
    reads = [action.result for action in view.in_state(A.SUCCEEDED) if not is_write(action)]
    found = []
    for offered in view.agent.spec["tools"]:
        spec = registry.get(offered["name"])
        if spec is not None and spec.effect.is_write:
            words = words_of(spec.name, declared=spec.claims)
            found.append(Effect(spec.name, words, spec.name in made, shown_in(reads, words)))
    return found


def _is_made(action: ActionJournal) -> bool:
    if action.state == A.SUCCEEDED:
        return True
    return action.state == A.VOIDED and action.same_as_id is not None


def record_business_result(
    *,
    run_id: UUID,
    outcome: str,
    source: str,
    detail: str,
    actor: str,
    action_id: UUID | None = None,
) -> Run:
    """The later word about a run, apart from the answer it gave: also long after it has ended.

    Sets the business outcome, keeps the source as evidence, and writes an event with what stood
    there before. Opens its own transaction. Raises `Run.DoesNotExist`, and ValueError without an
    outcome or a source.
    """
    said, where = clean_text(outcome.strip(), MAX), clean_text(source.strip(), 200)
    if not said or not where:
        raise ValueError("a business result has a word and a source")
    with locked_run(run_id, actor=actor, event="run.business_result") as draft:
        before = draft.run.business_outcome
        draft.note(before=before, after=said, source=where, detail=clean_text(detail, 500))
        draft.set_run(business_outcome=said)
        row = Evidence(
            id=new_id(),
            run_id=run_id,
            turn=draft.run.turn,
            action_id=action_id,
            source=where,
            sha256=sha256_hex(detail),
            verified=True,
            observed_at=draft.now,
            created_at=draft.now,
        )
        draft.add(row)
    return draft.run
