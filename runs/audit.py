"""The audit: every event chained to the one before it, and anchors over the heads of all runs.

The chain of a run shows an event that was changed, left out, moved or put in. An anchor, made every
few minutes, fixes the heads of all runs that have moved: it shows a chain whose end was cut off
together with the head on its run. The anchors are a chain themselves; the newest one, written down
somewhere else, vouches for everything before it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agentcore.canonical import canonical_json, sha256_hex
from runs.control_models import AuditAnchor, AuditEntry
from runs.event_models import Event
from runs.event_rows import hash_after
from runs.models import Run
from runs.selectors import database_clock

LOCK_KEY = 0x6167_6175
EVERY = timedelta(minutes=5)
OVERLAP = timedelta(minutes=15)
"""How far an anchor looks back before the last one: a transaction may commit late."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class Broken:
    """The first thing that does not fit. `anchor` is None for a chain of a run."""

    problem: str
    run_id: UUID | None = None
    seq: int | None = None
    event_id: int | None = None
    anchor: int | None = None

    @property
    def text(self) -> str:
        """One line for people."""
        where = [
            f"anchor {self.anchor}" if self.anchor is not None else "",
            f"run {self.run_id}" if self.run_id else "",
            f"event {self.seq}" if self.seq is not None else "",
            f"(row {self.event_id})" if self.event_id is not None else "",
        ]
        return " ".join(part for part in where if part) + f": {self.problem}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what is broken. `newest` is the hash of the last anchor."""

    runs: int
    events: int
    anchors: int
    newest: str
    broken: Broken | None


# --- verifying ---------------------------------------------------------------------------------


def verify(*, run_id: UUID | None = None) -> Report:
    """Every chain from its first event, run by run, then the anchors; stops at what is broken."""
    runs = events = 0
    broken: Broken | None = None
    for run in _runs(run_id):
        count, broken = _verify_run(run)
        runs, events = runs + 1, events + count
        if broken is not None:
            return Report(runs, events, 0, "", broken)
    if run_id is not None:
        return Report(runs, events, 0, "", _verify_entries_of(run_id))
    anchors, newest, broken = _verify_anchors()
    return Report(runs, events, anchors, newest, broken)


def verify_run(run_id: UUID) -> Broken | None:
    """One run: its chain, its head, and the anchors that name it."""
    return verify(run_id=run_id).broken


def _runs(run_id: UUID | None) -> Iterator[Run]:
    rows = Run.objects.only("id", "event_seq", "event_head").order_by("id")
    if run_id is not None:
        yield from rows.filter(pk=run_id)
        return
    page = list(rows[:PAGE])
    while page:
        yield from page
        page = list(rows.filter(pk__gt=page[-1].pk)[:PAGE])


def _verify_run(run: Run) -> tuple[int, Broken | None]:
    """The events of a run against each other and against the head on its row."""
    expected, previous = 1, ""
    for event in Event.objects.filter(run_id=run.pk).order_by("seq").iterator(PAGE):
        problem = ""
        if event.seq != expected:
            problem = f"event {expected} is missing before it"
        elif not hmac.compare_digest(event.hash, hash_after(previous, event)):
            problem = "it is not what was written, or not in its place"
        if problem:
            found = Broken(problem, run_id=run.pk, seq=event.seq, event_id=event.pk)
            return expected - 1, found
        expected, previous = expected + 1, event.hash
    last = expected - 1
    if (last, previous) != (run.event_seq, run.event_head):
        problem = f"the run has {run.event_seq} events, the last {last} of them fit"
        if last < run.event_seq:
            problem = f"the run had {run.event_seq} events, those after {last} are gone"
        return last, Broken(problem, run_id=run.pk, seq=last)
    return last, None


def _verify_anchors() -> tuple[int, str, Broken | None]:
    number, previous = 0, ""
    for anchor in AuditAnchor.objects.order_by("number").iterator(PAGE):
        if anchor.number != number + 1:
            return number, previous, Broken(f"anchor {number + 1} is missing", anchor=anchor.number)
        entries = list(anchor.entries.order_by("run_id", "seq"))
        problem = _anchor_problem(anchor, entries, previous) or _entries_problem(anchor, entries)
        if problem is not None:
            return number, previous, problem
        number, previous = anchor.number, anchor.hash
    return number, previous, None


