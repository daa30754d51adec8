"""Asking people: one approval is one expiring decision bound to one hash."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id
from agentcore.lifecycle import ApprovalState


class Approval(models.Model):
    """One question to a person about one action.

    `run_id` and `action_id` are plain ids: this app does not know the tables of `runs`.
    Frozen after insert: everything but `state`, `decided_at`, `consumed_at`, the claim and, once,
    `validation` (what the check at the start of the action came to). `supersedes` is the question
    before this one: renewed, edited or escalated. `role` may name several groups with commas.
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
    role = models.CharField(max_length=200, blank=True)
    required_count = models.PositiveSmallIntegerField(default=1)
    policy_reason = models.TextField(blank=True)
    high_risk = models.BooleanField(default=False)
    tool_digest = models.CharField(max_length=64, blank=True)
    editor = models.CharField(max_length=200, blank=True)
    renewal = models.PositiveSmallIntegerField(default=0)
    supersedes = models.UUIDField(null=True)
    standing = models.UUIDField(null=True)
    claimed_by = models.CharField(max_length=200, blank=True)
    claimed_until = models.DateTimeField(null=True)
    validation = models.JSONField(null=True)
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
        permissions = [
            ("decide_approval", "Can approve or reject an action"),
            ("decide_high_risk", "Can decide what is hard to undo, and give standing approvals"),
            ("edit_arguments", "Can change the arguments of an action before it is approved"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.state} {self.id}"


class ApprovalVote(models.Model):
    """What one person said; append-only. One vote a person and approval."""

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="votes")
    voter = models.CharField(max_length=200)
    decision = models.CharField(
        max_length=16,
        choices=[("APPROVE", "approve"), ("REJECT", "reject"), ("RESPOND", "respond")],
    )
    reason = models.TextField(blank=True)
    params_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "voter"], name="vote_once_per_person"),
            models.CheckConstraint(
                condition=Q(decision__in=["APPROVE", "REJECT", "RESPOND"]),
                name="vote_decision_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.voter}: {self.decision}"


class StandingApproval(models.Model):
    """An answer given beforehand: for one version of one tool, within bounds, until a time.

    `conditions` are `[argument, operator, value]` and all of them must hold. `agent` and
    `principal` empty mean any. It changes only by being used up or revoked.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=40)
    agent = models.CharField(max_length=80, blank=True)
    principal = models.CharField(max_length=200, blank=True)
    conditions = models.JSONField(default=list)
    max_uses = models.PositiveIntegerField(null=True)
    uses = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField()
    granted_by = models.CharField(max_length=200)
    reason = models.TextField()
    created_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=200, blank=True)
    revoke_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="standing_has_reason"),
            models.CheckConstraint(
                condition=Q(max_uses__isnull=True) | Q(uses__lte=models.F("max_uses")),
                name="standing_uses_bounded",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "tool"],
                condition=Q(revoked_at__isnull=True),
                name="standing_live_ix",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} by {self.granted_by}"
