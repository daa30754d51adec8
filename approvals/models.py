"""Asking people: one approval is one expiring decision bound to one hash."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id
from agentcore.lifecycle import ApprovalState


class Approval(models.Model):
    """One question to a person about one action.

    `run_id` and `action_id` are plain ids: this app does not know the tables of `runs`.
    Frozen after insert: everything but `state`, `decided_at` and `consumed_at`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    run_id = models.UUIDField()
    action_id = models.UUIDField()
    state = models.CharField(
        max_length=16, choices=[(str(s), str(s)) for s in ApprovalState], default="PENDING"
    )
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=40)
    policy_version = models.CharField(max_length=80)
    rule = models.CharField(max_length=200)
    arguments = models.JSONField()
    params_hash = models.CharField(max_length=64)
    resource_key = models.CharField(max_length=200, blank=True)
    resource_version = models.CharField(max_length=200, blank=True)
    impact = models.JSONField(null=True)
    requester = models.CharField(max_length=200)
    role = models.CharField(max_length=80, blank=True)
    required_count = models.PositiveSmallIntegerField(default=1)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    consumed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[str(s) for s in ApprovalState]), name="approval_state_known"
            ),
            models.UniqueConstraint(
                fields=["action_id"],
                condition=Q(state__in=["PENDING", "APPROVED"]),
                name="approval_one_live_per_action",
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"], condition=Q(state="PENDING"), name="approval_pending_ix"
            ),
            models.Index(fields=["run_id"], name="approval_run_ix"),
        ]
        permissions = [("decide_approval", "Can approve or reject an action")]

    def __str__(self) -> str:
        return f"{self.tool} {self.state} {self.id}"


class ApprovalVote(models.Model):
    """What one person said; append-only. One vote a person and approval."""

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="votes")
    voter = models.CharField(max_length=200)
    decision = models.CharField(
        max_length=16, choices=[("APPROVE", "approve"), ("REJECT", "reject")]
    )
    reason = models.TextField(blank=True)
    params_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "voter"], name="vote_once_per_person"),
            models.CheckConstraint(
                condition=Q(decision__in=["APPROVE", "REJECT"]), name="vote_decision_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.voter}: {self.decision}"
