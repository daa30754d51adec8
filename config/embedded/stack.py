"""Both servers together, for the time of a `with` block."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from config.embedded.account import Account, choose_account, data_folder, usable_programs
from config.embedded.binaries import find_postgres, find_valkey
from config.embedded.ports import free_port
from config.embedded.postgres import Postgres
from config.embedded.process import ServerError
from config.embedded.valkey import Valkey
from config.local import local_secret


@dataclass(frozen=True)
class Stack:
    """Addresses of the two servers. `postgres` and `valkey` are None for servers of others."""

    database_url: str = field(repr=False)  # they hold passwords
    redis_url: str = field(repr=False)
    postgres: Postgres | None
    valkey: Valkey | None
    account: str = ""

    def env(self) -> dict[str, str]:
        """The variables that make a process of ours use these servers."""
        return {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}


@contextmanager
def embedded_stack(
    *, folder: Path, fresh: bool = False, use_environment: bool = True
) -> Iterator[Stack]:
    """Run PostgreSQL and Valkey for the time of the block.

    `folder`: where passwords, logs and (except for root) the data are kept; a second start on it
    finds the same data, `fresh` removes it first. DATABASE_URL and REDIS_URL replace the server
    they name (unless `use_environment` is false); nothing is started for it. Raises ServerError.
    """
    given_database = os.environ.get("DATABASE_URL", "") if use_environment else ""
    given_redis = os.environ.get("REDIS_URL", "") if use_environment else ""
    if given_database and given_redis:
        yield Stack(given_database, given_redis, None, None)
        return
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with _only_launcher(folder):
        account = choose_account()
        data = data_folder(account=account, control=folder)
        postgres = None if given_database else _postgres(folder, data, account)
        valkey = None if given_redis else _valkey(folder, data, account)
        servers = [server for server in (postgres, valkey) if server is not None]
        try:
            for server in servers:
                server.reap_stale()
                if fresh:
                    shutil.rmtree(server.data, ignore_errors=True)
                server.log_path.unlink(missing_ok=True)
                server.prepare()
                server.start()
            stack = Stack(
                postgres.url if postgres else given_database,
                valkey.url if valkey else given_redis,
                postgres,
                valkey,
                account.name,
            )
            _announce(folder, stack)
            yield stack
        finally:
            (folder / "stack.json").unlink(missing_ok=True)
            for server in reversed(servers):
                server.stop()


def remove_stack(folder: Path) -> None:
    """Remove a stack that does not run: its control folder and, for root, the data elsewhere."""
    folder = folder.resolve()
    with suppress(OSError, ServerError):
        data = data_folder(account=choose_account(), control=folder)
        shutil.rmtree(data, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _postgres(folder: Path, data: Path, account: Account) -> Postgres:
    programs = find_postgres()
    return Postgres(
        bin_folder=usable_programs(
            account=account, programs=programs, name="postgresql", sample="postgres"
        ),
        password=_password(folder, "postgres.password"),
        control=folder,
        data=data / "postgres",
        account=account,
        port=free_port(),
    )


def _valkey(folder: Path, data: Path, account: Account) -> Valkey:
    programs, name = find_valkey()
    place = usable_programs(account=account, programs=programs, name="valkey", sample=name)
    return Valkey(
        program=place / name,
        password=_password(folder, "valkey.password"),
        control=folder,
        data=data / "valkey",
        account=account,
        port=free_port(),
    )


def _password(folder: Path, name: str) -> str:
    """Letters, digits, `-` and `_`: needs no quoting in an address or a file."""
    return local_secret(folder=folder, name=name)


def _announce(folder: Path, stack: Stack) -> None:
    """Write `stack.json` (mode 0600), by which commands of this checkout find the servers."""
    body = {
        "pid": os.getpid(),
        "database_url": stack.database_url,
        "redis_url": stack.redis_url,
        "started_at": time.time(),
    }
    draft = folder / f".stack.{secrets.token_hex(6)}"
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(body, file)
    draft.rename(folder / "stack.json")
    if stack.account:
        print(
            f"We are root: the embedded servers run as {stack.account}, below /var/lib/agentcore.",
            file=sys.stderr,
        )


@contextmanager
def _only_launcher(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system frees it when we die, however that happens."""
    file: IO[str]
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ServerError(
                f"the embedded servers of {folder} are in use by another process: stop the "
                "`make run` or `make demo` that is running, then try again."
            ) from None
        yield
