"""What a run came to for the business, apart from how the run itself ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from agentcore.canonical import clean_text, sha256_hex
from agentcore.children import uncertain_in
from agentcore.claims import Effect, shown_in, words_of
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState
from agentcore.reconciling import Heard, Word
from agentcore.values import Json
from runs import lineage
from runs.account_models import Evidence
from runs.agents import get_agent
from runs.dispatch import hint_on_commit
from runs.models import ActionJournal, Callback, Run
from runs.transitions import Draft, finish, lock_run, locked_run, write_rows
from runs.view import View, is_child, is_write, spec_of
from tools import registry
from tools.limits import run_limited

A = ActionState
SECONDS = 2.0
MAX = 40  # characters of the column
EVENT = "run.business_result"
NO_EFFECT, EFFECT_MADE, IN_PROGRESS = "no_effect", "effect_made", "in_progress"
SETTLED, NOT_DONE, UNCERTAIN = "settled", "not_done", "uncertain"
DERIVED = (IN_PROGRESS, SETTLED, NOT_DONE)
"""Words that a later one of a downstream replaces. What the agent or a person said stands, and a
write of unknown fate stays uncertain."""


def business_outcome(view: View, output: dict[str, Json] | None = None) -> str:
    """One word for the business: what the agent's own function says of its output, else what the
    journal says: nothing was changed, something was, a downstream is still at it, or nobody knows.
    """
    declaration = get_agent(view.agent.name)
    if output is not None and declaration is not None and declaration.business_outcome is not None:
        said = _asked(declaration.business_outcome, output)
        if said:
            return said
    if any(is_write(action) for action in view.in_state(A.ABANDONED)):
        return UNCERTAIN
    of_children = [action.result for action in view.actions if is_child(action)]
    if any(uncertain_in(result) for result in of_children):
        return UNCERTAIN
    made = [action for action in view.in_state(A.SUCCEEDED) if is_write(action)]
    made += [row for row in lineage.done_below(view) if row.state == A.SUCCEEDED and is_write(row)]
    accepted = [action for action in made if _only_accepted(action)]
    if accepted:
        return _later_word(accepted)
    return EFFECT_MADE if made else NO_EFFECT


def _later_word(accepted: Sequence[ActionJournal], heard: Mapping[UUID, str] | None = None) -> str:
    """What the downstreams have said since about writes that they had only accepted. `heard`: words
    by action that are being written.
    """
    ids = [action.id for action in accepted]
    rows = Callback.objects.filter(action_id__in=ids).order_by("settled_at", "created_at")
    # One that says "done" under another reference than ours speaks of something else.
    rows = rows.exclude(word=Word.SUCCEEDED, did=Heard.CONTRADICTION).exclude(word=Word.PENDING)
    words = {row.action_id: row.word for row in rows} | dict(heard or {})
    if Word.FAILED in words.values():
        return NOT_DONE
    return SETTLED if all(action_id in words for action_id in ids) else IN_PROGRESS


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
    """The writes that the agent may make, itself or by the agents that it calls, and whether this
    run or a child of it has made them.
    """
    rows = [action for action in view.actions if not is_child(action)]
    rows += lineage.done_below(view)
    made = {action.tool for action in rows if _is_made(action)}
    reads = [row.result for row in rows if row.state == A.SUCCEEDED and not is_write(row)]
    found = []
    for name in _tools_of(view):
        spec = registry.get(name)
        if spec is not None and spec.effect.is_write:
            words = words_of(spec.name, declared=spec.claims)
            found.append(Effect(spec.name, words, spec.name in made, shown_in(reads, words)))
    return found


def _tools_of(view: View) -> list[str]:
    """The tools that the agent is offered, and those of the agents below it."""
    names = [offered["name"] for offered in view.agent.spec["tools"]]
    waiting = [call["agent"] for call in view.agent.spec.get("calls") or ()]
    known: set[str] = set()
    while waiting:
        agent = get_agent(waiting.pop())
        if agent is not None and agent.name not in known:
            known.add(agent.name)
            names += agent.tools
            waiting += [call.agent for call in agent.calls]
    return list(dict.fromkeys(names))


def _is_made(action: ActionJournal) -> bool:
    if action.state == A.SUCCEEDED:
        return True
    return action.state == A.VOIDED and action.same_as_id is not None


@dataclass(frozen=True, slots=True)
class Said:
    """Where a later word comes from: `actor` of the events, `source` of the evidence."""

    actor: str
    source: str
    detail: str


def hear_result(draft: Draft, *, action: ActionJournal, word: Word, heard: Heard, by: Said) -> None:
    """Draft what a downstream's word about an accepted write means for a run that has ended: the
    answer stands as it was given, the business outcome follows, and that of the runs above as well.
    Other words change nothing here.
    """
    final = word is Word.FAILED or (word is Word.SUCCEEDED and heard is Heard.EVIDENCE)
    if not (final and draft.run.is_terminal and action.state == A.SUCCEEDED):
        return
    accepted = _accepted_in(draft.run)
    if action.id in {row.id for row in accepted}:
        if draft.run.business_outcome in DERIVED:
            said = _later_word(accepted, {action.id: word})
            _draft_result(draft, said, source=by.source, detail=by.detail, action_id=action.id)
        if draft.run.parent_id is not None:
            draft.finally_(partial(_tell_above, draft.run, action.id, by))


def _accepted_in(run: Run) -> list[ActionJournal]:
    """The writes of a run and of those below it that a downstream has only accepted."""
    runs = [run.id, *lineage.below(run)]
    rows = ActionJournal.objects.filter(run_id__in=runs, state=A.SUCCEEDED)
    return [row for row in rows if is_write(row) and _only_accepted(row)]


def _tell_above(child: Run, action_id: UUID, by: Said) -> None:
    """In the transaction that stores the word: the outcome of each run above, from the child up, as
    when it ends. A callback is settled once, so this happens once.

    What a run above has planned may rest on the earlier word: it looks again.
    """
    if child.parent_id is None:
        return
    run, now = lock_run(child.parent_id)
    draft = Draft(run=run, now=now, event=EVENT, named=True)
    if not run.is_terminal:
        draft.set_run(wake_at=now, hinted_at=None)
    elif run.business_outcome in DERIVED:
        said = _later_word(_accepted_in(run))
        if said != run.business_outcome:
            draft.note(child=str(child.id))
            _draft_result(draft, said, source=by.source, detail=by.detail, action_id=action_id)
    if not draft.is_empty:
        write_rows(draft)
        finish(run, draft, actor=by.actor)
    if not run.is_terminal:
        hint_on_commit(run)
    _tell_above(run, action_id, by)


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
    with locked_run(run_id, actor=actor, event=EVENT) as draft:
        _draft_result(draft, said, source=where, detail=detail, action_id=action_id)
    return draft.run


def _draft_result(
    draft: Draft, said: str, *, source: str, detail: str, action_id: UUID | None
) -> None:
    before = draft.run.business_outcome
    draft.event = EVENT
    draft.note(before=before, after=said, source=source, detail=clean_text(detail, 500))
    draft.set_run(business_outcome=said)
    known = Evidence.objects.filter(action_id=action_id, source=source)
    if action_id is not None and known.exists():
        return  # one source says one thing about an action once; the event has the new word
    row = Evidence(
        id=new_id(),
        run_id=draft.run.id,
        turn=draft.run.turn,
        action_id=action_id,
        source=source,
        sha256=sha256_hex(detail),
        verified=True,
        observed_at=draft.now,
        created_at=draft.now,
    )
    draft.add(row)
