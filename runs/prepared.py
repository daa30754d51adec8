"""Prepared statements for the few long texts of a turn: PostgreSQL reads and plans each one once.

A statement belongs to its connection, so the names are kept by connection. Values travel in
`EXECUTE name (…)`, which needs no protocol of its own and can be one of several commands of a round
trip. Behind a pooler that gives each transaction another connection this cannot work
(`AGENTCORE_PREPARED_STATEMENTS=0`). If nobody said so the first error does: its transaction is
written in the other way (`commits.py`) or once more, and texts are sent whole from then on.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db import DatabaseError
from psycopg import errors

T = TypeVar("T")

log = logging.getLogger(__name__)

AFTER = 2
"""Uses of a text in this process before it is worth preparing."""
MOST = 32
"""Prepared statements of one connection; a plan takes about 0.2 MB."""
SEEN_MOST = 1000

Names = OrderedDict[str, str]
_names: WeakKeyDictionary[psycopg.Connection[Any], Names] = WeakKeyDictionary()
_seen: Counter[str] = Counter()
_number = itertools.count()
_possible = True

REFUSED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
"""What says that the connection is not ours alone."""


@dataclass(frozen=True, slots=True)
class Call:
    """How to send a text now: by its `name`, "" for the text itself. `first` goes before it in the
    same round trip."""

    known: Names
    whole: str
    name: str = ""
    first: tuple[str, ...] = ()

    def text(self, values: int) -> str:
        """What to send, with `%s` for each of that many values."""
        return f"EXECUTE {self.name} ({', '.join(['%s'] * values)})" if self.name else self.whole

    def failed(self, error: BaseException) -> None:
        """After an error nobody knows whether it was prepared: the next use takes another name.

        Save for a rule or a unique key that said no: PREPARE meets none, and goes first. Another
        name each time would fill the server's memory where a client gets nothing but refusals.
        """
        global _possible  # noqa: PLW0603  (one a process)
        cause = error.__cause__ or error
        if self.first and not isinstance(cause, psycopg.IntegrityError):
            self.known.pop(self.whole, None)
        if isinstance(cause, REFUSED):
            _possible = False
            log.warning("prepared statements are switched off: %s", error)


def call(conn: psycopg.Connection[Any], text: str) -> Call:
    """How to send `text`, in which `%s` stands for each value, on this connection."""
    known = _names.setdefault(conn, OrderedDict())
    if not (_possible and settings.AGENTCORE_OPTIONS.prepared_statements):
        return Call(known, text)
    if name := known.get(text):
        known.move_to_end(text)
        return Call(known, text, name)
    _seen[text] += 1
    if _seen[text] <= AFTER:
        if len(_seen) > SEEN_MOST:
            _seen.clear()
        return Call(known, text)
    # Of the text and a number: behind a pooler the name of another text must not be found.
    name = f"ac_{hashlib.sha256(text.encode()).hexdigest()[:24]}_{next(_number)}"
    first = [f"PREPARE {name} AS {_numbered(text)}"]
    if len(known) >= MOST:
        first.append(f"DEALLOCATE {known.popitem(last=False)[1]}")
    known[text] = name
    return Call(known, text, name, tuple(first))


def again(act: Callable[[], T]) -> T:
    """`act`, which is one transaction; once more when it was the first to see that statements
    cannot be prepared here. Nothing of it was kept then."""
    try:
        return act()
    except DatabaseError as error:
        if not isinstance(error.__cause__, REFUSED):
            raise
        return act()


def _numbered(text: str) -> str:
    parts = text.split("%s")
    return "".join(f"{part}${n}" for n, part in enumerate(parts[:-1], 1)) + parts[-1]
