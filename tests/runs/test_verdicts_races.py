"""Several at once, on real connections: one verdict stands, one callback counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections, transaction

from agentcore.lifecycle import ActionState
from agentcore.reconciling import Verdict
from runs.callbacks import settle_parked
from runs.models import Event, Incident, KeyOwner
from runs.reconcile_models import Callback, Reconciliation
from runs.reconciliations import Recorded
from runs.services import receive_callback
from runs.transitions import lock_run
from runs.verdict_errors import VerdictError
from tests.runs.callback_support import body_of, sources
from tests.runs.test_verdicts_record import say
from tests.unknown import GRACE, HEIDI, Unknown, make_sent

pytestmark = pytest.mark.django_db(transaction=True)

A, V = ActionState, Verdict


def at_once(made: Unknown, *calls: Callable[[], Any]) -> list[Any]:
    """Every call in a thread of its own; all wait for the run's lock before it is let go."""
    start = threading.Barrier(len(calls) + 1)

    def run(call: Callable[[], Any]) -> Any:
        try:
            start.wait(10)
            return call()
        except VerdictError as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        with transaction.atomic():
            lock_run(made.run.pk)
            futures = [pool.submit(run, call) for call in calls]
            start.wait(10)
        return [future.result(30) for future in futures]


def whole(made: Unknown) -> None:
    """Every change has its event, without gaps."""
    seqs = list(Event.objects.filter(run=made.run).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))
    assert made.reload().run.event_seq == len(seqs)


@pytest.mark.requirement("R65", "R107")
def test_two_people_at_once_and_one_verdict_stands() -> None:
    made = make_sent()
    results = at_once(
        made,
        lambda: say(made, V.EFFECT_EXISTS, GRACE),
        lambda: say(made, V.EFFECT_DOES_NOT_EXIST, HEIDI),
    )
    (done,) = [result for result in results if isinstance(result, Recorded)]
    (refused,) = [result for result in results if isinstance(result, VerdictError)]
    assert (refused.code, refused.status) == ("action_not_unknown", 409)
    assert Reconciliation.objects.get().verdict == done.verdict
    assert made.reload().action.state == done.action_state
    released = KeyOwner.objects.get(action=made.action).released_at
    assert (released is not None) is (done.verdict is V.EFFECT_DOES_NOT_EXIST)
    whole(made)


def test_a_double_click_on_two_connections() -> None:
    made = make_sent()
    results = at_once(made, *[lambda: say(made, V.ABANDON)] * 3)
    assert sorted(result.already for result in results) == [False, True, True]
    assert Reconciliation.objects.count() == 1
    whole(made)


def test_two_people_ask_for_the_same_resend_at_once() -> None:
    """One asks; the other has not seen it, so the page is shown to them again."""
    made = make_sent()
    results = at_once(
        made,
        lambda: say(made, V.RESEND_SAME_KEY, GRACE),
        lambda: say(made, V.RESEND_SAME_KEY, HEIDI),
    )
    codes = [result.code for result in results if isinstance(result, VerdictError)]
    assert codes == ["action_changed"]
    assert Reconciliation.objects.get().agrees_with_id is None


@pytest.mark.requirement("R52", "R65")
def test_one_callback_delivered_five_times_at_once_counts_once() -> None:
    made = make_sent()
    sent = body_of(made, reference="rf_1")
    with sources():
        results = at_once(made, *[lambda: receive_callback(**sent)] * 5, settle_parked)
    assert {result.did for result in results[:5]} == {"SUCCEED"}
    assert sum(not result.repeated for result in results[:5]) == 1
    assert Callback.objects.get().did == "SUCCEED"
    assert made.reload().action.state == A.SUCCEEDED
    assert Event.objects.filter(type="action.reconciled").count() == 1
    whole(made)


@pytest.mark.requirement("R110")
def test_a_verdict_against_a_callback() -> None:
    """Whoever is first wins; the other is refused (a person) or an incident (a downstream)."""
    made = make_sent()
    sent = body_of(made, reference="rf_1")
    with sources():
        said, told = at_once(
            made, lambda: say(made, V.EFFECT_DOES_NOT_EXIST), lambda: receive_callback(**sent)
        )
    made.reload()
    if isinstance(said, VerdictError):
        assert (made.action.state, told.did) == (A.SUCCEEDED, "SUCCEED")
        assert not Incident.objects.exists()
    else:
        assert (made.action.state, told.did) == (A.FAILED, "CONTRADICTION")
        assert Incident.objects.count() == 1
    whole(made)
