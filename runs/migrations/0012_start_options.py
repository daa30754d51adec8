"""Priority and dry run of a run; a write of a dry run cannot start, also by the rules."""

from pathlib import Path

from django.db import migrations, models

FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0012_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0008_rules.sql").read_text(encoding="utf-8")
DROP = "".join(
    f"DROP FUNCTION {name} CASCADE;"
    for name in (
        "runs_refuse",
        "runs_run_move",
        "runs_actionjournal_move",
        "runs_run_settled",
        "runs_run_allows",
    )
)
PRIORITIES = ["high", "normal", "low"]


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_fewer_indexes")]

    operations = [
        migrations.RunSQL(DROP, RULES_BEFORE),
        migrations.AddField(
            "run",
            "priority",
            models.CharField(
                choices=[(word, word) for word in PRIORITIES], default="normal", max_length=6
            ),
        ),
        migrations.AddField("run", "dry_run", models.BooleanField(default=False)),
        migrations.AddConstraint(
            "run",
            models.CheckConstraint(
                condition=models.Q(priority__in=PRIORITIES), name="run_priority_known"
            ),
        ),
        migrations.RunSQL(RULES, DROP),
    ]
