"""What operators set while the code stays as it is: thresholds of the policy, and kill switches.

`Controls.stamp` is another one after every change of either. The transaction that starts a call
compares it with the one its decision was made with (`runs/controls.py`).
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id


class Controls(models.Model):
    """One row: the name of the last change of thresholds or switches."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    stamp = models.UUIDField()

    class Meta:
        verbose_name_plural = "controls"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="controls_one_row")]


class PolicyThreshold(models.Model):
    """One rule of an operator; it can only make the policy of the code stricter.

    Never changed, only retired: `agentcore.policy.Threshold` says what its columns mean.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64, blank=True)
    tool = models.CharField(max_length=120)
    argument = models.CharField(max_length=200, blank=True)
    op = models.CharField(max_length=8, default="always")
    value = models.JSONField(null=True)
    verdict = models.CharField(
        max_length=4, choices=[("ASK", "ask a person"), ("DENY", "refuse")], default="ASK"
    )
    role = models.CharField(max_length=80, blank=True)
    quorum = models.PositiveSmallIntegerField(default=1)
    ttl_seconds = models.PositiveIntegerField(null=True)
    reason = models.TextField()
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True)
    retired_by = models.CharField(max_length=200, blank=True)
    retire_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="threshold_has_reason"),
            models.CheckConstraint(
                condition=Q(verdict__in=["ASK", "DENY"]), name="threshold_verdict_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool}: {self.argument} {self.op} {self.value}"


class Switch(models.Model):
    """Whether an agent or a tool is switched off now, by whom and why.

    `held` stays true after an agent was switched on until its runs have been let go.
    """

    kind = models.CharField(max_length=8, choices=[("AGENT", "agent"), ("TOOL", "tool")])
    name = models.CharField(max_length=120)
    is_off = models.BooleanField()
    held = models.BooleanField(default=False)
    reason = models.TextField()
    changed_by = models.CharField(max_length=200)
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "switches"
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], name="switch_once"),
            models.CheckConstraint(condition=Q(kind__in=["AGENT", "TOOL"]), name="switch_kind"),
            models.CheckConstraint(condition=~Q(reason=""), name="switch_has_reason"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {'off' if self.is_off else 'on'}"


class SwitchChange(models.Model):
    """The history of the switches; append-only."""

    kind = models.CharField(max_length=8)
    name = models.CharField(max_length=120)
    is_off = models.BooleanField()
    reason = models.TextField()
    changed_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {'off' if self.is_off else 'on'}"


class AuditAnchor(models.Model):
    """The heads of all runs that moved since the anchor before it, chained; append-only."""

    number = models.BigIntegerField(unique=True)
    count = models.PositiveIntegerField()
    entries_sha256 = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"anchor {self.number}"


class AuditEntry(models.Model):
    """The head of one run's event chain when an anchor was made; append-only."""

    anchor = models.ForeignKey(AuditAnchor, on_delete=models.PROTECT, related_name="entries")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "audit entries"
        constraints = [models.UniqueConstraint(fields=["run_id", "seq"], name="audit_entry_once")]

    def __str__(self) -> str:
        return f"{self.run_id}#{self.seq}"
