"""What arrives late is never dropped: it settles what is open and speaks up against what is not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from agentcore.lifecycle import ACTION_TERMINAL, ActionState
from agentcore.reconciling import Ground, Verdict
from agentcore.values import AttemptOutcome, Found, OutcomeKind
from approvals.models import Approval as Asked
from runs import journal, services, transitions
from runs.calls import _probe_outcome
from runs.journal import Result
from runs.models import Event, Run
from tests.factories import real_decider
from tests.runs.acting import (
    Downstream,
    action,
    actions,
    attempts,
    go,
    incidents,
    later,
    pass_time,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tests.runs.rows import unguarded
from tests.unknown import GRACE
from tools import Approval

A, O = ActionState, OutcomeKind  # noqa: E741
OPEN = (A.RUNNING, A.UNKNOWN, A.PENDING, A.NEEDS_HUMAN)
FINAL = (A.SUCCEEDED, A.FAILED, A.ABANDONED)

EXPECTED: dict[tuple[ActionState, OutcomeKind], ActionState] = {
    **{(state, O.SUCCESS): A.SUCCEEDED for state in OPEN},
    (A.RUNNING, O.PENDING): A.PENDING,
    (A.UNKNOWN, O.PENDING): A.PENDING,
    (A.PENDING, O.PENDING): A.PENDING,
    (A.NEEDS_HUMAN, O.PENDING): A.PENDING,
    (A.RUNNING, O.AMBIGUOUS): A.UNKNOWN,
    (A.UNKNOWN, O.AMBIGUOUS): A.UNKNOWN,
    (A.PENDING, O.AMBIGUOUS): A.PENDING,
    (A.NEEDS_HUMAN, O.AMBIGUOUS): A.NEEDS_HUMAN,
    # Its only attempt had no effect after all: that is proof, except against the downstream's word.
    **{(state, kind): A.FAILED for state in OPEN for kind in (O.REFUSED, O.NO_EFFECT)},
    (A.PENDING, O.REFUSED): A.PENDING,
    (A.PENDING, O.NO_EFFECT): A.PENDING,
    (A.RUNNING, O.NO_EFFECT): A.RUNNING,  # tries are left
    **{(state, kind): state for state in FINAL for kind in O},
}
INCIDENT = {
    (A.SUCCEEDED, O.REFUSED),
    (A.SUCCEEDED, O.NO_EFFECT),
    *((state, kind) for state in (A.FAILED, A.ABANDONED) for kind in (O.SUCCESS, O.PENDING)),
}


def _in_state(shop: Downstream, state: ActionState) -> UUID:
    """A write in `state` whose one attempt has no outcome yet: its process is gone."""
    run = propose_run((write_tool(shop), {"what": "a"}))
    shop.during = _die
    with pytest.raises(KeyboardInterrupt):
        go(run)
    shop.during = None
    if state is not A.RUNNING:
        row = action(run)
        with unguarded():
            attempts_of = row.attempts.all()
            attempts_of.update(lost_at=row.created_at)
            ended = row.created_at if state in ACTION_TERMINAL else None
            type(row).objects.filter(pk=row.pk).update(state=state, ended_at=ended)
    return run


def _die() -> None:
    raise KeyboardInterrupt


def _arrive(run_id: UUID, outcome: AttemptOutcome, *, kind: str = "TOOL") -> None:
    """The outcome of the first attempt, recorded by somebody who holds no lease."""
    attempt = attempts(action(run_id), kind)[0]
    with transitions.transaction.atomic(durable=True):
        run, now = transitions.lock_run(run_id)
        draft = journal.draft_truth(run, now, [Result(attempt.id, outcome)], late=True)
        transitions.write_rows(draft)
        transitions.finish(run, draft, actor="worker:late")


@pytest.mark.requirement("R110", "R116")
@pytest.mark.parametrize("state", [*OPEN, *FINAL])
def test_every_late_outcome_against_every_state(shop: Downstream, state: ActionState) -> None:
    for kind in OutcomeKind:
        _against(shop, state, kind)


def _against(shop: Downstream, state: ActionState, kind: OutcomeKind) -> None:
    run = _in_state(shop, state)
    _arrive(run, AttemptOutcome(kind, result={"id": "r"} if kind is O.SUCCESS else None))

    row = action(run)
    (attempt,) = attempts(row)
    assert (attempt.outcome, attempt.late) == (kind, True)
    assert row.state == EXPECTED[state, kind]
    assert incidents(run) == (["CONTRADICTION"] if (state, kind) in INCIDENT else [])
    events = Event.objects.filter(run_id=run).order_by("seq").values_list("seq", flat=True)
    assert list(events) == list(range(1, len(events) + 1))


@pytest.mark.requirement("R110")
def test_a_second_success_with_another_reference_is_an_incident(shop: Downstream) -> None:
    cases = [
        ("ref-1", "ref-1", []),
        ("ref-1", "", []),
        ("ref-1", "ref-2", ["CONTRADICTION"]),
        ("", "ref-2", []),  # who settled it named none, so nothing contradicts
    ]
    for known, reference, expected in cases:
        run = _in_state(shop, A.SUCCEEDED)
        with unguarded():
            row = action(run)
            type(row).objects.filter(pk=row.pk).update(downstream_ref=known)
        _arrive(run, AttemptOutcome(O.SUCCESS, {"id": "r"}, reference=reference))
        assert incidents(run) == expected


@pytest.mark.requirement("R110")
@pytest.mark.parametrize("state", [*OPEN, *FINAL])
def test_a_late_probe_that_found_it_counts_too(shop: Downstream, state: ActionState) -> None:
    run = _in_state(shop, A.UNKNOWN)
    shop.during = None
    pass_time(run, minutes=1)
    shop.answers = [Found({"id": "r"}, "ref-9")]
    original, shop.ask = shop.ask, lambda _: _die()  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        go(run)
    shop.ask = original  # type: ignore[method-assign]
    row = action(run)
    with unguarded():
        ended = row.created_at if state in ACTION_TERMINAL else None
        type(row).objects.filter(pk=row.pk).update(state=state, ended_at=ended)
    _arrive(run, _probe_outcome(Found({"id": "r"}, "ref-9")), kind="PROBE")

    final = state in FINAL
    assert states(run) == [state if final else "SUCCEEDED"]
    against = final and state is not A.SUCCEEDED
    assert incidents(run) == (["CONTRADICTION"] if against else [])
    assert attempts(row, "PROBE")[0].outcome == "SUCCESS"


# --- four ways to be late, each through the driver that made the call ---------------------------


def _late_success(shop: Downstream, run: UUID, meanwhile: Any) -> None:
    """Drive; while the downstream works on the request, `meanwhile` happens."""

    def once() -> None:
        shop.during = None
        meanwhile()

    shop.during = once
    go(run)


@pytest.mark.requirement("R60", "R110")
def test_a_success_after_the_lease_was_lost(shop: Downstream) -> None:
    run = propose_run((write_tool(shop), {"what": "a"}))

    def another_claims() -> None:
        pass_time(run, minutes=1)  # the call's time is over, so the lease lapses
        go(run)
        assert states(run) == ["UNKNOWN"]

    _late_success(shop, run, another_claims)

    (attempt,) = attempts(action(run))
    assert (attempt.outcome, attempt.late) == ("SUCCESS", True)
    assert attempt.lost_at is not None
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 1)
    go(run)
    assert state_of(run) == "OBSERVING"


@pytest.mark.requirement("R110")
def test_a_success_after_the_approval_of_another_action(shop: Downstream) -> None:
    pay = write_tool(shop)
    asked = write_tool(shop, name="send", approval=Approval.always(role="boss"))
    run = propose_run((pay, {"what": "a"}), (asked, {"what": "b"}))

    def approve() -> None:
        asked = Asked.objects.get(run_id=run)
        services.decide_approval(
            approval_id=asked.id,
            params_hash=asked.params_hash,
            decision="APPROVE",
            decider=real_decider("user:boss", roles=("boss",)),
        )

    _late_success(shop, run, approve)
    assert states(run) == ["SUCCEEDED", "SUCCEEDED"]
    assert len(shop.effects) == 2
    assert incidents(run) == []


@pytest.mark.requirement("R11", "R110")
def test_a_success_after_a_cancel(shop: Downstream) -> None:
    first, second = write_tool(shop), write_tool(shop, name="send")
    run = propose_run((first, {"what": "a"}), (second, {"what": "b"}))
    _late_success(shop, run, lambda: services.cancel_run(run_id=run, actor="user:1"))

    assert states(run) == ["SUCCEEDED", "VOIDED"]
    assert state_of(run) == "CANCELLED"
    assert len(shop.effects) == 1


@pytest.mark.requirement("R110")
def test_a_success_after_a_human_verdict(shop: Downstream) -> None:
    run = propose_run((write_tool(shop), {"what": "a"}))

    def judge() -> None:
        pass_time(run, minutes=1)
        go(run)
        row = action(run)
        services.record_verdict(
            action_id=row.id,
            action_revision=row.revision,
            verdict=Verdict.EFFECT_DOES_NOT_EXIST,
            person=GRACE,
            evidence_text="they say that the key is used up",
            ground=Ground.KEY_CLOSED,
        )

    _late_success(shop, run, judge)

    (attempt,) = attempts(action(run))
    assert (attempt.outcome, attempt.late) == ("SUCCESS", True)
    assert states(run) == ["FAILED"], "a verdict stands"
    assert incidents(run) == ["CONTRADICTION"]


@pytest.mark.requirement("R110")
def test_evidence_about_a_run_that_has_ended_is_kept(shop: Downstream) -> None:
    run = _in_state(shop, A.FAILED)
    services.cancel_run(run_id=run, actor="user:1")
    later(run, minutes=1)
    assert Run.objects.get(pk=run).is_terminal
    _arrive(run, AttemptOutcome(O.SUCCESS, {"id": "r"}))
    assert incidents(run) == ["CONTRADICTION"]
    assert [row.state for row in actions(run)] == ["FAILED"]
