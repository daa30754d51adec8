"""What becomes of a write whose outcome was not received, by its contract."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agentcore.values import (
    Conflict,
    Inconclusive,
    Key,
    Natural,
    NoContract,
    NotDone,
    Pending,
    Query,
)
from tests.runs.acting import (
    Downstream,
    action,
    attempts,
    decide,
    go,
    incidents,
    later,
    propose_run,
    state_of,
    states,
    write_tool,
)
from tools import Absent, Approval, Preview

SETTLE = timedelta(seconds=60)
QUERY = Query(settle=SETTLE)
KEY = Key(retention=timedelta(days=2))


def _keys(shop: Downstream) -> set[str]:
    return {ctx.idempotency_key for ctx in shop.sent}


@pytest.mark.requirement("R49", "R52", "R53")
def test_a_key_write_is_asked_about_and_sent_again_with_the_same_key(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    pay = write_tool(shop, contract=KEY)
    run = propose_run((pay, {"what": "a"}))

    go(run)
    assert (state_of(run), states(run)) == ("RECONCILING", ["UNKNOWN"])
    assert (len(shop.sent), shop.asked) == (1, [])
    go(run)
    assert shop.asked == [], "not before its time"

    later(run, seconds=6)
    assert states(run) == ["SUCCEEDED"]
    assert (len(shop.asked), len(shop.sent), len(shop.effects)) == (1, 2, 1)
    assert len(_keys(shop)) == 1
    first, second = attempts(action(run))
    assert (first.idempotency_key, first.fingerprint) == (
        second.idempotency_key,
        second.fingerprint,
    )


@pytest.mark.requirement("R49", "R52")
def test_a_found_effect_is_not_sent_again(shop: Downstream) -> None:
    shop.behaves = ["lost"]
    run = propose_run((write_tool(shop, contract=KEY), {"what": "a"}))
    go(run)
    later(run, seconds=6)

    row = action(run)
    assert (row.state, row.downstream_ref) == ("SUCCEEDED", f"ref-{row.idempotency_key[-8:]}")
    assert (len(shop.sent), len(shop.effects)) == (1, 1)


@pytest.mark.requirement("R52")
def test_a_key_without_a_probe_is_sent_again_inside_its_retention_only(shop: Downstream) -> None:
    shop.behaves = ["dropped", "dropped"]
    run = propose_run((write_tool(shop, contract=KEY, probe=False), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    assert (states(run), len(shop.sent)) == (["UNKNOWN"], 2)

    later(run, hours=23)
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 3)


@pytest.mark.parametrize("probe", [True, False])
def test_after_the_retention_nothing_is_sent_under_that_key(shop: Downstream, probe: bool) -> None:
    shop.behaves = ["dropped"]
    short = Key(retention=timedelta(minutes=2))
    run = propose_run((write_tool(shop, contract=short, probe=probe), {"what": "a"}))
    go(run)
    later(run, minutes=3)
    if probe:  # it is looked up, as a write that can only be looked up
        assert states(run) == ["UNKNOWN"]
        later(run, minutes=3)
        later(run, minutes=3)
        assert action(run).reason == "ABSENT_NOT_FENCED"
    else:
        assert action(run).reason == "RETENTION_OVER"
    assert (states(run), len(shop.sent)) == (["NEEDS_HUMAN"], 1)


def test_a_natural_write_is_sent_again_with_the_same_precondition(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    shop.dedupes = False
    versions = iter(["7", "8", "9"])
    put = write_tool(
        shop,
        contract=Natural(),
        probe=False,
        preview=lambda: Preview("", version=next(versions)),
        resource=lambda *_: "door:1",
    )
    run = propose_run((put, {"what": "a"}))
    go(run)
    later(run, seconds=6)

    assert states(run) == ["SUCCEEDED"]
    assert [ctx.resource_version for ctx in shop.sent] == ["7", "7"]
    assert next(versions) == "8", "no fresh version is taken for the resend"


@pytest.mark.parametrize("probe", [True, False])
def test_a_refused_precondition_is_evidence_for_a_probe_not_a_verdict(
    shop: Downstream, probe: bool
) -> None:
    """The first send may be what moved the resource on."""
    shop.behaves = ["lost", "precondition"]
    shop.answers = [Absent()] if probe else []
    run = propose_run((write_tool(shop, contract=Natural(), probe=probe), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    assert (states(run), len(shop.sent)) == (["UNKNOWN"], 2)
    later(run, seconds=31)

    if probe:
        assert states(run) == ["SUCCEEDED"]
    else:
        assert (states(run), action(run).reason) == (["NEEDS_HUMAN"], "PRECONDITION_FAILED")
    assert len(shop.sent) == 2


@pytest.mark.requirement("R116")
def test_a_refusal_after_an_ambiguous_send_does_not_fail_the_action(shop: Downstream) -> None:
    shop.behaves = ["lost", "refused"]
    shop.answers = [Inconclusive("lagging"), Absent(), Inconclusive("lagging")]
    run = propose_run((write_tool(shop, contract=KEY), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    later(run, seconds=6)
    assert (states(run), len(shop.sent)) == (["UNKNOWN"], 2)
    later(run, seconds=31)
    later(run, seconds=121)
    assert states(run) == ["SUCCEEDED"], "found: the first send had worked"


def _query(shop: Downstream, **options: Any) -> Any:
    shop.dedupes = False
    return write_tool(shop, contract=QUERY, **options)


def _see_it_absent_twice(run: Any) -> None:
    later(run, seconds=70)
    later(run, seconds=61)


@pytest.mark.requirement("R52")
def test_absence_counts_after_the_settle_window_twice_with_time_between(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    run = propose_run((_query(shop, fenced_sends=True), {"what": "a"}))
    go(run)

    for _ in range(3):  # inside the window an absence says nothing, however often
        later(run, seconds=15)
        assert (states(run), len(shop.sent)) == (["UNKNOWN"], 1)
    later(run, seconds=16)  # 61 s: the first that counts
    assert (states(run), len(shop.sent)) == (["UNKNOWN"], 1)
    later(run, seconds=50)
    assert len(shop.sent) == 1, "too close to the first one"
    later(run, seconds=11)

    assert (states(run), len(shop.sent), len(shop.effects)) == (["SUCCEEDED"], 2, 1)
    assert len(_keys(shop)) == 1, "the same reference"


def test_a_lost_send_settles_from_the_last_time_at_which_it_could_act(shop: Downstream) -> None:
    """Its process is gone without a word: 5 s to send, 10 s to answer, then the window."""
    run = propose_run((_query(shop, fenced_sends=True), {"what": "a"}))
    shop.during = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        go(run)
    shop.during = None
    later(run, seconds=61)  # the lease of the dead lapses; the attempt is lost
    assert states(run) == ["UNKNOWN"]
    later(run, seconds=12)
    later(run, seconds=61)
    assert len(shop.sent) == 1, "the window runs from 15 s after the start"
    later(run, seconds=61)
    assert (states(run), len(shop.sent)) == (["SUCCEEDED"], 2)


def test_one_new_attempt_after_proven_absence_and_not_two(shop: Downstream) -> None:
    shop.behaves = ["dropped", "dropped"]
    run = propose_run((_query(shop, fenced_sends=True), {"what": "a"}))
    go(run)
    _see_it_absent_twice(run)
    assert (states(run), len(shop.sent)) == (["UNKNOWN"], 2)
    _see_it_absent_twice(run)
    assert (states(run), len(shop.sent)) == (["NEEDS_HUMAN"], 2)
    assert action(run).reason == "ATTEMPTS_USED"


def test_a_tool_that_sends_past_the_transport_is_not_sent_again_by_itself(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    run = propose_run((_query(shop), {"what": "a"}))
    go(run)
    _see_it_absent_twice(run)
    assert (states(run), len(shop.sent)) == (["NEEDS_HUMAN"], 1)
    assert action(run).reason == "ABSENT_NOT_FENCED"


@pytest.mark.parametrize("probe", [True, False])
def test_without_a_contract_a_person_is_asked_at_once(shop: Downstream, probe: bool) -> None:
    shop.behaves = ["dropped"]
    pay = write_tool(
        shop, contract=NoContract(), probe=probe, approval=Approval.always(role="boss")
    )
    run = propose_run((pay, {"what": "a"}))
    go(run)
    decide(run)
    go(run)
    assert (state_of(run), states(run)) == ("RECONCILING", ["NEEDS_HUMAN"])
    later(run, days=20)
    assert (len(shop.sent), shop.asked) == (1, [])


def test_without_a_contract_also_a_provable_no_send_is_the_only_attempt(shop: Downstream) -> None:
    shop.behaves = ["not_sent"]
    pay = write_tool(shop, contract=NoContract(), approval=Approval.always(role="boss"))
    run = propose_run((pay, {"what": "a"}))
    go(run)
    decide(run)
    go(run)
    later(run, seconds=60)
    assert (states(run), len(shop.sent)) == (["FAILED"], 1)


@pytest.mark.requirement("R51")
@pytest.mark.parametrize("said", ["conflict", "other fingerprint"])
def test_a_conflict_goes_to_a_person_with_an_incident(shop: Downstream, said: str) -> None:
    from tools import Found

    shop.behaves = ["dropped"]
    other = Found({"id": "x"}, "x", fingerprint_matches=False)
    shop.answers = [Conflict("another amount") if said == "conflict" else other]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    assert (states(run), action(run).reason) == (["NEEDS_HUMAN"], "CONFLICT")
    assert (incidents(run), len(shop.sent)) == (["CONFLICT"], 1)


def test_what_cannot_be_found_out_in_a_day_goes_to_a_person_and_never_fails(
    shop: Downstream,
) -> None:
    shop.behaves = ["dropped"]
    shop.answers = [Inconclusive("down")] * 50
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    later(run, hours=23)
    assert states(run) == ["UNKNOWN"]
    later(run, hours=1)
    assert (states(run), action(run).reason) == (["NEEDS_HUMAN"], "TOO_OLD")


def test_probes_back_off(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    shop.answers = [Inconclusive("down")] * 50
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    for seconds, asked in ((4, 0), (2, 1), (3, 1), (3, 2), (20, 2), (12, 3), (29, 3), (2, 4)):
        later(run, seconds=seconds)
        assert len(shop.asked) == asked


@pytest.mark.requirement("R31", "R52")
def test_accepted_is_pending_until_the_downstream_says_its_final_word(shop: Downstream) -> None:
    shop.behaves = ["accepted", "accepted"]
    shop.answers = [Pending("queued"), Absent(), Inconclusive("down"), NotDone("card closed")]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    assert (state_of(run), states(run)) == ("RECONCILING", ["PENDING"])
    for _ in range(3):
        later(run, seconds=31)
        assert (states(run), len(shop.sent)) == (["PENDING"], 1)
    later(run, seconds=31)
    row = action(run)
    assert (row.state, row.error_class, row.detail) == (
        "FAILED",
        "not_done_downstream",
        "card closed",
    )
    assert state_of(run) == "OBSERVING"


def test_pending_ends_by_found_or_with_a_person(shop: Downstream) -> None:
    shop.behaves = ["accepted"]
    found = propose_run((write_tool(shop), {"what": "a"}))
    go(found)
    shop.effects.append((action(found).idempotency_key or "", "a"))
    later(found, seconds=6)
    assert states(found) == ["SUCCEEDED"]

    shop.behaves = ["accepted"]
    old = propose_run((write_tool(shop, probe=False), {"what": "b"}))
    go(old)
    later(old, hours=23)
    assert states(old) == ["PENDING"]
    later(old, hours=2)
    assert (states(old), action(old).reason) == (["NEEDS_HUMAN"], "TOO_OLD")


def test_still_at_it_turns_unknown_into_pending(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    shop.answers = [Pending("working")]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    assert states(run) == ["PENDING"]


def test_the_downstreams_final_no_settles_an_unknown_write(shop: Downstream) -> None:
    shop.behaves = ["dropped"]
    shop.answers = [NotDone("refused at 12:00")]
    run = propose_run((write_tool(shop), {"what": "a"}))
    go(run)
    later(run, seconds=6)
    assert (states(run), action(run).error_class) == (["FAILED"], "not_done_downstream")


def test_sends_are_limited(shop: Downstream) -> None:
    shop.behaves = ["dropped"] * 9
    run = propose_run((write_tool(shop, contract=KEY, probe=False), {"what": "a"}))
    go(run)
    for _ in range(8):
        later(run, hours=2)
    assert (states(run), action(run).reason) == (["NEEDS_HUMAN"], "ATTEMPTS_USED")
    assert len(shop.sent) == 5