def _anchor_problem(anchor: AuditAnchor, entries: list[AuditEntry], previous: str) -> Broken | None:
    if (len(entries), _digest(entries)) != (anchor.count, anchor.entries_sha256):
        return Broken("its entries are not those it was made of", anchor=anchor.number)
    if not hmac.compare_digest(anchor.hash, _anchor_hash(anchor, previous)):
        return Broken("it is not what was written, or not in its place", anchor=anchor.number)
    return None


def _entries_problem(anchor: AuditAnchor, entries: list[AuditEntry]) -> Broken | None:
    """The events that an anchor names are there, with these hashes."""
    for start in range(0, len(entries), PAGE):
        part = entries[start : start + PAGE]
        found = Event.objects.filter(run_id__in={row.run_id for row in part})
        wanted = found.filter(seq__in={row.seq for row in part})
        hashes = {(e.run_id, e.seq): e.hash for e in wanted.only("run_id", "seq", "hash")}
        for row in part:
            if hashes.get((row.run_id, row.seq)) != row.hash:
                problem = "the event that was there is gone or another one"
                return Broken(problem, run_id=row.run_id, seq=row.seq, anchor=anchor.number)
    return None


def _verify_entries_of(run_id: UUID) -> Broken | None:
    for row in AuditEntry.objects.filter(run_id=run_id).select_related("anchor").order_by("seq"):
        broken = _entries_problem(row.anchor, [row])
        if broken is not None:
            return broken
    return None


# --- anchoring ---------------------------------------------------------------------------------


def anchor_due() -> int:
    """Make the next anchor when the last one is `EVERY` old; the number of runs in it."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK_KEY])
        if not cursor.fetchone()[0]:
            return 0
        last = AuditAnchor.objects.order_by("-number").first()
        now = database_clock()
        if last is not None and last.created_at > now - EVERY:
            return 0
        return _anchor(last, now)


def anchor_now() -> int:
    """Make an anchor whatever the age of the last one; the number of runs in it."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_KEY])
        return _anchor(AuditAnchor.objects.order_by("-number").first(), database_clock())


def _anchor(last: AuditAnchor | None, now: datetime) -> int:
    entries = _moved_since(last.created_at - OVERLAP if last is not None else None)
    if not entries:
        return 0
    anchor = AuditAnchor(
        number=last.number + 1 if last is not None else 1,
        count=len(entries),
        entries_sha256=_digest(entries),
        created_at=now,
    )
    anchor.hash = _anchor_hash(anchor, last.hash if last is not None else "")
    anchor.save(force_insert=True)
    for entry in entries:
        entry.anchor, entry.created_at = anchor, now
    AuditEntry.objects.bulk_create(entries, batch_size=1000)
    return len(entries)


_MOVED = """
    SELECT r.id, r.event_seq, r.event_head FROM runs_run r
    WHERE r.event_seq > 0 {since}
      AND NOT EXISTS (SELECT 1 FROM runs_auditentry a
                      WHERE a.run_id = r.id AND a.seq = r.event_seq)
    ORDER BY r.id, r.event_seq
"""
_SINCE = "AND r.id IN (SELECT run_id FROM runs_event WHERE created_at >= %s)"


def _moved_since(since: datetime | None) -> list[AuditEntry]:
    """The heads that no anchor names yet, of the runs with an event since then; all at first."""
    with connection.cursor() as cursor:
        if since is None:
            cursor.execute(_MOVED.format(since=""))
        else:
            cursor.execute(_MOVED.format(since=_SINCE), [since])
        rows = cursor.fetchall()
    return [AuditEntry(run_id=run_id, seq=seq, hash=head) for run_id, seq, head in rows]


def _digest(entries: list[AuditEntry]) -> str:
    return sha256_hex(canonical_json([[str(e.run_id), e.seq, e.hash] for e in entries]))


def _anchor_hash(anchor: AuditAnchor, previous: str) -> str:
    at = anchor.created_at.isoformat()
    parts = [previous, anchor.number, anchor.count, anchor.entries_sha256, at]
    key = settings.AGENTCORE_OPTIONS.event_key
    return hmac.new(key, b"anchor" + canonical_json(parts), hashlib.sha256).hexdigest()
