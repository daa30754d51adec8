"""Who may call: bearer tokens and the stored answers of idempotent requests."""

from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from agentcore.ids import new_id


class ApiToken(models.Model):
    """A bearer token of a backend service. Only the hash is stored.

    `agents` names the agents it may start and see; empty means all.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=80)
    tenant = models.CharField(max_length=64)
    prefix = models.CharField(max_length=16)
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    agents = models.JSONField(default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class IdempotencyRecord(models.Model):
    """The stored answer to one POST, written in the transaction of the object it made."""

    principal = models.CharField(max_length=200)
    method = models.CharField(max_length=8)
    route = models.CharField(max_length=120)
    key = models.CharField(max_length=255)
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    body = models.JSONField()
    run = models.ForeignKey("runs.Run", on_delete=models.PROTECT, null=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["principal", "method", "route", "key"], name="idempotency_once"
            )
        ]
        indexes = [BrinIndex(fields=["created_at"], name="idempotency_age_ix")]

    def __str__(self) -> str:
        return f"{self.method} {self.route} {self.key}"
