"""What a run found out and what it spent: two tables that only grow."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id
from agentcore.ledger import Entry


class Evidence(models.Model):
    """One observed fact: where it came from, about what, as of when. The text itself stays with
    its action; `sha256` is the hash of what the model was shown.

    `verified`: the answer of a read fitted its declared type, or the system of record confirmed a
    write. What the model says is never evidence.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, related_name="evidence")
    turn = models.PositiveIntegerField()
    action = models.ForeignKey(
        "runs.ActionJournal",
        on_delete=models.PROTECT,
        null=True,
        related_name="evidence",
        db_index=False,
    )
    source = models.CharField(max_length=200)
    about = models.CharField(max_length=200, blank=True)
    version = models.CharField(max_length=200, blank=True)
    sha256 = models.CharField(max_length=64)
    verified = models.BooleanField()
    observed_at = models.DateTimeField()
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "evidence"
        constraints = [
            models.UniqueConstraint(
                fields=["action", "source"],
                condition=Q(action__isnull=False),
                name="evidence_once_per_source",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.about}"


class Ledger(models.Model):
    """One line of a run's account, for one attempt of a model call. Costs are millionths of a US
    dollar; `price_from` names the line of the price table that was used.

    RESERVE before the call; SETTLE once after it (`estimated` where the provider said nothing or
    the call was lost); CORRECT when the true usage arrives after an estimate, as a difference.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Read by the attempts of the run: an index of its own would be an entry for every line.
    run = models.ForeignKey(
        "runs.Run", on_delete=models.PROTECT, related_name="ledger", db_index=False
    )
    attempt = models.ForeignKey(
        "runs.Attempt", on_delete=models.PROTECT, related_name="ledger", db_index=False
    )
    turn = models.PositiveIntegerField()
    entry = models.CharField(max_length=8, choices=[(str(e), str(e)) for e in Entry])
    model = models.CharField(max_length=120)
    input_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField()
    cost = models.BigIntegerField(default=0)
    price_from = models.DateField(null=True)
    estimated = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "ledger line"
        constraints = [
            models.UniqueConstraint(fields=["attempt", "entry"], name="ledger_once"),
            models.CheckConstraint(
                condition=Q(entry__in=[str(e) for e in Entry]), name="ledger_entry_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.entry} {self.attempt_id}"
