"""Other durable runtimes as peers: their environment, their processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.installation import Installation
from bench.results import progress
from config.processes import ROOT

ENVIRONMENT = ROOT / ".run" / "peers"
WORDS = ("ready", "done")
REQUIREMENTS = ROOT / "bench" / "foreign" / "requirements.txt"


def install() -> Path:
    """Make the environment of the peers unless it is there; its Python."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "requirements.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    progress(f"installing the peers into {ENVIRONMENT.relative_to(ROOT)}")
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
    subprocess.run(command, check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python


@dataclass
class ForeignSession:
    """Processes of one peer, each of which does what its line of input says."""

    processes: list[subprocess.Popen[str]]
    log: Path

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

    def _tell(self, process: subprocess.Popen[str], count: int) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{count}\n")
        process.stdin.flush()

    def hear(self, process: subprocess.Popen[str]) -> None:
        """Wait for the next word. Raises RuntimeError when the process has ended instead."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() in WORDS:
                return
        tail = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"a peer has ended:\n{tail}")


def foreign(
    name: str, *, turns: int = 5
) -> Callable[[Installation, int], AbstractContextManager[ForeignSession]]:
    """How the peer `bench/foreign/<name>.py` begins."""

    @contextmanager
    def opened(place: Installation, procs: int) -> Iterator[ForeignSession]:
        url = place.new_database(f"bench_{name}")
        session = ForeignSession([], place.folder / f"{name}.log")
        with session.log.open("wb") as log:
            try:
                for index in range(procs):  # the first makes the tables
                    command = [str(install()), "-m", f"bench.foreign.{name}", url, str(index)]
                    process = subprocess.Popen(
                        [*command, str(turns)],
                        cwd=ROOT,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                    session.processes.append(process)
                    session.hear(process)
                yield session
            finally:
                for process in session.processes:
                    process.communicate()  # the end of its input

    return opened
