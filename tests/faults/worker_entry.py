"""The test's own entry of worker and web processes: the project's, with boundaries counted.

    celery -A tests.faults.worker_entry worker …        one worker
    gunicorn --preload tests.faults.worker_entry:web    the web server
    python -m tests.faults.worker_entry                 a nursery of workers (see `Nursery`)

Needs FAULTS_DIR (the folder of `exhaustive/trace.py`) and FAULTS_DATABASE_URL (the server itself,
also where the workers go through a proxy). FAULTS_WITHOUT names a guard of `guards.py` to remove.
Nothing of this is in the project's own code: it is patched in here.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import django

django.setup()

import psycopg  # noqa: E402  (Django first)
from celery import signals  # noqa: E402
from celery.exceptions import Ignore  # noqa: E402

from config.celery_app import app  # noqa: E402
from tests.faults import guards  # noqa: E402
from tests.faults.exhaustive.patches import patch_everything  # noqa: E402
from tests.faults.exhaustive.trace import MESSAGE_LOST, Tracer  # noqa: E402

FOLDER = Path(os.environ["FAULTS_DIR"])
SERVES_WEB = "gunicorn" in sys.argv[0]
tracer = Tracer(FOLDER)


class Trials:
    """Which trial a run belongs to: its order number, read past the tracer and the proxy."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """A child takes nothing over: two processes on one connection read each other's answers."""
        self._lock = threading.Lock()
        self._known: dict[UUID, str] = {}
        self._conn: psycopg.Connection[Any] | None = None

    def of(self, run_id: UUID) -> str:
        with self._lock, tracer.quiet():
            if run_id not in self._known:
                self._known[run_id] = self._ask(run_id)
            return self._known[run_id]

    def _ask(self, run_id: UUID) -> str:
        try:
            if self._conn is None or self._conn.closed:
                self._conn = psycopg.connect(os.environ["FAULTS_DATABASE_URL"], autocommit=True)
            query = "SELECT input->>'order_id' FROM runs_run WHERE id = %s"
            row = self._conn.execute(query, [run_id]).fetchone()
        except psycopg.OperationalError:
            return ""
        return str(row[0]) if row else ""


trials = Trials()


def _watch_runs() -> None:
    """Open a scope around every drive, and log claims and drives."""
    from runs import leases, sweeps, tasks

    def claims(claim: Any) -> Any:
        def claiming(**kwargs: Any) -> Any:
            lease = claim(**kwargs)
            if lease is not None and tracer.scope is not None:
                tracer.scope.say("claim", fence=lease.fence, run=str(lease.run_id))
            return lease

        return claiming

    def links(follow: Any) -> Any:
        def following(*, task: Any, message: list[str | int]) -> Any:
            scope = tracer.open(trials.of(UUID(str(message[0]))), "run")
            try:
                return follow(task=task, message=message)
            except Ignore:
                if scope is not None:
                    scope.stale = True
                    scope.say("stale")
                raise
            finally:
                if scope is not None:
                    scope.say("left")  # the scope stays: the next link is published after this

        return following

    def drives(drive: Any) -> Any:
        def driving(*, run_id: UUID, revision: int | None) -> Any:
            scope = tracer.open(trials.of(run_id), "run")
            try:
                return drive(run_id=run_id, revision=revision)
            finally:
                if scope is not None:
                    scope.say("left")
                tracer.close()

        return driving

    guards.swap(leases, "claim", claims)
    guards.swap(tasks, "follow", links)
    guards.swap(sweeps, "drive", drives)


def _say_what_is_lost(trial: str) -> None:
    """Before this process is killed for `trial`: whose messages it has in hand as well."""
    from celery.worker import state

    for request in list(state.reserved_requests):
        with suppress(ValueError, IndexError, TypeError):  # a task of another kind
            other = trials.of(UUID(str(request.args[0][0])))
            if other != trial:
                tracer.note(other, MESSAGE_LOST)


def _watch_hints() -> None:
    """Open a scope around each hint that leaves by the thread for hints."""
    from runs import dispatch

    def publishes(publish: Any) -> Any:
        def publishing(found: Any) -> None:
            if tracer.scope is not None:
                return publish(found)  # a drive passes its run on
            for hint in found:  # the thread of the hints: each belongs to a run
                tracer.open(trials.of(hint.run_id), "web" if SERVES_WEB else "run")
                try:
                    publish([hint])
                finally:
                    tracer.close()
            return None

        return publishing

    guards.swap(dispatch, "_publish", publishes)


