"""Reads the event log for every stream of a process: what many ask for is one query."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection

from runs.api.render import event_json
from runs.models import Event, Run
from runs.selectors import Kin

T = TypeVar("T")
PAGE = 50
"""Events of one run in one page."""
AT_ONCE = 200
"""Pages that one query reads."""
THREADS = 4
DONE = b"event: done\ndata: {}\n\n"

_PAGES = f"""
    SELECT w.after AS asked_after, e.*
    FROM unnest(%s::uuid[], %s::bigint[]) AS w(run_id, after)
    CROSS JOIN LATERAL (
        SELECT * FROM runs_event e WHERE e.run_id = w.run_id AND e.seq > w.after
        ORDER BY e.seq LIMIT {PAGE}
    ) e
"""  # noqa: S608  (a number of ours)


@dataclass(frozen=True, slots=True)
class Page:
    """What follows a cursor: bytes ready to send and the `seq` of the last event in them.

    `ended`: the run has ended and nothing follows any more.
    """

    chunk: bytes
    last: int
    ended: bool


Ask = tuple[UUID, int]


class Hub:
    """Pages of events, and a few threads for what blocks. Belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="streams")
        self._asked: dict[Ask, asyncio.Future[Page]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args))

    async def page(self, run_id: UUID, after: int) -> Page:
        """What follows `after` in the log of a run. Raises the error of the database."""
        ask = (run_id, after)
        future = self._asked.get(ask)
        if future is None:
            future = self._asked[ask] = asyncio.get_running_loop().create_future()
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read())
        return await asyncio.shield(future)

    async def _read(self) -> None:
        """Answer everything that was asked, as long as there is something."""
        while self._asked:
            asked = dict(list(self._asked.items())[:AT_ONCE])
            for ask in asked:
                del self._asked[ask]
            try:
                pages = await self.in_thread(read_pages, list(asked))
            except Exception as error:  # noqa: BLE001  (handed to those who asked)
                for future in asked.values():
                    future.set_exception(error)
                continue
            for ask, future in asked.items():
                future.set_result(pages[ask])


def read_pages(asks: Sequence[Ask]) -> dict[Ask, Page]:
    """The pages of several cursors, with two queries."""
    try:
        ids = [run_id for run_id, _ in asks]
        # The heads first: what they promise is then in the events, perhaps with more.
        rows = Run.objects.filter(id__in=set(ids)).values_list(
            "id", "event_seq", "ended_at", "parent_id", "root_id"
        )
        heads = {run_id: (head, ended is not None, Kin(*kin)) for run_id, head, ended, *kin in rows}
        found: dict[Ask, list[Event]] = {ask: [] for ask in asks}
        for event in Event.objects.raw(_PAGES, [ids, [after for _, after in asks]]):
            found[event.run_id, event.asked_after].append(event)  # type: ignore[attr-defined]
        return {ask: _page(ask, events, *heads[ask[0]]) for ask, events in found.items()}
    finally:
        connection.close()  # back to the pool


def _page(ask: Ask, events: list[Event], head: int, ended: bool, kin: Kin) -> Page:
    ordered = sorted(events, key=lambda event: event.seq)
    last = ordered[-1].seq if ordered else ask[1]
    chunk = b"".join(sse(event_json(event, kin)) for event in ordered)
    return Page(chunk, last, ended=ended and last >= head)


def sse(event: dict[str, Any]) -> bytes:
    """One event as the lines of a stream."""
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event['seq']}\nevent: {event['type']}\ndata: {data}\n\n".encode()
