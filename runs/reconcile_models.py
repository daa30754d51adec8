"""What people and downstreams said about writes whose fate was not known."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id
from agentcore.reconciling import Ground, Verdict, Word


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(str(item), str(item)) for item in enum]  # type: ignore[attr-defined]


class Reconciliation(models.Model):
    """One verdict of one person, with its evidence; append-only.

    `sends` is the number of attempts that had been made. A resend takes two rows by two people;
    the second one `agrees_with` the first, and together they grant exactly one more attempt.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, related_name="reconciliations")
    action = models.ForeignKey(
        "runs.ActionJournal", on_delete=models.PROTECT, related_name="reconciliations"
    )
    verdict = models.CharField(max_length=24, choices=_choices(Verdict))
    person = models.CharField(max_length=200)
    evidence = models.TextField()
    evidence_link = models.CharField(max_length=500, blank=True)
    ground = models.CharField(max_length=24, blank=True, choices=_choices(Ground))
    downstream_ref = models.CharField(max_length=200, blank=True)
    result = models.JSONField(null=True)
    next_probe_at = models.DateTimeField(null=True)
    action_revision = models.BigIntegerField()
    sends = models.PositiveSmallIntegerField()
    agrees_with = models.OneToOneField("self", on_delete=models.PROTECT, null=True)
    from_state = models.CharField(max_length=20)
    to_state = models.CharField(max_length=20)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["action", "action_revision"], name="reconciliation_once_per_revision"
            ),
            models.CheckConstraint(condition=~Q(evidence=""), name="reconciliation_has_evidence"),
            models.CheckConstraint(
                condition=~Q(verdict="EFFECT_EXISTS") | ~Q(downstream_ref=""),
                name="reconciliation_effect_has_reference",
            ),
            models.CheckConstraint(
                condition=~Q(verdict="EFFECT_DOES_NOT_EXIST") | ~Q(ground=""),
                name="reconciliation_absence_has_ground",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} by {self.person}"


class Callback(models.Model):
    """One signed message of a downstream about an effect: stored first, then matched.

    `settled_at` is null while it waits: for an action with its key or reference, or for a request
    that may still be on its way. `did` says in the end what it came to.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    source = models.CharField(max_length=80)
    event_id = models.CharField(max_length=255)
    body_sha256 = models.CharField(max_length=64)
    word = models.CharField(max_length=10, choices=_choices(Word))
    idempotency_key = models.CharField(max_length=64, blank=True)
    reference = models.CharField(max_length=200, blank=True)
    result = models.JSONField(null=True)
    detail = models.TextField(blank=True)
    sent_at = models.DateTimeField()
    created_at = models.DateTimeField()
    action = models.ForeignKey(
        "runs.ActionJournal", on_delete=models.PROTECT, null=True, related_name="callbacks"
    )
    did = models.CharField(max_length=16, blank=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "event_id"], name="callback_once"),
            models.CheckConstraint(
                condition=~Q(idempotency_key="") | ~Q(reference=""), name="callback_names_effect"
            ),
            models.CheckConstraint(
                condition=Q(settled_at__isnull=True, did="")
                | (Q(settled_at__isnull=False) & ~Q(did="")),
                name="callback_settled_whole",
            ),
        ]
        indexes = [
            models.Index(
                fields=["created_at"],
                condition=Q(settled_at__isnull=True),
                name="callback_parked_ix",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.event_id} {self.word}"
