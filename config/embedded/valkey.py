"""The embedded Valkey: loopback, a password, append-only file, nothing evicted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.embedded.process import Server


class Valkey(Server):
    """A Valkey (or Redis) server on `data`."""

    name = "valkey"
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL  # the file survives it, and a frozen server hears nothing else
    patience = 5.0

    def __init__(self, *, program: Path, password: str, **common: Any) -> None:
        super().__init__(**common)
        self.program = program
        self.password = password

    @property
    def url(self) -> str:
        """Address of database 0, with its password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def config(self) -> Path:
        """The configuration file; it lies in `data`, so the command names our folder."""
        return self.data / "valkey.conf"

    def command(self) -> list[str]:
        """The password is in a file of mode 0600: everybody can read a command line."""
        return [str(self.program), str(self.config)]

    def prepare(self) -> None:
        """Make the data folder and write the configuration."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        self.account.own(self.data)
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": f'"{self.data}"',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "set-proc-title": "no",  # else the command no longer names our folder
        }
        draft = self.config.with_suffix(".new")
        draft.unlink(missing_ok=True)
        text = "".join(f"{key} {value}\n" for key, value in settings.items())
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
        self.account.own(draft)
        draft.rename(self.config)

    def client(self) -> redis.Redis:
        """A client that does not retry, with time-outs of 2 s."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self.password,
            socket_timeout=2,
            socket_connect_timeout=2,
            retry=Retry(NoBackoff(), 0),
        )

    def flush(self) -> None:
        """Forget everything, as after a loss of the broker."""
        with self.client() as client:
            client.flushall()

    def ready(self) -> str:
        """PING with the password; loading a large file ends before that succeeds."""
        try:
            with self.client() as client:
                client.ping()
        except redis.RedisError as error:
            return str(error) or type(error).__name__
        return ""
