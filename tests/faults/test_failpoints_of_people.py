"""A web process killed on both sides of each commit of a person or of a downstream.

Whoever was cut off does the same again until it is answered, as people and HTTP clients do. Then
it was done once: one event of it, one verdict, at most one effect, and the run goes on.
"""

from __future__ import annotations

import base64
import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentcore.failpoints import FAILPOINTS
from config.embedded import Stack
from examples.refund_desk.admin_client import read_forms
from examples.refund_desk.rest_client import is_over
from tests.faults.test_failpoints import BY_PEOPLE
from tests.world import SCOPES, World, open_world, post_json, uuid_of, wait_for

pytestmark = pytest.mark.fault

SECRET = "whsec_" + base64.b64encode(b"a secret of the payment service!").decode()
POINTS = [point for point in FAILPOINTS if point.startswith(BY_PEOPLE)]
_orders = itertools.count(6500)


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("people")
    points = folder / "failpoints"
    points.mkdir()
    env = {
        "AGENTCORE_FAILPOINTS_DIR": str(points),
        "AGENTCORE_CALLBACKS": json.dumps({"payments": SECRET}),
    }
    with open_world(stack, folder, scopes=(*SCOPES, "runs:operate"), **env) as made:
        made.start_web()
        made.start_worker()
        yield made


@pytest.fixture(autouse=True)
def _quiet(world: World) -> Iterator[None]:
    """No fault and no receiver outlives a test."""
    yield
    for path in ("webhooks", "faults"):
        _delete(f"{world.payment.url}/{path}")


@pytest.mark.requirement("R11", "R16", "R52", "R107", "R110")
@pytest.mark.parametrize("point", POINTS)
def test_killed_once_at(world: World, point: str) -> None:
    order = f"ORD-{next(_orders)}"
    fired = world.arm(point)
    run_id = _STORIES[point.split(".", maxsplit=1)[0]](world, order)

    assert fired.exists(), "nobody passed this point"
    seqs = world.event_seqs(run_id)
    assert seqs == list(range(1, len(seqs) + 1))
    assert world.query("SELECT count(*) FROM runs_incident") == [(0,)]


# --- what people and downstreams do ---------------------------------------------------------------


def _cancelled(world: World, order: str) -> str:
    """A run that waits for a person is cancelled: nothing was sent and nothing will be."""
    run_id = _asked(world, order)
    _command(world, run_id, "cancel")
    assert world.finish(run_id)["status"] == "cancelled"
    assert world.states(run_id)[-1] == ("refund_desk.submit_refund", "VOIDED")
    assert world.approvals(run_id) == []
    assert world.refunds(order) == []
    return run_id


def _paused_and_resumed(world: World, order: str) -> str:
    """One of the two commands is cut off; the question is answered when the run goes on."""
    run_id = _asked(world, order)
    _command(world, run_id, "pause")
    assert world.query("SELECT state FROM runs_run WHERE id = %s", uuid_of(run_id)) == [
        ("SUSPENDED",)
    ]
    _command(world, run_id, "resume")
    world.waiting(run_id)
    world.decide(world.approvals(run_id)[0], "APPROVE")
    assert world.finish(run_id)["status"] == "completed"
    assert len(world.refunds(order)) == 1
    return run_id


def _judged(world: World, order: str) -> str:
    """A person says that it happened; clicked again, it was said once."""
    run_id, action, refund = _unknown(world, order)
    page = f"{_url(world)}/admin/unknown/{action}/"
    given = {"verdict": "EFFECT_EXISTS", "evidence": "seen", "downstream_ref": refund}

    def say() -> bool:
        if _state(world, action) == "SUCCEEDED":
            return True
        session = world.admin()
        forms = read_forms(session.read(page))
        form = next(form for form in forms if "action_revision" in form.fields)
        return "Recorded: it happened" in session._post(page, form, given)

    _until_answered(say)
    _end_of_one_refund(world, run_id, order)
    said = "SELECT verdict FROM runs_reconciliation WHERE run_id = %s"
    assert world.query(said, uuid_of(run_id)) == [("EFFECT_EXISTS",)]
    assert _events(world, run_id, "action.reconciled") == 1
    return run_id


def _looked_at(world: World, order: str) -> str:
    """A person has the downstream asked now, as often as it takes."""
    run_id, action, _ = _unknown(world, order)
    page = f"{_url(world)}/admin/unknown/{action}/"

    def ask() -> bool:
        if _state(world, action) != "UNKNOWN":
            return True
        session = world.admin()
        probe = [f for f in read_forms(session.read(page)) if f.action.endswith("/probe/")]
        return "is being asked" in session._post(page, probe[0], {})

    _until_answered(ask)
    assert 1 <= _events(world, run_id, "action.probe_asked") <= 2
    _delete(f"{world.payment.url}/faults")
    _until_answered(ask)  # else the next look is half a minute away
    _end_of_one_refund(world, run_id, order)
    return run_id


