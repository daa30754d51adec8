"""What happened, and what contradicts it: rows that are only ever added."""

from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models


class Event(models.Model):
    """What happened, append-only: one row per transaction, `seq` without gaps per run.

    `data.transitions` lists every move of the transaction; `hash` chains the row to the one before.
    `txn` names the transaction, so that a lost COMMIT reply can be looked up.
    """

    run = models.ForeignKey(
        "runs.Run", on_delete=models.PROTECT, related_name="events", db_index=False
    )
    seq = models.BigIntegerField()
    type = models.CharField(max_length=40)
    actor = models.CharField(max_length=200)
    revision_before = models.BigIntegerField()
    revision_after = models.BigIntegerField()
    data = models.JSONField()
    txn = models.UUIDField()
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_seq_once")]
        # For the feed of all events; a block range index costs the hot path next to nothing.
        indexes = [BrinIndex(fields=["created_at"], name="event_time_ix", pages_per_range=16)]

    def __str__(self) -> str:
        return f"{self.run_id}#{self.seq} {self.type}"


class Incident(models.Model):
    """Evidence that contradicts a terminal action. Never a state change."""

    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, related_name="incidents")
    action = models.ForeignKey("runs.ActionJournal", on_delete=models.PROTECT, null=True)
    attempt = models.ForeignKey("runs.Attempt", on_delete=models.PROTECT, null=True)
    kind = models.CharField(max_length=40)
    detail = models.TextField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.kind} {self.action_id}"
