"""Which account runs the servers, and where it keeps their files.

PostgreSQL refuses to run as root. When we are root, the servers run as `nobody` (or `postgres`):
the programs are copied once to a folder that root made and everybody may read, and the data is
outside the checkout, so that no folder of the user is opened to others.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.embedded.binaries import Programs
from config.embedded.process import ServerError

SHARED = Path("/var/lib/agentcore")


@dataclass(frozen=True)
class Account:
    """Who runs the servers: another account when we are root, else ourselves (`uid` is None)."""

    name: str
    uid: int | None
    gid: int | None

    def popen_arguments(self) -> dict[str, Any]:
        """Arguments for `subprocess` that change to this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give `path` itself to this account."""
        if self.uid is not None:
            os.chown(path, self.uid, self.gid or 0)


def choose_account() -> Account:
    """Return ourselves, or for root an account without rights. Raises ServerError."""
    if os.geteuid() != 0:
        return Account("", None, None)
    for name in ("nobody", "postgres"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise ServerError(
        "PostgreSQL cannot run as root, and there is no account `nobody` or `postgres` to run it. "
        "Run this as an ordinary user, or set DATABASE_URL and REDIS_URL."
    )


def data_folder(*, account: Account, control: Path) -> Path:
    """Return the folder of the servers' data for the control folder `control`, made if missing.

    For root it is named after the path and a random mark in `control`, so it lives as long as
    `control` does: without the mark the old data is removed here.
    """
    if account.uid is None:
        data = control / "data"
        data.mkdir(mode=0o700, exist_ok=True)
        return data
    mark = control / "data.id"
    if not mark.exists():
        mark.write_text(secrets.token_hex(4))
    place = hashlib.sha256(str(control).encode()).hexdigest()[:12]
    data = SHARED / f"data-{place}-{mark.read_text().strip()}"
    _make_shared()
    for old in SHARED.glob(f"data-{place}-*"):
        if old != data:
            shutil.rmtree(old, ignore_errors=True)
    data.mkdir(mode=0o700, exist_ok=True)
    account.own(data)
    return data


def usable_programs(*, account: Account, programs: Programs, name: str, sample: str) -> Path:
    """Return the program folder that `account` can run, copying the tree once when we are root.

    The copy is named after the hash of the program `sample`, appears whole by a rename, and is
    used by every checkout of the machine.
    """
    if account.uid is None or programs.root is None:
        return programs.bin
    digest = hashlib.sha256((programs.bin / sample).read_bytes()).hexdigest()[:16]
    target = SHARED / f"{name}-{digest}"
    inside = target / programs.root.name / programs.bin.relative_to(programs.root)
    if target.exists():
        return inside
    _make_shared()
    draft = SHARED / f".{name}-{secrets.token_hex(6)}"
    try:
        for tree in _trees(programs.root):
            shutil.copytree(tree, draft / tree.name, symlinks=True, ignore=_unneeded)
        _open_for_reading(draft)
        draft.rename(target)
    except FileExistsError:
        shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if not target.exists():
            raise ServerError(f"cannot copy {name} to {target}: {error}") from error
    return inside


def _make_shared() -> None:
    try:
        SHARED.mkdir(parents=True, exist_ok=True)
        SHARED.chmod(0o755)
    except OSError as error:
        raise ServerError(
            f"root needs {SHARED} for the embedded servers: {error}. Run this as an ordinary "
            "user, or set DATABASE_URL and REDIS_URL."
        ) from error


def _trees(root: Path) -> list[Path]:
    """The package and, beside it, the shared libraries that its wheel brought."""
    libraries = root.with_name(f"{root.name}.libs")
    return [root, libraries] if libraries.is_dir() else [root]


def _unneeded(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in {"include", "__pycache__"} or name.endswith(".py")}


def _open_for_reading(top: Path) -> None:
    """Files of a wheel may be closed to others under a strict umask; the copy is for all."""
    for path in (top, *top.rglob("*")):
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode) & 0o755
        executable = path.is_dir() or mode & 0o100
        path.chmod(mode | (0o555 if executable else 0o444))
