"""Event streams (SSE) over ASGI: the log of a run from any point on, without gap and repetition.

A stream is a cursor and a signal. It asks the hub for what follows the cursor, sends it, and waits
for the signal; the hub reads for all streams of the process with one query at a time. So an open
stream holds no thread and no database connection, and what it sends comes from the Event table
alone: a cut at any byte is mended by asking again with the last id.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse

from runs.api.events import Admission, admit
from runs.api.hub import DONE, Hub, Page
from runs.watching import watching

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

_PATH = re.compile(r"/api/v1/runs/([^/]+)/events")
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
RETRY = 3000
"""Milliseconds after which a client should come back."""


class EventStreams:
    """An ASGI application: event streams here, everything else by `app`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._hub: Hub | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_stream(scope):
            await self._app(scope, receive, send)
            return
        self._hub = self._hub or Hub()
        answer = await self._hub.in_thread(_admission, scope)
        if isinstance(answer, HttpResponse):
            await _refuse(answer, send)
            return
        stream = _Stream(self._hub, answer, receive, send)
        await stream.run()


def _is_stream(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    return b"text/event-stream" in accept.lower() and bool(_PATH.fullmatch(scope["path"]))


def _admission(scope: Scope) -> Admission | HttpResponse:
    """Who may read what from where, or the answer that refuses: the rules of the plain route."""
    match = _PATH.fullmatch(scope["path"])
    try:
        request = ASGIRequest(scope, io.BytesIO())
        return admit(request, match[1] if match else "")
    finally:
        connection.close()


async def _refuse(answer: HttpResponse, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})


class _Stream:
    """One open stream."""

    def __init__(self, hub: Hub, admission: Admission, receive: Receive, send: Send) -> None:
        self._hub = hub
        self._run_id: UUID = admission.run_id
        self._cursor = admission.after
        self._receive = receive
        self._send = send
        self._moved = asyncio.Event()
        self._gone = False
        self._until = time.monotonic() + settings.AGENTCORE_OPTIONS.stream_seconds

    async def run(self) -> None:
        """Replay, then follow; ends with the run, with the client, or after `stream_seconds`."""
        loop = asyncio.get_running_loop()
        leaving = asyncio.create_task(self._wait_until_gone())
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._write(f"retry: {RETRY}\n\n".encode())
            with watching(
                self._run_id,
                seen=self._cursor,
                told=lambda: loop.call_soon_threadsafe(self._moved.set),
            ):
                await self._follow()
            if not self._gone:
                await self._send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()

    async def _follow(self) -> None:
        heartbeat = settings.AGENTCORE_OPTIONS.stream_heartbeat
        while not self._gone:
            self._moved.clear()
            page: Page = await self._hub.page(self._run_id, self._cursor)
            if page.chunk:
                await self._write(page.chunk)
                self._cursor = page.last
                continue
            if page.ended:
                await self._write(DONE)
                return
            left = self._until - time.monotonic()
            if left <= 0:
                return  # the client comes back and is checked anew
            try:
                async with asyncio.timeout(min(heartbeat, left)):
                    await self._moved.wait()
            except TimeoutError:
                await self._write(b": still here\n\n")

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _wait_until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._moved.set()
