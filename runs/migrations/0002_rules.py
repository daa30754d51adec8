"""The rules of the tables, in PostgreSQL. The SQL is frozen beside this file."""

from pathlib import Path

from django.db import migrations

RULES = Path(__file__).with_name("sql") / "0002_rules.sql"
FUNCTIONS = (
    "runs_refuse",
    "runs_run_move",
    "runs_actionjournal_move",
    "runs_run_settled",
    "runs_run_allows",
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial"), ("approvals", "0002_rules")]

    operations = [
        migrations.RunSQL(
            RULES.read_text(encoding="utf-8"),
            "".join(f"DROP FUNCTION {name} CASCADE;" for name in FUNCTIONS),
        )
    ]
