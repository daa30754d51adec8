"""Who holds what: the owner of a business intent, the worker processes of the fleet, the calls that
count against a limit."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id


class KeyOwner(models.Model):
    """Which action owns a business intent. At most one live owner an intent."""

    tenant = models.CharField(max_length=64)
    tool = models.CharField(max_length=120)
    intent_key = models.CharField(max_length=64)
    generation = models.PositiveIntegerField()
    # Found by its intent, which the action knows.
    action = models.ForeignKey(
        "runs.ActionJournal", on_delete=models.PROTECT, related_name="+", db_index=False
    )
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


class LimitUse(models.Model):
    """One outside call counted in one bucket of a limit. Bookkeeping: written only where limits are
    set, deleted when the minute and the call are over.

    `until`: the call cannot last longer; a process that dies gives its place back then.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    bucket = models.CharField(max_length=200)
    attempt_id = models.UUIDField()
    taken_at = models.DateTimeField()
    until = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["bucket", "taken_at"], name="limituse_bucket_ix"),
            models.Index(fields=["attempt_id"], name="limituse_attempt_ix"),
        ]

    def __str__(self) -> str:
        return f"{self.bucket} {self.attempt_id}"


class LimitWait(models.Model):
    """A run that waits for room in a bucket, so that it can be woken in turn."""

    run_id = models.UUIDField(primary_key=True)
    bucket = models.CharField(max_length=200)
    since = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["bucket", "since"], name="limitwait_bucket_ix")]

    def __str__(self) -> str:
        return f"{self.bucket} {self.run_id}"
