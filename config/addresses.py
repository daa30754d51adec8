"""Addresses of the database and the broker: parsed, checked, and found when the embedded servers
of this checkout run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


class AddressError(ValueError):
    """An address that cannot be used; the text says what to write instead."""


def parse_database_url(url: str) -> dict[str, Any]:
    """Split `postgres://user:password@host:port/name?option=value` into Django's settings.

    Returns NAME, USER, PASSWORD, HOST, PORT (text) and OPTIONS (libpq parameters of the query).
    Raises AddressError. The password is never part of the error.
    """
    example = "postgres://user:password@host:5432/name"
    parts = _split(
        url, variable="DATABASE_URL", schemes=("postgres", "postgresql"), example=example
    )
    name = unquote(parts.path.lstrip("/"))
    if not name or "/" in name:
        raise AddressError(f"DATABASE_URL names no database: write {example}")
    return {
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or 5432),
        "OPTIONS": dict(parse_qsl(parts.query, keep_blank_values=True)),
    }


def check_redis_url(url: str) -> str:
    """Return `url` when it is a `redis://` or `rediss://` address, else raise AddressError."""
    example = "redis://:password@host:6379/0"
    parts = _split(url, variable="REDIS_URL", schemes=("redis", "rediss"), example=example)
    if parts.path.strip("/") and not parts.path.strip("/").isdigit():
        raise AddressError(f"REDIS_URL must end with a database number: write {example}")
    return url


def _split(url: str, *, variable: str, schemes: tuple[str, ...], example: str) -> Any:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise AddressError(f"{variable} cannot be read ({error}): write {example}") from None
    if parts.scheme not in schemes:
        raise AddressError(
            f"{variable} must begin with {schemes[0]}://, not {parts.scheme or 'nothing'}: "
            f"write {example}"
        )
    if not parts.hostname or port == 0:
        raise AddressError(f"{variable} names no host: write {example}")
    return parts


def running_stack(folder: Path) -> dict[str, str]:
    """The addresses of the embedded servers that run for `folder`, or an empty dict.

    Reads `stack.json`, which the launcher writes (mode 0600) and removes when it stops. The file
    of a launcher that is gone counts as none.
    """
    try:
        saved = json.loads((folder / "stack.json").read_text())
        os.kill(int(saved["pid"]), 0)
        return {"DATABASE_URL": saved["database_url"], "REDIS_URL": saved["redis_url"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
