"""The API as a real web server: parallel posts, a dead broker, a dead database, kill -9."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runs.access_models import IdempotencyRecord
from runs.models import Event, Run
from tests.runs.api_support import make_token

ROOT = Path(__file__).resolve().parents[2]
BODY = {"agent": "refund_desk", "input": {"order_id": "ORD-1001", "message": "Broken. Refund."}}

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Web:
    """A web server on `port`, called with `token`."""

    port: int
    token: str

    def post(self, key: str) -> Answer:
        """POST /runs. Raises `ConnectionError` or `http.client.HTTPException` without a reply."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Idempotency-Key": key,
            "Content-Type": "application/json",
        }
        return self._call("POST", "/api/v1/runs", json.dumps(BODY), headers)

    def _call(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        started = time.monotonic()
        try:
            client.request(method, path, body, headers)
            reply = client.getresponse()
            content = reply.read()
            found = {name.lower(): value for name, value in reply.getheaders()}
            taken = time.monotonic() - started
            return Answer(reply.status, found, json.loads(content), taken)
        finally:
            client.close()


@contextmanager
def web_server(env: Mapping[str, str], token: str) -> Iterator[Web]:
    """gunicorn with one worker process of 16 threads.

    We bind the port and hand it over, so a call made at once waits in its queue.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=128) as door:
        command = [sys.executable, "-m", "gunicorn", "config.wsgi:application"]
        command += ["--bind", f"fd://{door.fileno()}", "--threads", "16", "--preload"]
        command += ["--no-control-socket", "--graceful-timeout", "5"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, pass_fds=[door.fileno()], stderr=subprocess.PIPE
        )
        port = door.getsockname()[1]
    try:
        yield Web(port, token)
    finally:
        process.terminate()  # QUIT may meet gunicorn with the lock in hand that its handler takes
        print(process.communicate(timeout=30)[1].decode()[-4000:])


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port


@pytest.mark.requirement("R1", "R65")
def test_fifty_parallel_posts_make_one_run_for_each_key(process_env: dict[str, str]) -> None:
    with web_server(process_env, make_token()) as web, ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(web.post, ["one-key"] * 50))
        last = web.post("one-key")
        counts = (Run.objects.count(), Event.objects.count(), IdempotencyRecord.objects.count())
        others = list(pool.map(web.post, [f"key-{n}" for n in range(50)]))
    made = [a for a in answers if a.status == 201 and "idempotency-replayed" not in a.headers]
    replayed = [a for a in answers if a.headers.get("idempotency-replayed") == "true"]
    busy = [a for a in answers if a.body.get("code") == "idempotency_in_progress"]
    assert (len(made), len(made) + len(replayed) + len(busy)) == (1, 50)
    assert all(a.status == 201 and a.body == made[0].body for a in replayed)
    assert all(a.status == 409 and a.headers["retry-after"] == "1" for a in busy)
    assert (last.status, last.body) == (201, made[0].body)
    assert counts == (1, 1, 1)
    assert {a.status for a in others} == {201}
    assert len({a.body["id"] for a in others}) == Run.objects.count() - 1 == 50


@pytest.mark.fault
@pytest.mark.requirement("R65")
def test_kill_9_beside_the_commit_and_the_same_key_again(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    """Killed before the commit: nothing is there. Killed after it: the key finds the run."""
    env = {**process_env, "AGENTCORE_FAILPOINTS_DIR": str(tmp_path)}
    with web_server(env, make_token()) as web:
        for committed, point in enumerate(("start_run.before_commit", "start_run.after_commit")):
            (tmp_path / point).write_text("kill")
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                web.post("k")
            rows = (Run.objects.count(), Event.objects.count(), IdempotencyRecord.objects.count())
            assert rows == (committed,) * 3
        answer = web.post("k")
    assert (answer.status, answer.headers["idempotency-replayed"]) == (201, "true")
    assert answer.body["id"] == f"run_{Run.objects.get().id.hex}"


@pytest.mark.fault
@pytest.mark.parametrize("broker", ["closed", "half-open"])
def test_a_broker_that_does_not_answer_costs_no_run(
    process_env: dict[str, str], broker: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if broker == "half-open" else _closed_port()
        env = {**process_env, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        with web_server(env, make_token()) as web:
            web._call("GET", "/api/v1/openapi.json", None, {})  # the server has started
            answers = [web.post(f"k{n}") for n in range(2)]
    assert [a.status for a in answers] == [201, 201]
    assert max(a.seconds for a in answers) < 3
    assert {a.body["id"] for a in answers} == {f"run_{r.id.hex}" for r in Run.objects.all()}


@pytest.mark.fault
def test_without_a_database_the_answer_says_so_and_when_to_come_back(
    process_env: dict[str, str],
) -> None:
    env = {**process_env, "DATABASE_URL": f"postgresql://u:p@127.0.0.1:{_closed_port()}/none"}
    with web_server(env, "agc_any") as web:
        answer = web.post("k")
    assert (answer.status, answer.body["code"]) == (503, "database_unavailable")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == "2"
    assert "same request again" in answer.body["detail"]
    assert answer.seconds < 20
