"""One daemon thread a process for what a request must not wait for, with a bounded queue."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Item = TypeVar("Item")


class Background(Generic[Item]):
    """Calls `handle` with the items that wait, in the order they were put, one batch at a time.

    A batch begins `every` so many seconds at most: the first item after a pause is done at once,
    and under load many together cost less than one by one. At most `limit` items wait: more are
    dropped, so nothing may depend on them. The thread starts with the first item, also in a forked
    child, which has none of its parent's. When the process ends in order, what waits is done first,
    for at most `patience` seconds.
    """

    _items: SimpleQueue[Item | None]
    _thread: threading.Thread | None

    def __init__(
        self,
        *,
        name: str,
        handle: Callable[[list[Item]], object],
        limit: int,
        patience: float,
        every: float = 0.0,
    ) -> None:
        self._name, self._handle, self._limit = name, handle, limit
        self._patience, self._every = patience, every
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.drain)

    def put(self, item: Item) -> bool:
        """Hand an item over. False when too many wait: it was dropped."""
        if self._items.qsize() >= self._limit:
            return False
        self._items.put(item)
        if not self._lives():
            self._start()
        return True

    def drain(self) -> bool:
        """Wait until everything put so far is done; False when that took too long."""
        thread = self._thread
        if thread is None:
            return True
        self._items.put(None)
        thread.join(self._patience)
        if thread.is_alive():
            return False
        self._thread = None
        return True

    def _reset(self) -> None:
        self._items, self._thread = SimpleQueue(), None
        self._lock = threading.Lock()

    def _lives(self) -> bool:
        """A drain that did not wait to the end leaves its mark to a thread that then ends."""
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        with self._lock:
            if not self._lives():
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        items, going, not_before = self._items, True, 0.0
        while going:
            batch: list[Item] = []
            item = items.get()
            if item is not None:
                time.sleep(max(0.0, not_before - time.monotonic()))
            while item is not None:
                batch.append(item)
                try:
                    item = items.get_nowait()
                except Empty:
                    break
            going = item is not None
            not_before = time.monotonic() + self._every
            if batch:
                self._do(batch)

    def _do(self, batch: list[Item]) -> None:
        try:
            self._handle(batch)
        except Exception:
            log.exception("%s failed for %d items; the next ones follow", self._name, len(batch))
