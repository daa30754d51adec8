"""Every try of an outside call."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id
from agentcore.values import AttemptKind, OutcomeKind


class Attempt(models.Model):
    """One try of one outside call. Written before the call; `outcome` is written once after it.

    `lost_at` is set when the process that made the call is gone; the outcome may still arrive.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, related_name="attempts")
    turn = models.PositiveIntegerField()
    action = models.ForeignKey(
        "runs.ActionJournal",
        on_delete=models.PROTECT,
        null=True,
        related_name="attempts",
        db_index=False,
    )
    kind = models.CharField(max_length=14, choices=[(str(kind), str(kind)) for kind in AttemptKind])
    n = models.PositiveSmallIntegerField()
    fence = models.BigIntegerField()
    worker = models.UUIDField()
    idempotency_key = models.CharField(max_length=64, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)
    input_revision = models.BigIntegerField()
    send_by = models.DateTimeField()
    started_at = models.DateTimeField()
    outcome = models.CharField(
        max_length=12, null=True, choices=[(str(kind), str(kind)) for kind in OutcomeKind]
    )
    late = models.BooleanField(default=False)
    result = models.JSONField(null=True)
    error_class = models.CharField(max_length=80, blank=True)
    detail = models.TextField(blank=True)
    reference = models.CharField(max_length=200, blank=True)
    usage = models.JSONField(null=True)
    ended_at = models.DateTimeField(null=True)
    lost_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["action", "kind", "n"],
                condition=Q(action__isnull=False),
                name="attempt_of_action",
            ),
            models.UniqueConstraint(
                fields=["run", "turn", "kind", "n"],
                condition=Q(action__isnull=True),
                name="attempt_of_turn",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.n} {self.outcome or 'open'}"
