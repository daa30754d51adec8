"""Take away the indexes that a unique one makes needless, or that nothing asks.

A five-turn run writes 39 index entries less: 3 kB of WAL (docs/performance.md).
"""

import django.db.models.deletion
from django.db import migrations, models

KEPT = {"on_delete": django.db.models.deletion.PROTECT, "db_index": False}


class Migration(migrations.Migration):
    dependencies = [("runs", "0010_action_resource")]

    operations = [
        migrations.AlterField(
            "turn", "run", models.ForeignKey(to="runs.run", related_name="turns", **KEPT)
        ),
        migrations.AlterField(
            "actionjournal", "run", models.ForeignKey(to="runs.run", related_name="actions", **KEPT)
        ),
        migrations.AlterField(
            "actionjournal",
            "approval",
            models.ForeignKey(to="approvals.approval", null=True, related_name="+", **KEPT),
        ),
        migrations.AlterField(
            "actionjournal",
            "same_as",
            models.ForeignKey(to="runs.actionjournal", null=True, related_name="+", **KEPT),
        ),
        migrations.AlterField(
            "attempt",
            "action",
            models.ForeignKey(to="runs.actionjournal", null=True, related_name="attempts", **KEPT),
        ),
        migrations.AlterField(
            "event", "run", models.ForeignKey(to="runs.run", related_name="events", **KEPT)
        ),
        migrations.AlterField(
            "evidence",
            "action",
            models.ForeignKey(to="runs.actionjournal", null=True, related_name="evidence", **KEPT),
        ),
        migrations.AlterField(
            "ledger", "attempt", models.ForeignKey(to="runs.attempt", related_name="ledger", **KEPT)
        ),
        # Its row is above the 2 kB from which PostgreSQL moves a column out of it, and the reply
        # that makes it so comes with an update: the manifest would be written twice.
        migrations.RunSQL(
            "ALTER TABLE runs_turn SET (toast_tuple_target = 8160, fillfactor = 60)",
            "ALTER TABLE runs_turn RESET (toast_tuple_target, fillfactor)",
        ),
    ]
