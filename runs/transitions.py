"""The one door: the only code that writes `state`, `revision` or `fence` of a run or an action.

A `Draft` is decided first, in memory, as a value; `write` then puts it into the open transaction:
rows, one revision step, one event. Nothing here calls anything outside the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, models, transaction

from agentcore import failpoints, lifecycle
from agentcore.ids import new_id
from agentcore.lifecycle import ActionState, IllegalTransition, RunState
from runs import sql
from runs.announcing import announce, outbox_of, wake_readers
from runs.at_once import together
from runs.dispatch import hint_on_commit
from runs.event_rows import event_of
from runs.models import ActionJournal, Attempt, Event, Run, Turn


def claim_margin() -> timedelta:
    """How long a holder may take between two of its transactions when no call is in flight."""
    return timedelta(seconds=settings.AGENTCORE_OPTIONS.claim_margin)


class StaleDraft(Exception):  # noqa: N818  (a verdict, not a fault)
    """A guard under the lock failed: the draft was computed from something that has changed."""


@dataclass
class Draft:
    """What one transaction will do to one run. Filled by steps and services, written by `write`.

    `run` and the actions passed in are changed in memory at once, so that the next step sees them;
    a draft that is not written must be thrown away together with them.
    """

    run: Run
    now: datetime
    event: str = "run.advanced"
    named: bool = False  # the event keeps this name whatever moved
    txn: UUID = field(default_factory=new_id)
    run_sets: dict[str, Any] = field(default_factory=dict)
    actions: dict[UUID, ActionJournal] = field(default_factory=dict)
    action_sets: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    action_base: dict[UUID, int] = field(default_factory=dict)
    row_sets: list[tuple[models.Model, dict[str, Any], dict[str, Any]]] = field(
        default_factory=list
    )
    new_rows: list[models.Model] = field(default_factory=list)
    effects: list[Callable[[], object]] = field(default_factory=list)
    closing: list[Callable[[], object]] = field(default_factory=list)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    first_state: str = ""

    def __post_init__(self) -> None:
        self.first_state = self.run.state

    @property
    def is_empty(self) -> bool:
        return not (self.run_sets or self.action_sets or self.row_sets or self.new_rows)

    # --- the run ---------------------------------------------------------------------------

    def move_run(self, to: RunState, *, cause: str = "", **fields: Any) -> None:
        """Move the run by one legal arrow; lease, `resume_to` and `ended_at` follow the state."""
        source = RunState(self.run.state)
        table_cause = lifecycle.check_run_move(source, to)
        resume_to = RunState(self.run.resume_to) if self.run.resume_to else None
        self.transitions.append(
            {
                "object": "run",  # the one that the event is of: its id stands there already
                "from": source,
                "to": to,
                "cause": cause or table_cause,
                "step": lifecycle.step_of(source, resume_to),
                "turn": fields.get("turn", self.run.turn),
            }
        )
        if to not in lifecycle.RUN_RESUMES:
            fields.setdefault("resume_to", None)
        if to in lifecycle.RUN_TERMINAL:
            fields["ended_at"] = self.now
        self.set_run(state=to, **fields)
        if to in lifecycle.RUN_UNLEASED:
            self.release()

    def set_run(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.run, name, value)
        self.run_sets.update(fields)

    def release(self) -> None:
        """Give the lease back; the work since the claim ended cleanly."""
        self.set_run(lease_worker=None, claim_token=None, call_deadline_at=None, claims=0)

    def take_lease(self, *, worker: UUID, token: UUID) -> None:
        """Take the lease with a new fence; the caller has checked that none is live."""
        self.set_run(
            lease_worker=worker,
            claim_token=token,
            fence=self.run.fence + 1,
            claims=self.run.claims + 1,
            call_deadline_at=self.now + claim_margin(),
            hinted_at=None,
            hints=0,
            started_at=self.run.started_at or self.now,
        )

    # --- actions and other rows ---------------------------------------------------------------

    def add_action(self, action: ActionJournal) -> None:
        """A new action; moves made before the write are folded into its insert."""
        self.actions[action.id] = action
        self.new_rows.append(action)
        cause = f"edited by {action.edited_by}" if action.edited_by else "proposed by the model"
        self._log_action(action, None, ActionState(action.state), cause)

    def move_action(
        self, action: ActionJournal, to: ActionState, *, cause: str = "", **fields: Any
    ) -> None:
        """Move an action by one legal arrow."""
        source = ActionState(action.state)
        table_cause = lifecycle.check_action_move(source, to)
        self._log_action(action, source, to, cause or table_cause)
        if to in lifecycle.ACTION_TERMINAL:
            fields["ended_at"] = self.now
        self.set_action(action, state=to, **fields)

    def set_action(self, action: ActionJournal, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(action, name, value)
        if action in self.new_rows:
            return
        self.actions[action.id] = action
        self.action_base.setdefault(action.id, action.revision)
        self.action_sets.setdefault(action.id, {}).update(fields)

    def _log_action(
        self, action: ActionJournal, source: ActionState | None, to: ActionState, cause: str
    ) -> None:
        self.transitions.append(
            {
                "object": "action",
                "id": str(action.id),
                "tool": action.tool,
                "turn": action.turn,
                "from": source,
                "to": to,
                "cause": cause,
            }
        )

    def log(self, **entry: Any) -> None:
        """One more entry of the event: a change of another table (approval, attempt)."""
        self.transitions.append(entry)

    def add(self, *rows: models.Model) -> None:
        self.new_rows.extend(rows)

    def set_row(
        self, row: Turn | Attempt, *, guard: dict[str, Any] | None = None, **fields: Any
    ) -> None:
        """Change a turn or an attempt; `guard` columns must still hold these values."""
        for name, value in fields.items():
            setattr(row, name, value)
        if row not in self.new_rows:
            self.row_sets.append((row, guard or {}, fields))

    def also(self, effect: Callable[[], object]) -> None:
        """A guarded write of another module, made in the same transaction after the actions."""
        self.effects.append(effect)

    def finally_(self, effect: Callable[[], object]) -> None:
        """Something to do in `locked_run`'s transaction once all else is written, also nothing."""
        self.closing.append(effect)

    def note(self, **data: Any) -> None:
        self.notes.update(data)