def _change_what_was_approved() -> None:
    """In the trials that want it: as code between the approval and the call might do."""
    from runs.steps import starting

    def starts(start: Any) -> Any:
        def changed(view: Any, draft: Any, action: Any) -> Any:
            scope = tracer.scope
            if scope is not None and scope.tampers and action.approval_id:
                action.arguments = {**action.arguments, "amount": "90.00 EUR"}
            return start(view, draft, action)

        return changed

    guards.swap(starting, "start", starts)


@signals.task_postrun.connect
def _task_ended(**_: Any) -> None:
    tracer.close()


@signals.worker_ready.connect
def _say_ready(**_: Any) -> None:
    (FOLDER / "ready" / str(os.getpid())).touch()


def web(environ: dict[str, Any], start_response: Any) -> Any:
    """The project's WSGI application; `X-Trial` says to which trial a request belongs."""
    from config.wsgi import application

    tracer.open(environ.get("HTTP_X_TRIAL", ""), "web")
    try:
        return application(environ, start_response)
    finally:
        tracer.close()


def _quicken() -> None:
    """Probes and retries follow each other sooner, so that a trial takes a second."""
    from tools import registry

    waiting = [m for n, m in sys.modules.items() if n.startswith("runs.") and hasattr(m, "backoff")]
    for module in waiting:
        guards.swap(module, "backoff", lambda whole: lambda **kwargs: whole(**kwargs) / 10)
    if not waiting:
        raise RuntimeError("no step waits before a retry any more: quicken something else")
    for spec in registry.all_tools():
        if spec.probe_fn is not None:
            object.__setattr__(spec, "probe_after", (0.15, 0.3, 0.6, 1.0, 2.0))


class Nursery:
    """Keeps `count` workers alive by forking them from this process, which has loaded everything.

    So a replacement costs a tenth of a second. Reads commands (one JSON a line) from its standard
    input: `{"count": n}`; ends, with all of its children, when that is closed.
    """

    def __init__(self, queues: str) -> None:
        self.queues = queues
        self.pool = "processes" if queues == "isolate" else "threads"
        # A second slot, so that no message waits behind a run; there are more workers than runs.
        self.slots = "1" if queues == "isolate" else "2"
        self.count = 0
        self.born = 0
        self.alive: set[int] = set()

    def run(self) -> None:
        while True:
            readable, _, _ = select.select([sys.stdin], [], [], 0.02)
            if readable:
                line = sys.stdin.readline()
                if not line:
                    break
                self.count = json.loads(line)["count"]
            self._bury()
            while len(self.alive) < self.count:
                self._bear()
        for pid in self.alive:
            os.killpg(pid, signal.SIGKILL)
        os._exit(0)

    def _bury(self) -> None:
        while self.alive:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.alive.discard(pid)
            with suppress(ProcessLookupError):  # a child of it that drove alone
                os.killpg(pid, signal.SIGKILL)
            (FOLDER / "ready" / str(pid)).unlink(missing_ok=True)

    def _bear(self) -> None:
        self.born += 1
        parent = os.getpid()
        pid = os.fork()
        if pid:
            with suppress(ProcessLookupError, PermissionError):  # whoever of us is first
                os.setpgid(pid, pid)
            self.alive.add(pid)
            return
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        random.seed()
        log = os.open(FOLDER / "workers.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDONLY) if stream == 0 else log, stream)
        app.worker_main(
            [
                "worker", "-P", self.pool, "-c", self.slots, "-Q", self.queues, "--without-gossip",
                "--without-mingle", "--without-heartbeat",
                "--loglevel", "WARNING",
                "-n", f"w{self.born}@%h",
            ]
        )  # fmt: skip
        os._exit(0)


def _warm() -> None:
    """Load what a worker loads late, before the first fork; nothing may be connected by it."""
    import celery.apps.worker
    import celery.bin.celery
    import celery.concurrency.thread
    import celery.worker.autoscale
    import celery.worker.components
    import celery.worker.consumer
    import kombu.transport.redis
    import openai.resources.responses
    from django.core.checks import run_checks

    import runs.tasks

    run_checks()
    openai.OpenAI(api_key="warm", base_url="http://127.0.0.1:9/v1").close()
    del celery, kombu, runs
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork now would lose {threading.enumerate()}")


patch_everything(tracer)
tracer.last_words = _say_what_is_lost
_watch_runs()
_watch_hints()
_change_what_was_approved()
_quicken()
guards.remove(os.environ.get("FAULTS_WITHOUT", ""))

if __name__ == "__main__":
    _warm()
    Nursery(os.environ["FAULTS_QUEUES"]).run()
