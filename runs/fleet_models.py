"""Who holds what: the owner of a business intent, and the worker processes of the fleet."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class KeyOwner(models.Model):
    """Which action owns a business intent. At most one live owner an intent."""

    tenant = models.CharField(max_length=64)
    tool = models.CharField(max_length=120)
    intent_key = models.CharField(max_length=64)
    generation = models.PositiveIntegerField()
    action = models.ForeignKey("runs.ActionJournal", on_delete=models.PROTECT, related_name="+")
    fingerprint = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "tool", "intent_key"],
                condition=Q(released_at__isnull=True),
                name="key_one_live_owner",
            ),
            models.UniqueConstraint(
                fields=["tenant", "tool", "intent_key", "generation"], name="key_generation_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.intent_key[:12]} g{self.generation}"


class Worker(models.Model):
    """One worker process; it lives while its beat is fresh. One write a beat for all its runs."""

    id = models.UUIDField(primary_key=True)
    hostname = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    queues = models.JSONField(default=list)
    version = models.CharField(max_length=40)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    swept_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.hostname}:{self.pid}"