# --- writing, inside an open transaction -------------------------------------------------------


TAKE = (
    "UPDATE runs_run SET lease_worker = %s, claim_token = %s, fence = fence + 1, claims = 1,"
    " call_deadline_at = clock_timestamp() + make_interval(secs => %s), hinted_at = NULL,"
    " hints = 0, started_at = coalesce(started_at, clock_timestamp()), revision = revision + 1"
)
"""`take_lease` of a run that nobody was lost on, as SQL: it needs no look at the row first."""


def lock_run(run_id: UUID) -> tuple[Run, datetime]:
    """The run row, locked, and the database clock. Raises `Run.DoesNotExist`."""
    # The clock is read outside the locking query: inside it could be read before a wait.
    columns = sql.columns_of(Run)
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH locked AS MATERIALIZED (SELECT {columns} FROM runs_run WHERE id = %s"  # noqa: S608
            " FOR NO KEY UPDATE) SELECT *, clock_timestamp() FROM locked",
            [run_id],
        )
        found = cursor.fetchone()
    if found is None:
        raise Run.DoesNotExist(f"no run {run_id}")
    return sql.row_of(Run, found[:-1]), found[-1]


def write_rows(draft: Draft, *, after: Draft | None = None) -> None:
    """Everything of a draft but the run row and the event. Raises `StaleDraft`. `after` is the
    draft written before it in the same transaction, which has moved the revisions of the actions it
    touched. Memory is not changed: the transaction may be tried again.
    """
    _insert_kind(draft, Turn)
    _insert_kind(draft, ActionJournal)
    for action_id, sets in draft.action_sets.items():
        base = draft.action_base[action_id]
        if after is not None and action_id in after.action_sets:
            base += 1
        where = {"id": action_id, "revision": base}
        if sql.update(ActionJournal, where=where, sets={**sets, "revision": base + 1}) != 1:
            raise StaleDraft(f"action {action_id} is no longer at revision {base}")
    for effect in draft.effects:
        effect()
    for row, guard, fields in draft.row_sets:
        if sql.update(type(row), where={"id": row.pk, **guard}, sets=fields) != 1:
            raise StaleDraft(f"{type(row).__name__} {row.pk}: {', '.join(guard)} has changed")
    written = (Turn, ActionJournal)
    for kind in dict.fromkeys(type(row) for row in draft.new_rows):
        if kind not in written:
            _insert_kind(draft, kind)


def _insert_kind(draft: Draft, kind: type[models.Model]) -> None:
    sql.insert([row for row in draft.new_rows if type(row) is kind])


def write_at_once(run: Run, *drafts: Draft, actor: str, held: dict[str, Any]) -> RunEnd | None:
    """All of `drafts`, the run row and the event as one statement, first the run row: a transaction
    of its own, or the last writes of the open one, which it commits.

    None, and nothing is written, when they do not fit into one or a guard did not hold. `run`, the
    row in memory, is changed by the answer's `carry`; `held` are columns of it that must still have
    these values. After an error of the connection nobody knows whether it was committed.
    """
    ready = together(drafts)
    if ready is None:
        return None
    end = _end_of(run, drafts, actor)
    writes = sql.Together()
    writes.update(Run, where={"id": run.id, "revision": run.revision, **held}, sets=end.sets)
    ready.join(writes)
    if end.event is not None:
        writes.insert([end.event])
    if _wakes_others(run, end):
        return end if _written_and_told(run, end, writes, actor) else None
    if not writes.run_to_the_end(last=outbox_of(run, end.event)):
        return None
    wake_readers(run, end.event)
    return end


