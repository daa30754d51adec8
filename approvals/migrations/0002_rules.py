"""The rules of the tables, in PostgreSQL. The SQL is frozen beside this file."""

from pathlib import Path

from django.db import migrations

RULES = Path(__file__).with_name("sql") / "0002_rules.sql"
FUNCTIONS = ("approvals_refuse", "approvals_approval_move")


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]

    operations = [
        migrations.RunSQL(
            RULES.read_text(encoding="utf-8"),
            "".join(f"DROP FUNCTION {name} CASCADE;" for name in FUNCTIONS),
        )
    ]
