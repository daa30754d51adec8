"""What the REST interface keeps beside runs: sessions, webhooks and bulk operations."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentcore.ids import new_id


class Session(models.Model):
    """Groups the runs of one conversation. Deleted ones stay as rows, since their runs do."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    agent = models.CharField(max_length=80, blank=True)
    metadata = models.JSONField(default=dict)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["tenant", "id"], name="session_tenant_ix")]

    def __str__(self) -> str:
        return f"session {self.id}"


class WebhookEndpoint(models.Model):
    """An address that is told of events. `events` lists types; `["*"]` means every one.

    The secret is not stored: it is made from the installation's key, `salt` and `secret_version`.
    The version before is valid, too, until `previous_until`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    url = models.CharField(max_length=2000)
    description = models.CharField(max_length=200, blank=True)
    events = models.JSONField(default=list)
    salt = models.CharField(max_length=64)
    secret_version = models.PositiveIntegerField(default=1)
    previous_until = models.DateTimeField(null=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=200, blank=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["tenant"],
                condition=Q(deleted_at__isnull=True, disabled_at__isnull=True),
                name="webhook_live_ix",
            )
        ]

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(models.Model):
    """The outbox: one event for one endpoint, written in the transaction of the event itself."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, related_name="+")
    seq = models.BigIntegerField()
    type = models.CharField(max_length=40)
    status = models.CharField(
        max_length=10,
        default="PENDING",
        choices=[(word, word.lower()) for word in ("PENDING", "DELIVERED", "DEAD")],
    )
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField()
    claim = models.UUIDField(null=True)
    claimed_until = models.DateTimeField(null=True)
    last_try_at = models.DateTimeField(null=True)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints = [
            models.UniqueConstraint(fields=["endpoint", "run", "seq"], name="delivery_once"),
            models.CheckConstraint(
                condition=Q(status__in=["PENDING", "DELIVERED", "DEAD"]),
                name="delivery_status_known",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"], condition=Q(status="PENDING"), name="delivery_due_ix"
            ),
            models.Index(
                fields=["endpoint", "next_try_at"],
                condition=Q(status="PENDING"),
                name="delivery_of_endpoint_ix",
            ),
            models.Index(fields=["tenant", "created_at"], name="delivery_tenant_ix"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.status} {self.id}"


class BulkOperation(models.Model):
    """One verb for many runs. The runs are frozen as `BulkItem` rows when it is made.

    `READY` waits for its start, which names the token and the count; a `PREVIEW` never starts.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.CharField(max_length=64)
    verb = models.CharField(max_length=20)
    filter = models.JSONField(default=dict)
    reason = models.CharField(max_length=500, blank=True)
    status = models.CharField(
        max_length=10,
        choices=[
            (word, word.lower()) for word in ("PREVIEW", "READY", "RUNNING", "COMPLETED", "ABORTED")
        ],
    )
    total = models.PositiveIntegerField()
    confirm_sha256 = models.CharField(max_length=64, blank=True)
    created_by = models.CharField(max_length=200)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    started_by = models.CharField(max_length=200, blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "id"], name="bulk_tenant_ix"),
            models.Index(fields=["id"], condition=Q(status="RUNNING"), name="bulk_running_ix"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.status} {self.id}"


class BulkItem(models.Model):
    """One run of a bulk operation and what became of it."""

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="items")
    ordinal = models.PositiveIntegerField()
    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, related_name="+")
    outcome = models.CharField(
        max_length=10,
        default="PENDING",
        choices=[(word, word.lower()) for word in ("PENDING", "DONE", "REFUSED")],
    )
    code = models.CharField(max_length=40, blank=True)
    detail = models.CharField(max_length=300, blank=True)
    done_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "run"], name="bulk_item_once"),
            models.UniqueConstraint(fields=["operation", "ordinal"], name="bulk_item_order"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.outcome}"