def _wakes_others(run: Run, end: RunEnd) -> bool:
    """Whether it ends, and its parent or the next of its session may go on."""
    return "ended_at" in end.sets and (run.parent_id or run.session_id) is not None


def _written_and_told(run: Run, end: RunEnd, writes: sql.Together, actor: str) -> bool:
    """The end of a run, and the others that it wakes, in one transaction."""
    with transaction.atomic(durable=True):
        if not writes.run():
            transaction.set_rollback(True)
            return False
        announce(run, end.event)
        _tell_parent(run, end, actor=actor)
    return True


def finish(run: Run, *drafts: Draft, actor: str) -> None:
    """The run row and the one event of this transaction: the drafts' changes, revision + 1.

    `run` carries the revision and event head under the lock. Raises `StaleDraft`.
    """
    end = _end_of(run, drafts, actor)
    if end.event is not None:
        sql.insert([end.event])
    if sql.update(Run, where={"id": run.id, "revision": run.revision}, sets=end.sets) != 1:
        raise StaleDraft(f"run {run.id} is no longer at revision {run.revision}")
    _tell_parent(run, end, actor=actor)  # may fail, so memory comes after it
    end.carry(run)
    announce(run, end.event)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a transaction leaves the run row, and its event."""

    sets: dict[str, Any]
    event: Event | None

    def carry(self, run: Run) -> None:
        """Into memory."""
        for name, value in self.sets.items():
            setattr(run, name, value)


def _end_of(run: Run, drafts: Sequence[Draft], actor: str) -> RunEnd:
    sets: dict[str, Any] = {}
    moves: list[dict[str, Any]] = []
    notes: dict[str, Any] = {}
    for draft in drafts:
        sets.update(draft.run_sets)
        moves += draft.transitions
        notes.update(draft.notes)
    _check_path(drafts[0].first_state, sets.get("state", drafts[0].first_state))
    sets["revision"] = run.revision + 1
    event: Event | None = None
    if moves or notes:
        event = event_of(run, drafts, actor=actor, data={"transitions": moves, **notes})
        sets.update(event_seq=event.seq, event_head=event.hash)
    return RunEnd(sets, event)


def _tell_parent(run: Run, end: RunEnd, *, actor: str) -> None:
    """In the transaction that ends a child: its parent is due, and what was planned for it stale.

    The only place that locks two runs, always the child first. An error of the broker is none here.
    """
    if run.parent_id is None or "ended_at" not in end.sets:
        return
    parent, now = lock_run(run.parent_id)
    draft = Draft(run=parent, now=now, event="run.child_ended", named=True)
    draft.log(object="child", id=str(run.id), to=end.sets["state"], cause="its run ended")
    draft.set_run(wake_at=now, hinted_at=None)
    finish(parent, draft, actor=actor)
    hint_on_commit(parent)


_RUN_PAIRS = lifecycle.run_pairs()


def _check_path(first: str, last: str) -> None:
    if first != last and (first, last) not in _RUN_PAIRS:
        raise IllegalTransition(f"run: {first} -> {last} may not be written at once")


# --- whole transactions for services ------------------------------------------------------------


@contextmanager
def locked_run(run_id: UUID, *, actor: str, event: str, point: str = "") -> Iterator[Draft]:
    """One durable transaction on one run: lock, yield a draft, write it at the end.

    An empty draft writes nothing. An exception rolls everything back. `point` names the failpoints
    on both sides of the commit.
    """
    with transaction.atomic(durable=True):
        run, now = lock_run(run_id)
        draft = Draft(run=run, now=now, event=event, named=True)
        yield draft
        if not draft.is_empty:
            write_rows(draft)
            finish(run, draft, actor=actor)
        for effect in draft.closing:
            effect()
        if point:
            failpoints.hit(f"{point}.before_commit")
    if point:
        failpoints.hit(f"{point}.after_commit")


def settle_revisions(*drafts: Draft) -> None:
    """After the commit: the actions in memory carry the revisions that were written."""
    for draft in drafts:
        for action_id in draft.action_sets:
            draft.actions[action_id].revision += 1


def create_run(run: Run, *, actor: str, listened: bool = True) -> None:
    """Insert a new run and its first event, inside the caller's transaction.

    Not `listened`: it was seen that the tenant has no webhook endpoint.
    """
    draft = Draft(run=run, now=run.created_at, event="run.created")
    draft.log(object="run", to=RunState.QUEUED, cause="requested", **{"from": None})
    event = event_of(run, (draft,), actor=actor, data={"transitions": draft.transitions})
    run.revision, run.event_seq, run.event_head = run.revision + 1, event.seq, event.hash
    sql.insert([run], [event])
    announce(run, event, listened=listened)
