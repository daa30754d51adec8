"""The tables of the floors as Django models, for the shapes that store by the ORM.

Only the workers of the shapes import this: their Django knows no other app. The fields are not
called like the guarded columns of the product, which have one door.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class RunRow(models.Model):
    """Where a run stands."""

    id = models.UUIDField(primary_key=True)
    stage = models.TextField(db_column="state")
    position = models.IntegerField(db_column="revision")
    turn = models.IntegerField()
    updated_at = models.DateTimeField(auto_now=True)

    objects: models.Manager[RunRow] = models.Manager()

    class Meta:
        app_label = "bench_shapes"
        db_table = "run"
        managed = False


class EventRow(models.Model):
    """What has happened to it."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    position = models.IntegerField(db_column="revision")
    kind = models.TextField()
    payload = models.JSONField()
    at = models.DateTimeField(default=timezone.now)

    objects: models.Manager[EventRow] = models.Manager()

    class Meta:
        app_label = "bench_shapes"
        db_table = "event"
        managed = False
