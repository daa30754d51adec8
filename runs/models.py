"""What the runtime remembers. Fields, constraints and predicates; writes live in `transitions.py`
and `journal.py`, and the database repeats their rules in triggers (`db_rules.py`; what must hold
within one row of a run, an action or an attempt: `db_checks.py`)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id
from agentcore.lifecycle import (
    RUN_TERMINAL,
    ActionState,
    RunState,
    StopReason,
)
from agentcore.values import Effect, Priority


def _choices(enum: type) -> list[tuple[str, str]]:
    return [(str(item), str(item)) for item in enum]  # type: ignore[attr-defined]


class AgentVersion(models.Model):
    """One immutable version of an agent, as it was when a run first used it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=80)
    version = models.CharField(max_length=40)
    digest = models.CharField(max_length=64, unique=True)
    spec = models.JSONField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Run(models.Model):
    """One task from request to terminal state. The row is the recovery point."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    agent_version = models.ForeignKey(AgentVersion, on_delete=models.PROTECT)
    principal = models.CharField(max_length=200)
    scopes = models.JSONField(default=list)
    on_behalf_of = models.CharField(max_length=200, blank=True)
    dedupe_key = models.CharField(max_length=200, blank=True)
    session = models.ForeignKey(
        "runs.Session", on_delete=models.PROTECT, null=True, db_index=False, related_name="runs"
    )
    retry_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    parent = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, db_index=False, related_name="children"
    )
    root = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, db_index=False, related_name="+"
    )
    # The action of the parent that this run is. A rule of the table looks it up, once.
    parent_action = models.UUIDField(null=True)
    webhook_endpoint = models.ForeignKey(
        "runs.WebhookEndpoint",
        on_delete=models.PROTECT,
        null=True,
        db_index=False,
        related_name="+",
    )
    input = models.JSONField()
    metadata = models.JSONField(default=dict)
    priority = models.CharField(
        max_length=6, choices=_choices(Priority), default=str(Priority.NORMAL)
    )
    dry_run = models.BooleanField(default=False)

    state = models.CharField(max_length=20, choices=_choices(RunState), default="QUEUED")
    resume_to = models.CharField(max_length=20, null=True, choices=_choices(RunState))
    stop_reason = models.CharField(max_length=20, null=True, choices=_choices(StopReason))
    reason = models.TextField(blank=True)
    revision = models.BigIntegerField(default=0)

    fence = models.BigIntegerField(default=0)
    claim_token = models.UUIDField(null=True)
    lease_worker = models.UUIDField(null=True)
    call_deadline_at = models.DateTimeField(null=True)
    claims = models.PositiveIntegerField(default=0)
    pause_asked_by = models.CharField(max_length=200, blank=True)
    wake_at = models.DateTimeField()
    hinted_at = models.DateTimeField(null=True)
    hints = models.PositiveSmallIntegerField(default=0)

    turn = models.PositiveIntegerField(default=0)
    actions_used = models.PositiveIntegerField(default=0)
    invalid_replies = models.PositiveSmallIntegerField(default=0)
    max_turns = models.PositiveIntegerField()
    max_actions = models.PositiveIntegerField()
    max_tokens = models.BigIntegerField(null=True)  # null: the limit of the agent version
    max_cost = models.BigIntegerField(null=True)  # micros, as everywhere below
    max_failures = models.PositiveIntegerField(null=True)
    max_handoffs = models.PositiveIntegerField(null=True)
    # What children hold while they are open, and used once they have ended.
    turns_lent = models.PositiveIntegerField(default=0)
    actions_lent = models.PositiveIntegerField(default=0)
    handoffs_lent = models.PositiveIntegerField(default=0)
    tokens_used = models.BigIntegerField(default=0)
    tokens_held = models.BigIntegerField(default=0)
    cost_used = models.BigIntegerField(default=0)
    cost_held = models.BigIntegerField(default=0)
    progress_from = models.PositiveIntegerField(default=0)
    deadline_at = models.DateTimeField()

    event_seq = models.BigIntegerField(default=0)
    event_head = models.CharField(max_length=64, blank=True)
    output = models.JSONField(null=True)
    business_outcome = models.CharField(max_length=40, blank=True)
    failure = models.JSONField(null=True)
    trace_id = models.CharField(max_length=64, blank=True)
    code_version = models.CharField(max_length=40)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "dedupe_key"],
                condition=Q(ended_at__isnull=True) & ~Q(dedupe_key=""),
                name="run_one_open_per_dedupe_key",
            ),
            models.UniqueConstraint(
                fields=["parent_action"],
                condition=Q(parent_action__isnull=False),
                name="run_one_child_per_action",
            ),
        ]
        indexes = [
            # `ended_at` in the predicate instead of `state`: it changes once, so moves stay HOT.
            models.Index(fields=["wake_at"], condition=Q(ended_at__isnull=True), name="run_due_ix"),
            models.Index(fields=["tenant", "id"], name="run_tenant_ix"),
            models.Index(
                fields=["session", "id"], condition=Q(session__isnull=False), name="run_session_ix"
            ),
            models.Index(
                fields=["retry_of"], condition=Q(retry_of__isnull=False), name="run_retry_ix"
            ),
            models.Index(
                fields=["parent"], condition=Q(parent__isnull=False), name="run_parent_ix"
            ),
            models.Index(fields=["root"], condition=Q(root__isnull=False), name="run_root_ix"),
        ]
        permissions = [
            ("cancel_run", "Can cancel a run"),
            ("retry_run", "Can start a run again"),
            ("pause_run", "Can pause and resume a run"),
            ("reveal_redacted", "Can see what tools keep secret"),
            ("pause_agent", "Can switch agents and tools off and on"),
            ("manage_policy", "Can set thresholds of the policy"),
            ("manage_budget", "Can change what a run may use"),
            ("replay_webhook", "Can send a webhook again"),
            ("bulk_operate", "Can act on many runs at once"),
        ]

    def __str__(self) -> str:
        return f"run {self.id} {self.state}"

    @property
    def is_terminal(self) -> bool:
        return self.state in RUN_TERMINAL


class ActionJournal(models.Model):
    """The durable row of one proposed tool call. Identity: run, turn, ordinal, edit."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="actions", db_index=False)
    tenant = models.CharField(max_length=64)
    turn = models.PositiveIntegerField()
    ordinal = models.PositiveSmallIntegerField()
    edit = models.PositiveSmallIntegerField(default=0)
    edited_by = models.CharField(max_length=200, blank=True)
    call_id = models.CharField(max_length=200)
    tool = models.CharField(max_length=120)
    tool_version = models.CharField(max_length=40)
    effect = models.CharField(max_length=20, choices=_choices(Effect))
    contract = models.CharField(max_length=10)
    arguments = models.JSONField(null=True)
    params_hash = models.CharField(max_length=64, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)
    intent_key = models.CharField(max_length=64, blank=True)
    generation = models.PositiveIntegerField(null=True)
    idempotency_key = models.CharField(max_length=64, null=True)
    resource_key = models.CharField(max_length=200, blank=True)
    policy_verdict = models.CharField(max_length=10, blank=True)
    policy_rule = models.CharField(max_length=200, blank=True)
    policy_version = models.CharField(max_length=80, blank=True)
    precheck = models.JSONField(null=True)
    bound_version = models.CharField(max_length=200, blank=True)
    approval = models.ForeignKey(
        "approvals.Approval", on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    state = models.CharField(max_length=20, choices=_choices(ActionState), default="PROPOSED")
    reason = models.CharField(max_length=60, blank=True)
    detail = models.TextField(blank=True)
    revision = models.BigIntegerField(default=0)
    fence = models.BigIntegerField(default=0)
    same_as = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    result = models.JSONField(null=True)
    error_class = models.CharField(max_length=80, blank=True)
    downstream_ref = models.CharField(max_length=200, blank=True)
    observation = models.TextField(null=True)
    first_sent_at = models.DateTimeField(null=True)
    next_probe_at = models.DateTimeField(null=True)
    probes = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "action"
        verbose_name_plural = "actions"
        constraints = [
            models.UniqueConstraint(
                fields=["run", "turn", "ordinal", "edit"], name="action_identity"
            ),
        ]
        indexes = [
            # By what a downstream calls it; reads have neither, and both are written once or late.
            models.Index(
                fields=["idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="action_key_ix",
            ),
            models.Index(
                fields=["downstream_ref"], condition=~Q(downstream_ref=""), name="action_ref_ix"
            ),
            # "What did we do to this order?" Written once, with the row.
            models.Index(
                fields=["resource_key"], condition=~Q(resource_key=""), name="action_resource_ix"
            ),
        ]
        permissions = [("reconcile_action", "Can settle an action whose outcome is unknown")]

    def __str__(self) -> str:
        return f"{self.tool} {self.state} {self.id}"


from runs.access_models import ApiToken, IdempotencyRecord  # noqa: E402  (tables of this app)
from runs.account_models import Evidence, Ledger  # noqa: E402
from runs.attempt_models import Attempt  # noqa: E402
from runs.control_models import (  # noqa: E402
    AuditAnchor,
    AuditEntry,
    Controls,
    PolicyThreshold,
    Switch,
    SwitchChange,
)
from runs.event_models import Event, Incident  # noqa: E402
from runs.fleet_models import KeyOwner, LimitUse, LimitWait, Worker  # noqa: E402
from runs.reconcile_models import Callback, Reconciliation  # noqa: E402
from runs.rest_models import (  # noqa: E402
    BulkItem,
    BulkOperation,
    Session,
    WebhookDelivery,
    WebhookEndpoint,
)
from runs.turn_models import Turn  # noqa: E402

__all__ = [
    "ActionJournal",
    "AgentVersion",
    "ApiToken",
    "Attempt",
    "AuditAnchor",
    "AuditEntry",
    "BulkItem",
    "BulkOperation",
    "Callback",
    "Controls",
    "Event",
    "Evidence",
    "IdempotencyRecord",
    "Incident",
    "KeyOwner",
    "Ledger",
    "LimitUse",
    "LimitWait",
    "PolicyThreshold",
    "Reconciliation",
    "Run",
    "Session",
    "Switch",
    "SwitchChange",
    "Turn",
    "WebhookDelivery",
    "WebhookEndpoint",
    "Worker",
]
