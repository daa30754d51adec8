"""Workers that a test moves by hand: each drives in a thread, with a stop around calls and commits.

Only one thread runs at any moment, so an interleaving is a list of steps and can be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connection

from agentcore import lifecycle
from runs import dispatch, driver, sweeps, worker
from runs.driver import drive
from runs.worker import WorkerIdentity

ALONE = frozenset({*lifecycle.STEPS, "isolate"})
"""Queues of a process that may claim every run, also one that has killed others."""
TOOLS = frozenset({"tools"})
_local = threading.local()


_passed = [0.0]


def let_pass(seconds: float) -> None:
    """Time passes that the clocks of this process do not show."""
    _passed[0] += seconds


def passed_since_planned() -> float:
    """How much of it since the call at hand was planned, in the driving thread (s)."""
    mine: Worker | None = getattr(_local, "worker", None)
    return _passed[0] - mine.planned if mine else 0.0


class Killed(BaseException):
    """The process of this thread is gone: nothing after this point happens."""


class Worker:
    """One worker process. `at` names the point where it stands; "" when it drives nothing."""

    def __init__(self) -> None:
        self.at = ""
        self.planned = 0.0
        self.error: BaseException | None = None
        self._go, self._stands = threading.Event(), threading.Event()
        self._dead = False
        self._thread: threading.Thread | None = None
        self.identity = _identity()

    def start(self, run_id: UUID, *, revision: int | None = None) -> None:
        """Drive a run as far as the first stop."""
        self._dead = False
        self._thread = threading.Thread(target=self._drive, args=(run_id, revision), daemon=True)
        self._stands.clear()
        self._thread.start()
        self._wait()

    def step(self) -> None:
        """On to the next stop, or to the end of the drive."""
        self._stands.clear()
        self._go.set()
        self._wait()

    def die(self) -> None:
        """`kill -9` where it stands; a new process takes its place."""
        self._dead = True
        self.step()
        self.lapse()
        self.identity = _identity()

    def finish(self) -> None:
        while self.at:
            self.step()

    def lapse(self) -> None:
        """Its beat is too old: whoever comes may take its run."""
        _beat(self.identity, fresh=False)

    def beat(self) -> None:
        _beat(self.identity, fresh=True)

    def stop_at(self, name: str) -> None:
        """Called in the driving thread: stand here until the test goes on."""
        self.at = name
        self._go.clear()
        self._stands.set()
        self._go.wait()
        if self._dead:
            raise Killed

    def _wait(self) -> None:
        if not self._stands.wait(30):
            raise TimeoutError(f"the worker after {self.at!r} neither stopped nor ended")
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _drive(self, run_id: UUID, revision: int | None) -> None:
        _local.worker = self
        try:
            drive(run_id=run_id, revision=revision, inline=TOOLS)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  (raised again in the test's thread)
            self.error = error
        finally:
            connection.close()
            self.at = ""
            self._stands.set()


def _identity() -> WorkerIdentity:
    made = WorkerIdentity(ALONE)
    _beat(made, fresh=True)
    return made


def _beat(identity: WorkerIdentity, *, fresh: bool) -> None:
    """Its row, with a beat that stays fresh for the length of a test, or one that is too old."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_worker (id, hostname, pid, queues, version, started_at, beat_at)"
            " VALUES (%s, 'test', 1, '[]', 'test', clock_timestamp(),"
            " CASE WHEN %s THEN clock_timestamp() + interval '1 day' ELSE 'epoch' END)"
            " ON CONFLICT (id) DO UPDATE SET beat_at = EXCLUDED.beat_at",
            [identity.id, fresh],
        )


Message = tuple[UUID, int]


@contextmanager
def by_hand() -> Iterator[list[Message]]:
    """Drives stop around calls and commits; hints go to the list that is returned."""
    messages: list[Message] = []
    commit = driver.commit
    nobody = WorkerIdentity(ALONE)

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*args: Any, **kwargs: Any) -> Any:
            mine: Worker | None = getattr(_local, "worker", None)
            if mine is None:
                return call(*args, **kwargs)
            if call is commit:
                mine.planned = _passed[0]
            mine.stop_at(f"before {name}")
            result = call(*args, **kwargs)
            mine.stop_at(f"after {name}")
            return result

        return stopping

    def published(*, run_id: UUID, revision: int, **_: Any) -> bool:
        messages.append((run_id, revision))
        return True

    def me() -> WorkerIdentity:
        mine: Worker | None = getattr(_local, "worker", None)
        return mine.identity if mine else nobody

    with _replaced(
        (driver, "perform", around("the call", driver.perform)),
        (driver, "commit", around("the commit", driver.commit)),
        (dispatch, "hint", published),
        (dispatch, "hint_on_commit", lambda run: None),
        (sweeps, "_room", lambda *_: _room()),
        (worker, "current", me),
    ):
        yield messages


def _room() -> Any:
    names = sweeps.Room.__dataclass_fields__
    return sweeps.Room(
        **{name: {"hints": 16, "isolate_wait": 0.0}.get(name, True) for name in names}
    )


@contextmanager
def _replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
