"""The embedded PostgreSQL: TCP on loopback, a password, data that survives `kill -9`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from config.embedded.process import Server, ServerError, read_pid, reap

USER = "agentcore"
DATABASE = "agentcore"


class Postgres(Server):
    """A PostgreSQL server on `data`, made by initdb when it is not there."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown
    death_signal = signal.SIGINT

    def __init__(self, *, bin_folder: Path, password: str, **common: Any) -> None:
        super().__init__(**common)
        self.bin_folder = bin_folder
        self.password = password

    @property
    def url(self) -> str:
        """Address of the database, with its password."""
        return f"postgres://{USER}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def command(self) -> list[str]:
        """TCP only (`-k ''`): a long path cannot break the limit of socket names."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "log_timezone": "UTC",
            "log_min_error_statement": "fatal",  # a statement that lost a race names its values
            "timezone": "UTC",
        }
        flags = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [
            str(self.bin_folder / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(self.port),
            *flags,
        ]

    def reap_stale(self) -> bool:
        """Also by PostgreSQL's own pid file; one that names a stranger is removed."""
        found = super().reap_stale()
        own = self.data / "postmaster.pid"
        found = reap(pid=read_pid(own), mark=str(self.data), sig=self.stop_signal) or found
        own.unlink(missing_ok=True)
        return found

    def prepare(self) -> None:
        """Make the data folder unless it is there. It appears whole, by a rename."""
        if (self.data / "PG_VERSION").exists():
            self._check_version()
            return
        draft = self.data.with_name(f"{self.data.name}.new")
        password = self.data.with_name("initdb.password")
        for old in (draft, self.data):
            shutil.rmtree(old, ignore_errors=True)
        with os.fdopen(
            os.open(password, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w"
        ) as file:
            file.write(self.password)
        self.account.own(password)
        try:
            self._initdb(draft, password)
        finally:
            password.unlink()
        draft.rename(self.data)

    def _initdb(self, folder: Path, password: Path) -> None:
        # --no-sync: three times as fast; only a power cut right after it could need the sync.
        flags = "--auth=scram-sha-256 --encoding=UTF8 --no-locale --no-instructions --no-sync"
        program = str(self.bin_folder / "initdb")
        done = subprocess.run(
            [program, "-D", str(folder), "-U", USER, f"--pwfile={password}", *flags.split()],
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self.account.popen_arguments(),
        )
        if done.returncode != 0:
            raise ServerError(
                f"initdb failed:\n{(done.stdout + done.stderr).strip()[-2000:]}\n"
                "Check that the disk has 100 MB free, or set DATABASE_URL to a server that runs."
            )

    def _check_version(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text().strip()
        said = subprocess.run(
            [str(self.bin_folder / "postgres"), "--version"],
            capture_output=True, text=True, check=False, cwd="/",
        ).stdout  # fmt: skip
        ours = said.split()[-1].split(".")[0] if said.split() else ""
        if ours and ours != made_by:
            raise ServerError(
                f"the data in {self.data} was made by PostgreSQL {made_by}, the programs are "
                f"{ours}. Remove the folder {self.control} to begin anew."
            )

    def start(self) -> None:
        """Start, and make the database at the first time."""
        super().start()
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
            if found.fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def ready(self) -> str:
        """Connect and ask; recovery after a crash ends before that succeeds."""
        try:
            with psycopg.connect(self._address("postgres")) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error as error:
            return str(error).strip().splitlines()[0] if str(error).strip() else "no answer"
        return ""

    def _address(self, database: str) -> str:
        return (
            f"host=127.0.0.1 port={self.port} user={USER} password={self.password} "
            f"dbname={database} connect_timeout=3"
        )
