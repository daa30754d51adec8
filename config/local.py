"""Secrets of a checkout on one machine: made once, kept in `.run/` with mode 0600."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def local_secret(*, folder: Path, name: str) -> str:
    """Return the secret `name` of `folder`, made on first use.

    Several processes may ask at once: the file appears whole, by a link of a finished file, and
    the first one wins. Raises OSError when the folder cannot be written.
    """
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{name}.{secrets.token_hex(8)}"
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