def _called_back(world: World, order: str) -> str:
    """The downstream tells what it did, and tells it again until it is heard."""
    body = {"url": f"{_url(world)}/api/v1/callbacks/payments", "secret": SECRET}
    post_json(f"{world.payment.url}/webhooks", body)
    run_id, _, refund = _unknown(world, order)

    def tell() -> Any:
        answer = post_json(f"{world.payment.url}/refunds/{refund}/notify", {})
        return answer["status"] == 200 and answer["body"]["outcome"] == "succeed"

    _until_answered(tell)
    _end_of_one_refund(world, run_id, order)
    kept = "SELECT did, word FROM runs_callback WHERE reference = %s"
    assert world.query(kept, refund) == [("SUCCEED", "SUCCEEDED")]
    assert _events(world, run_id, "action.reconciled") == 1
    return run_id


_STORIES: dict[str, Callable[[World, str], str]] = {
    "cancel": _cancelled,
    "pause": _paused_and_resumed,
    "resume": _paused_and_resumed,
    "verdict": _judged,
    "ask_probe": _looked_at,
    "callback": _called_back,
}


# --- with what they do it -------------------------------------------------------------------------


def _until_answered(act: Callable[[], Any]) -> None:
    def try_it() -> bool:
        try:
            return bool(act())
        except Exception:  # noqa: BLE001  (the web process died under it)
            return False

    wait_for(try_it, seconds=30, what="an answer")


def _command(world: World, run_id: str, name: str) -> None:
    """POST a command with one key until it is answered; it has one event."""
    key = {"Idempotency-Key": f"{name}-{run_id}"}
    path = f"/runs/{run_id}/{name}"
    _until_answered(lambda: world.client._send("POST", path, {"reason": "asked to"}, key))
    commands = "SELECT count(*) FROM runs_event WHERE run_id = %s AND data->>'command' = %s"
    assert world.query(commands, uuid_of(run_id), name) == [(1,)]


def _asked(world: World, order: str) -> str:
    """A run that waits for a person's decision."""
    run_id = world.refund(order, "80.00 EUR")
    world.waiting(run_id)
    return run_id


def _unknown(world: World, order: str) -> tuple[str, str, str]:
    """(run, action, refund) of a refund that was made; its reply is lost, the probe answers
    nothing."""
    world.fault(mode="error_before_commit", target="GET /refunds", times=1000)
    world.fault(mode="commit_then_drop", order_id=order)
    run_id = world.refund(order)
    query = (
        "SELECT id::text FROM runs_actionjournal WHERE run_id = %s AND state = 'UNKNOWN'"
        " AND tool = 'refund_desk.submit_refund'"
    )
    ((action,),) = wait_for(
        lambda: world.query(query, uuid_of(run_id)), seconds=20, what="an unknown refund"
    )
    (refund,) = world.refunds(order)
    return run_id, action, str(refund["id"])


def _end_of_one_refund(world: World, run_id: str, order: str) -> None:
    """The payment service can be asked again: the run completes with the one refund. Where its
    check was given up meanwhile, an operator lets the run go on."""
    _delete(f"{world.payment.url}/faults")
    suspended = "SELECT 1 FROM runs_run WHERE id = %s AND state = 'SUSPENDED'"

    def go_on() -> None:
        if world.query(suspended, uuid_of(run_id)):
            key = {"Idempotency-Key": f"go-on-{next(_orders)}"}
            world.client._send("POST", f"/runs/{run_id}/resume", {}, key)

    run = world.client.follow(run_id, until=is_over, seconds=40, between=go_on, every=0.2)
    assert run["status"] == "completed", run
    assert world.states(run_id)[-1] == ("refund_desk.submit_refund", "SUCCEEDED")
    assert len(world.refunds(order)) == 1


def _state(world: World, action: str) -> str:
    ((state,),) = world.query("SELECT state FROM runs_actionjournal WHERE id = %s", action)
    return str(state)


def _events(world: World, run_id: str, kind: str) -> int:
    query = "SELECT count(*) FROM runs_event WHERE run_id = %s AND type = %s"
    ((count,),) = world.query(query, uuid_of(run_id), kind)
    return int(count)


def _url(world: World) -> str:
    assert world.web is not None
    return str(world.web.url)


def _delete(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=10) as reply:
        assert reply.status == 200
