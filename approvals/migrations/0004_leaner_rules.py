"""The same rules in fewer words: an UPDATE asks only those whose columns it sets."""

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0004_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0003_rules.sql").read_text(encoding="utf-8")
DROP = "".join(
    f"DROP FUNCTION {name} CASCADE;" for name in ("approvals_refuse", "approvals_approval_move")
)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0003_decisions")]

    operations = [migrations.RunSQL(DROP, RULES_BEFORE), migrations.RunSQL(RULES, DROP)]
