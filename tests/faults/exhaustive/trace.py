"""Inside the process under test: number the I/O boundaries of each run and fail at the armed one.

A boundary is named by role, kind, normalized text and occurrence, so that it is found again in the
next execution whatever else happens at the same time. Occurrences are counted over the whole life
of a run: a process that takes a run over goes on where the log of the run stands.

Everything is told through a folder: `arm/<trial>` says what to do, `log/<trial>` what happened,
`fired/<trial>.<n>` is made once by the one process that fails. Boundaries of a process and of no
run (beat, sweep, message consumer) are armed by `arm/_process.<trial>`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

MESSAGE_LOST = "message lost"
"""Event: a worker that another trial killed had a message about this one's run."""
PROCESS = "_process."
"""Begins the name of what is armed for threads that drive no run."""


class Scope:
    """The boundaries of one trial in this process."""

    def __init__(
        self,
        folder: Path,
        trial: str,
        role: str,
        armed: dict[str, Any],
        *,
        last_words: Callable[[str], None],
        fresh: bool = False,
    ) -> None:
        self.trial, self.role, self._mark = trial, role, "p" if fresh else ""
        self._last_words = last_words
        self.record: bool = armed.get("record", False)
        self.faults: list[dict[str, Any]] = armed.get("faults", [])
        self.tampers: bool = armed.get("tampers", False)
        self.lock = threading.Lock()
        self.stale = False  # the message at hand had nothing to do: it may publish nothing
        self._folder, self._log = folder, folder / "log" / trial
        self._wanted = {fault["at"].rpartition("#")[0] for fault in self.faults}
        self._counts: Counter[str] = Counter() if fresh else self._read_counts()

    def _read_counts(self) -> Counter[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else ()
        entries = (json.loads(line) for line in lines)
        return Counter(entry["at"].rpartition("#")[0] for entry in entries if entry["e"] == "hit")

    def say(self, event: str, **data: Any) -> None:
        line = json.dumps({"e": event, "t": time.time(), "pid": os.getpid(), **data})
        with self._log.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def enter(self, kind: str, text: str, link: Any) -> str | None:
        """Number this boundary; fail before it when that is armed."""
        name = f"{self.role}|{kind}|{text}"
        if not self.record and name not in self._wanted:
            return None
        with self.lock:
            self._counts[name] += 1
            at = f"{name}#{self._counts[name]}"
        self.say("hit", at=at)
        self.fail(at, "before", link)
        return at

    def fail(self, at: str, side: str, link: Any) -> None:
        for number, fault in enumerate(self.faults):
            if fault["at"] == at and fault["side"] == side and self._first(number):
                self.say("fired", at=at, side=side, mode=fault["mode"])
                if fault["mode"] == "kill":
                    self._last_words(self.trial)
                _MODES[fault["mode"]](link)

    def _first(self, number: int) -> bool:
        path = self._folder / "fired" / f"{self.trial}.{self._mark}{number}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True


def _kill(_link: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()  # the signal takes every thread; nothing may go on meanwhile


def _stop(_link: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.001)  # the stop takes effect at the next instruction; let it


def _lose_connection(how: str) -> Callable[[Any], None]:
    """Ask the proxy to break the connection of `link` around the statement that comes next."""

    def break_it(link: Any) -> None:
        host, port = os.environ["FAULTS_PROXY"].split(":")
        with socket.socket(fileno=os.dup(link.pgconn.socket)) as ours:
            mine = ours.getsockname()[1]
        with socket.create_connection((host, int(port)), timeout=5) as control:
            control.sendall(json.dumps({"port": mine, "how": how}).encode() + b"\n")
            if control.recv(8) != b"ok\n":
                raise RuntimeError(f"the proxy knows no client with port {mine}")

    return break_it


_MODES: dict[str, Callable[[Any], None]] = {
    "kill": _kill,
    "stop": _stop,
    "lose_before": _lose_connection("before"),
    "lose_after": _lose_connection("after"),
}


class Tracer:
    """All scopes of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_words: Callable[[str], None] = lambda _trial: None
        self.local = threading.local()
        self._scopes: dict[str, Scope] = {}
        self._driving: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def scope(self) -> Scope | None:
        return getattr(self.local, "scope", None)

    def open(self, trial: str, role: str) -> Scope | None:
        """The scope of a trial that is armed or recorded, for the current thread; else None."""
        self.close()
        armed = self._armed(trial) if trial else None
        words = self.last_words
        scope = Scope(self.folder, trial, role, armed, last_words=words) if armed else None
        self.local.scope = scope
        self.local.trial = trial
        with self._lock:
            self._driving[trial] += 1
        return self.scope

    def close(self) -> None:
        trial, self.local.trial, self.local.scope = getattr(self.local, "trial", ""), "", None
        if trial:
            with self._lock:
                self._driving[trial] -= 1

    def note(self, trial: str, event: str) -> None:
        """A line in the log of a trial that is under way, whoever drives it."""
        armed = self._armed(trial) if trial else None
        if armed is not None:
            Scope(self.folder, trial, "", armed, last_words=self.last_words).say(event)

    def _armed(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / "arm" / name).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def around(self, kind: str, text: str, call: Callable[[], T], *, link: Any = None) -> T:
        """Make `call`, a boundary, and fail on the armed side of it."""
        if getattr(self.local, "quiet", False):
            return call()
        scopes = [self.scope] if self.scope is not None else self._of_process()
        entered = [(scope, scope.enter(kind, text, link)) for scope in scopes]
        result = call()
        for scope, at in entered:
            if at is not None:
                scope.fail(at, "after", link)
        return result

    def _of_process(self) -> list[Scope]:
        """The scopes of a thread that drives no run: the beat, the sweep, the consumer."""
        role = _role(threading.current_thread().name)
        if not role:
            return []
        names = [name for name in os.listdir(self.folder / "arm") if name.startswith(PROCESS)]
        found = (self._process_scope(name, role) for name in names)
        return [scope for scope in found if scope is not None]

    def _process_scope(self, name: str, role: str) -> Scope | None:
        """Only while this process drives the trial's run, except for the thread that gets runs."""
        trial = name.removeprefix(PROCESS)
        with self._lock:
            key = f"{role} {trial}"
            if key not in self._scopes:
                armed = self._armed(name)
                if armed is None:
                    return None
                words = self.last_words
                scope = Scope(self.folder, trial, role, armed, last_words=words, fresh=True)
                self._scopes[key] = scope
            scope = self._scopes[key]
            needed = scope.record or role == "consumer" or self._driving[trial] > 0
            return scope if needed else None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What the harness itself does in this thread is no boundary."""
        before = getattr(self.local, "quiet", False)
        self.local.quiet = True
        try:
            yield
        finally:
            self.local.quiet = before

    def inherit(self) -> None:
        """Threads that a run starts belong to the run."""
        start, run = threading.Thread.start, threading.Thread.run
        local = self.local

        def starting(thread: threading.Thread) -> None:
            mine = thread.name.startswith(_HELPERS)
            thread._scope = getattr(local, "scope", None) if mine else None  # type: ignore[attr-defined]
            start(thread)

        def running(thread: threading.Thread) -> None:
            local.scope = getattr(thread, "_scope", None)
            run(thread)

        threading.Thread.start = starting  # type: ignore[method-assign]
        threading.Thread.run = running  # type: ignore[method-assign]


_HELPERS = ("ThreadPoolExecutor", "agentcore-limited")
"""Threads that one run starts and waits for; those of a connection pool serve everybody."""
_ROLES = {"beat": "beat", "sweep": "sweep", "MainThread": "consumer", "pool-": "pool"}


def _role(thread: str) -> str:
    return next((role for start, role in _ROLES.items() if thread.startswith(start)), "")


_SPACE, _MANY = re.compile(r"\s+"), re.compile(r"(\(?%s\)?(?:, )?){2,}")
_QUOTED, _NUMBER = re.compile(r"E?'(?:[^']|'')*'"), re.compile(r"\d+")
_AT_ONCE = re.compile(r"(PREPARE|DEALLOCATE|EXECUTE) ac_|WITH wN AS ")


def sql_text(statement: object) -> str:
    """A statement without its values, cut to what tells it apart.

    Whether a process has prepared a statement before does not count: it is the same boundary.
    """
    text = statement.decode() if isinstance(statement, bytes) else str(statement)
    text = _SPACE.sub(" ", _MANY.sub("%s…", _QUOTED.sub("?", text))).strip()
    text = _NUMBER.sub("N", text.replace('"', ""))
    parts = ["at once" if _AT_ONCE.match(part) else part for part in text.split("; ")]
    text = "; ".join(dict.fromkeys(parts))
    if len(text) <= 110:
        return text or "(ping)"
    return f"{text[:80]}…{text[-28:]}"
