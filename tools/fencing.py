"""Holding a tool to its word that every send goes through `ctx.http`.

A write that may be made anew after it was proven absent must not be able to send late: the
transport checks the time before each connect and write, a client of the tool's own does not. So a
tool that declares `fenced_sends` may open no socket and start no process beside the transport; the
interpreter's own audit events refuse it. Threads that the tool starts itself, and libraries that
connect in C (such as database drivers), are not seen: declaring it is still the developer's word.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_WATCHED = frozenset(
    {
        "socket.connect",
        "socket.sendto",
        "socket.sendmsg",
        "subprocess.Popen",
        "os.system",
        "os.posix_spawn",
        "os.exec",
    }
)
_watching: ContextVar[bool] = ContextVar("agentcore_watching_sends", default=False)
_installed: list[bool] = []


class UnfencedSend(OSError):  # noqa: N818  (clients close their socket on an OSError)
    """A tool that declares `fenced_sends` tried to send past `ctx.http`; nothing left."""


def _hook(event: str, _: tuple[Any, ...]) -> None:
    if event in _WATCHED and _watching.get():
        raise UnfencedSend(f"{event}: the tool declares fenced_sends, so only ctx.http may send")


def _set_hook_once() -> None:
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)


@contextmanager
def only_the_transport(*, watch: bool) -> Iterator[None]:
    """While this block runs in this thread, only the transport may send; no-op without `watch`."""
    if not watch:
        yield
        return
    _set_hook_once()
    token = _watching.set(True)
    try:
        yield
    finally:
        _watching.reset(token)


@contextmanager
def the_transport() -> Iterator[None]:
    """The transport's own sends, inside `only_the_transport`."""
    token = _watching.set(False)
    try:
        yield
    finally:
        _watching.reset(token)
