"""Other runtimes as peers: their environment, their processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.installation import Installation
from bench.results import progress
from config.processes import ROOT

ENVIRONMENT = ROOT / ".run" / "peers"
REQUIREMENTS = ROOT / "bench" / "foreign" / "requirements.txt"
PYTHON = ENVIRONMENT / "bin" / "python"
WORDS = (b"ready", b"done")
PATIENCE = 240.0
"""Seconds without a word after which a peer counts as stuck."""
QUIET = {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "true"}
"""Nothing is sent to anybody."""


def install() -> None:
    """Make the environment of the peers unless it is there.

    What cannot be had on this machine is said and left out: its peers fail when they are started.
    """
    stamp = ENVIRONMENT / "requirements.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    progress(f"installing the peers into {ENVIRONMENT.relative_to(ROOT)}")
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=False)
    if _pip("-r", str(REQUIREMENTS)):
        stamp.write_text(wanted, encoding="utf-8")
        return
    for requirement in pinned():
        if not _pip(requirement):
            progress(f"{requirement} cannot be installed here")


def pinned() -> list[str]:
    """The packages of the peers with their versions."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _pip(*arguments: str) -> bool:
    if not PYTHON.exists():
        return False
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return subprocess.run([*command, *arguments], check=False).returncode == 0


@dataclass(frozen=True)
class Behind:
    """What a peer stores its runs in: the address that its processes are given, and the servers
    that only it uses."""

    address: str
    servers: list[int]


@contextmanager
def postgres(place: Installation) -> Iterator[Behind]:
    """A database of its own on the server that all use."""
    with place.database("bench_peer") as url:
        yield Behind(url, [])


@dataclass
class ForeignSession:
    """Processes of one peer, each of which does what its line of input says."""

    processes: list[subprocess.Popen[bytes]]
    log: Path
    servers: list[int] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def many(self, count: int) -> None:
        shares = [count // len(self.processes)] * len(self.processes)
        shares[0] += count - sum(shares)
        for process, share in zip(self.processes, shares, strict=True):
            self._tell(process, share)
        for process in self.processes:
            self.hear(process)

    def one(self) -> None:
        self._tell(self.processes[0], 1)
        self.hear(self.processes[0])

    def _tell(self, process: subprocess.Popen[bytes], count: int) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `hear` says why
            process.stdin.write(f"{count}\n".encode())

    def hear(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the next word. Raises RuntimeError when the process has ended or is stuck."""
        out = process.stdout
        assert out is not None
        while select.select([out], [], [], PATIENCE)[0]:  # the pipe has no buffer on our side
            line = out.readline()
            if line.strip() in WORDS:
                return
            if not line:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"a peer has ended:\n{tail}")
        raise RuntimeError(f"a peer has said nothing for {PATIENCE:.0f} s")

    def end(self) -> None:
        """Let every process end, with force after a while."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()  # the end of its input
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def foreign(
    module: str,
    *,
    variant: str = "",
    behind: Callable[[Installation], AbstractContextManager[Behind]] = postgres,
    turns: int = 5,
    kept: bool = False,
) -> Callable[[Installation, int], AbstractContextManager[ForeignSession]]:
    """How `bench/foreign/<module>.py` begins, in one of its variants.

    `kept`: each process is kept to a processor, as a worker of ours keeps itself to one.
    """

    @contextmanager
    def opened(place: Installation, procs: int) -> Iterator[ForeignSession]:
        with behind(place) as store, (place.folder / f"{module}.log").open("wb") as log:
            session = ForeignSession([], Path(log.name), store.servers)
            try:
                for index in range(procs):  # the first makes the tables
                    command = [str(PYTHON), "-m", f"bench.foreign.{module}", store.address]
                    process = subprocess.Popen(
                        [*command, str(index), str(turns), variant],
                        bufsize=0,
                        cwd=ROOT,
                        env={**os.environ, **QUIET},
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                    )
                    session.processes.append(process)
                    session.hear(process)
                    if kept:
                        _keep(process.pid, order=index)
                yield session
            finally:
                session.end()

    return opened


def _keep(pid: int, *, order: int) -> None:
    """All threads of a process to one processor, and those that they start."""
    allowed = sorted(os.sched_getaffinity(0))
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {allowed[order % len(allowed)]})
