"""One run for each failpoint, its process killed there once with SIGKILL.

Whatever dies, and wherever: the run completes, the payment ledger has one refund, no event is
missing, and the next claim comes because a beat has stopped, not because a deadline has passed. How
long it takes is measured by `make faults`, on a machine that has nothing else to do.
"""

from __future__ import annotations

import itertools
import time
from http.client import HTTPException
from pathlib import Path

import pytest

from agentcore.failpoints import FAILPOINTS
from examples.refund_desk.rest_client import RestError, is_over, needs_somebody
from tests.world import World, uuid_of, wait_for

pytestmark = pytest.mark.fault

_orders = itertools.count(5000)

# Which story passes a point. A large refund waits for a person; a lost reply leads to a probe;
# a first kill after the send leads to a step without a call.
LOST_REPLY = ("probe.", "sweep.")
AFTER_A_KILL = ("step.",)
IN_THE_WEB = ("start_run.", "hint.", "decide.")
BY_PEOPLE = ("cancel.", "pause.", "resume.", "verdict.", "ask_probe.", "callback.")
"""Points that no refund passes by itself: `test_failpoints_of_people.py` has them."""
BY_A_DEADLINE = 30.0
"""Seconds after which a run is free at the earliest when nobody notices that its worker is dead:
the default of `AGENTCORE_CLAIM_MARGIN`. By the beat it takes about `DEAD_AFTER` (2 s)."""


@pytest.mark.requirement("R16", "R48", "R55", "R57", "R60", "R61", "R65", "R101")
@pytest.mark.parametrize("point", [p for p in FAILPOINTS if not p.startswith(BY_PEOPLE)])
def test_killed_once_at(world: World, point: str) -> None:
    order = f"ORD-{next(_orders)}"
    large = not point.startswith(LOST_REPLY + AFTER_A_KILL)
    if point.startswith(LOST_REPLY):
        world.fault(mode="commit_then_drop", times=1, order_id=order)
    if point.startswith(AFTER_A_KILL):
        world.arm("tool.after_call")
    fired = world.arm(point)
    script = _WRITE_ONLY if point.startswith(("tool.", *AFTER_A_KILL)) else ""

    amount = "80.00 EUR" if large else "20.00 EUR"
    run_id = _post_until_accepted(world, order, amount, script % (order, amount) if script else "")
    watch = _Claims(world, run_id, fired)
    if large:
        _follow(world, run_id, watch, waiting=True)
        _approve_until_decided(world, run_id)
    run = _follow(world, run_id, watch)

    assert fired.exists(), "the run never passed this point"
    assert run["status"] == "completed", run
    assert len(world.refunds(order)) == 1
    assert world.states(run_id)[-1] == ("refund_desk.submit_refund", "SUCCEEDED")
    seqs = world.event_seqs(run_id)
    assert seqs == list(range(1, len(seqs) + 1))
    # A second death is no business of the others any more: the run is driven alone, later.
    timed = not point.startswith(IN_THE_WEB + AFTER_A_KILL)
    if timed and watch.next_claim is not None:
        taken = watch.next_claim - fired.stat().st_ctime
        assert taken < BY_A_DEADLINE / 2, f"{taken:.1f} s"


class _Claims:
    """Sees when the run is claimed for the first time after the kill."""

    def __init__(self, world: World, run_id: str, fired: Path) -> None:
        self._world, self._run, self._fired = world, uuid_of(run_id), fired
        self._fence: int | None = None
        self.next_claim: float | None = None

    def look(self) -> None:
        self._world.heal()
        if self.next_claim is not None or not self._fired.exists():
            return
        ((fence,),) = self._world.query("SELECT fence FROM runs_run WHERE id = %s", self._run)
        if self._fence is None:
            self._fence = fence
        elif fence > self._fence:
            self.next_claim = time.time()


def _follow(
    world: World, run_id: str, watch: _Claims, *, waiting: bool = False
) -> dict[str, object]:
    """A reader who looks again when the web process died under the request: its hints leave from
    a thread, so it may be killed after the POST was answered."""
    enough = needs_somebody if waiting else is_over

    def look() -> dict[str, object] | None:
        watch.look()
        try:
            run = world.client.run(run_id)
        except (OSError, HTTPException):
            return None
        return run if enough(run) else None

    return wait_for(look, seconds=45, what=f"the end of {run_id}")


# The write is the first tool call, so that `tool.*` is passed by it and not by a read.
_WRITE_ONLY = (
    '{"script": [[{"tool": "refund_desk__submit_refund", "arguments":'
    ' {"order_id": "%s", "amount": "%s", "reason": "damaged"}}], ["done"]]}'
)


@pytest.mark.requirement("R57", "R61")
@pytest.mark.parametrize("point", [name for name in FAILPOINTS if name.startswith("tool.")])
def test_killed_once_at_a_read(world: World, point: str) -> None:
    """A lost read is simply made again; the whole conversation goes on."""
    order = f"ORD-{next(_orders)}"
    fired = world.arm(point)
    run_id = world.refund(order)
    run = _follow(world, run_id, _Claims(world, run_id, fired))

    assert fired.exists(), "the run never passed this point"
    assert run["status"] == "completed", run
    assert len(world.refunds(order)) == 1


def _post_until_accepted(world: World, order: str, amount: str, script: str) -> str:
    """A client that repeats its POST with the same key until it gets an answer."""

    def post() -> str | None:
        try:
            return world.refund(order, amount, message=script)
        except (OSError, HTTPException, RestError):
            return None

    return wait_for(post, seconds=30, what="an answer to the POST")


def _approve_until_decided(world: World, run_id: str) -> None:
    """A reviewer who clicks again when the page broke off."""

    def decide() -> bool:
        pending = world.approvals(run_id)
        if not pending:
            return True
        try:
            world.decide(pending[0], "APPROVE")
        except Exception:  # noqa: BLE001  (the web process died under the click)
            return False
        return True

    wait_for(decide, seconds=30, what="a decision")
