"""Everybody at once: lost replies, callbacks, verdicts, cancels, and workers that are killed.

Each of them is honest. In the end every run is over or waits for a person, each order has at most
one refund, and the rows say of each write what the ledger says.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from config.embedded import Stack
from examples.refund_desk.admin_client import AdminError, AdminSession, read_forms
from examples.refund_desk.rest_client import RestError
from tests.world import SCOPES, World, manage, open_world, post_json, uuid_of

pytestmark = pytest.mark.fault

SECRET = "whsec_" + base64.b64encode(b"a secret of the payment service!").decode()
RUNS = 24
MODES = ("commit_then_drop", "drop_before_commit", "error_after_commit", "error_before_commit")
SECOND = """
from django.contrib.auth.models import User
User.objects.create_superuser("second", "", "second-password")
"""


@pytest.fixture
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    sources = {"payments": {"secrets": [SECRET], "tools": ["refund_desk.*"]}}
    folder = tmp_path_factory.mktemp("everybody")
    scopes = (*SCOPES, "runs:operate")
    env = {"AGENTCORE_CALLBACKS": json.dumps(sources)}
    with open_world(stack, folder, scopes=scopes, **env) as made:
        made.start_web()
        made.start_worker("w1", wait=False)
        made.start_worker("w2")
        manage(made, "shell", "-v0", "-c", SECOND)
        yield made


@contextmanager
def _refused(kind: type[Exception], why: str) -> Iterator[None]:
    """What somebody does may come too late, and is then refused with this."""
    try:
        yield
    except kind as error:
        if why not in str(error):
            raise


class Everybody:
    """The threads of those who act; each has its own dice, made of one seed."""

    def __init__(self, world: World, seed: int, runs: dict[str, str]) -> None:
        self.world, self.seed, self.runs = world, seed, runs
        self.done = threading.Event()
        self.broken: list[BaseException] = []
        self.acted: Counter[str] = Counter()
        assert world.web is not None
        self.url = world.web.url
        self.sessions = {user: AdminSession(url=self.url) for user in ("boss", "second")}
        for user, session in self.sessions.items():
            session.sign_in(user=user, password=f"{user}-password")
        acts = (self.judge, self.call_back, self.cancel, self.resume)
        self.threads = [threading.Thread(target=self._again, args=(act,)) for act in acts]

    def _again(self, act: Callable[[random.Random, Any], None]) -> None:
        dice = random.Random(f"{self.seed} {act.__name__}")
        try:
            with psycopg.connect(self.world.env["DATABASE_URL"], autocommit=True) as conn:
                while not self.done.wait(dice.uniform(0.02, 0.15)):
                    act(dice, conn)
        except BaseException as error:  # noqa: BLE001  (raised again by the test)
            self.broken.append(error)

    def judge(self, dice: random.Random, conn: Any) -> None:
        """Two people look at an unknown write and say what the ledger has, or to send it again."""
        rows = conn.execute(
            "SELECT id::text, idempotency_key FROM runs_actionjournal"
            " WHERE state IN ('UNKNOWN', 'NEEDS_HUMAN') AND idempotency_key IS NOT NULL"
        ).fetchall()
        if not rows:
            return
        action, key = dice.choice(rows)
        found = [row for row in self.world.ledger() if row["idempotency_key"] == key]
        verdict, facts = "RESEND_SAME_KEY", {}
        if found:
            verdict, facts = "EFFECT_EXISTS", {"downstream_ref": str(found[0]["id"])}
        for user in self.sessions:
            self._say(user, action, {"verdict": verdict, "evidence": "the ledger", **facts})

    def _say(self, user: str, action: str, given: dict[str, str]) -> None:
        session, page = self.sessions[user], f"{self.url}/admin/unknown/{action}/"
        forms = [f for f in read_forms(session.read(page)) if "action_revision" in f.fields]
        if not forms:
            return
        with _refused(AdminError, "answered 409"):
            session._post(page, forms[0], given)
            self.acted[given["verdict"]] += 1

    def call_back(self, dice: random.Random, _: Any) -> None:
        """The downstream tells what it did: any refund, for the first time or again."""
        if refunds := self.world.ledger():
            refund = dice.choice(refunds)
            answer = post_json(f"{self.world.payment.url}/refunds/{refund['id']}/notify", {})
            assert answer["status"] == 200, answer
            self.acted[answer["body"]["outcome"]] += 1

    def cancel(self, dice: random.Random, _: Any) -> None:
        if dice.random() < 0.9:
            return
        run_id = dice.choice(list(self.runs.values()))
        key = {"Idempotency-Key": f"cancel-{dice.random()}"}
        with _refused(RestError, "HTTP 409"):
            self.world.client._send("POST", f"/runs/{run_id}/cancel", {"reason": "no more"}, key)
            self.acted["cancel"] += 1

    def resume(self, _: random.Random, conn: Any) -> None:
        """An operator lets go on what was suspended, whyever."""
        query = "SELECT id::text FROM runs_run WHERE state = 'SUSPENDED'"
        for (run_id,) in conn.execute(query).fetchall():
            key = {"Idempotency-Key": f"resume-{time.monotonic()}"}
            path = f"/runs/run_{run_id.replace('-', '')}/resume"
            with _refused(RestError, "HTTP 409"):
                self.world.client._send("POST", path, {}, key)
                self.acted["resume"] += 1


@pytest.mark.requirement("R11", "R52", "R60", "R107", "R110")
def test_everybody_at_once_and_one_effect_each(world: World) -> None:
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    assert world.web is not None
    url = f"{world.web.url}/api/v1/callbacks/payments"
    post_json(f"{world.payment.url}/webhooks", {"url": url, "secret": SECRET})
    world.fault(mode="error_before_commit", target="GET /refunds", times=60)
    runs: dict[str, str] = {}
    everybody = Everybody(world, seed, runs)
    for number in range(6700, 6700 + RUNS):
        order = f"ORD-{number}"
        world.fault(mode=dice.choice(MODES), order_id=order, times=dice.choice((1, 1, 2)))
        runs[order] = world.refund(order)
    for thread in everybody.threads:
        thread.start()
    try:
        deadline = time.monotonic() + 120
        while left := _left(world):
            assert time.monotonic() < deadline, f"seed {seed}, {dict(everybody.acted)}: {left}"
            if dice.random() < 0.02:  # now and then a worker is killed
                dice.choice(list(world.workers.values())).kill()
            world.heal()
            everybody.done.wait(0.1)
    finally:
        everybody.done.set()
        for thread in everybody.threads:
            thread.join()

    assert everybody.broken == [], f"seed {seed}"
    _assert_books_agree(world, runs, f"seed {seed}, {dict(everybody.acted)}")


def _left(world: World) -> list[tuple[Any, ...]]:
    """The runs that have not come to rest, and how far they are."""
    return world.query(
        "SELECT r.input->>'order_id', r.state, r.stop_reason, r.claims, a.state, a.reason,"
        " a.probes FROM runs_run r LEFT JOIN runs_actionjournal a ON a.run_id = r.id"
        " AND a.tool = 'refund_desk.submit_refund' WHERE r.ended_at IS NULL"
        " AND a.state IS DISTINCT FROM 'NEEDS_HUMAN'"
    )


def _assert_books_agree(world: World, runs: dict[str, str], where: str) -> None:
    booked = {row["idempotency_key"]: row for row in world.ledger()}
    orders = Counter(row["order_id"] for row in booked.values())
    assert all(count == 1 for count in orders.values()), f"{where}: {orders}"
    for order, run_id in runs.items():
        for key, state in world.query(
            "SELECT idempotency_key, state FROM runs_actionjournal WHERE run_id = %s"
            " AND tool = 'refund_desk.submit_refund'",
            uuid_of(run_id),
        ):
            if state == "SUCCEEDED":
                assert booked[key]["order_id"] == order, where
            elif state != "NEEDS_HUMAN":
                assert key not in booked, f"{where}: {order} {state}, but it was made"
        seqs = world.event_seqs(run_id)
        assert seqs == list(range(1, len(seqs) + 1)), where
    told = world.query("SELECT kind, detail FROM runs_incident WHERE kind <> 'POISON'")
    assert told == [], where
