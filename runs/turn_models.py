"""The turns of a run: what the model was shown, and what it said."""

from __future__ import annotations

from django.db import models

from agentcore.ids import new_id
from agentcore.observed import said_in


class Turn(models.Model):
    """One model call and what it decided.

    `manifest` lists what the model was shown, `request_sha256` is the hash of the exact request.
    `output` is the reply's list of items as JSON text, byte for byte (jsonb would refuse NUL and
    reorder keys). `text` is what the model said in it, or where in `output` that stands: `said`.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # No index of its own, as everywhere that a unique one begins with the column.
    run = models.ForeignKey(
        "runs.Run", on_delete=models.PROTECT, related_name="turns", db_index=False
    )
    number = models.PositiveIntegerField()
    model = models.CharField(max_length=120)
    manifest = models.JSONField()
    request_sha256 = models.CharField(max_length=64)
    response_id = models.CharField(max_length=200, blank=True)
    output = models.TextField(blank=True)
    decision = models.CharField(max_length=20, blank=True)
    text = models.TextField(blank=True)
    problem = models.TextField(blank=True)
    usage = models.JSONField(null=True)
    code_version = models.CharField(max_length=40)
    created_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="turn_once")]

    def __str__(self) -> str:
        return f"turn {self.number} of {self.run_id}"

    @property
    def said(self) -> str:
        """What the model said, without its calls."""
        return said_in(self.output, self.text)
