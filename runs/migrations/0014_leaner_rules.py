"""The same rules in fewer words: an UPDATE asks only those whose columns it sets."""

from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0014_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0013_rules.sql").read_text(encoding="utf-8")
DROP = "".join(
    f"DROP FUNCTION {name} CASCADE;"
    for name in (
        "runs_refuse",
        "runs_run_move",
        "runs_actionjournal_move",
        "runs_run_settled",
        "runs_run_allows",
        "runs_run_descends",
    )
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0013_children")]

    operations = [migrations.RunSQL(DROP, RULES_BEFORE), migrations.RunSQL(RULES, DROP)]
