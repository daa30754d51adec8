"""Child runs: whose child a run is, and what of its budget a run has lent; with their rules."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0013_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0012_rules.sql").read_text(encoding="utf-8")
FUNCTIONS_BEFORE = (
    "runs_refuse",
    "runs_run_move",
    "runs_actionjournal_move",
    "runs_run_settled",
    "runs_run_allows",
)
FUNCTIONS = (*FUNCTIONS_BEFORE, "runs_run_descends")
LENT = ("turns_lent", "actions_lent", "handoffs_lent")


def _drop(names: tuple[str, ...]) -> str:
    return "".join(f"DROP FUNCTION {name} CASCADE;" for name in names)


def _run(name: str, related: str) -> migrations.AddField:
    kept = {"on_delete": django.db.models.deletion.PROTECT, "db_index": False}
    field = models.ForeignKey(to="runs.run", null=True, related_name=related, **kept)
    return migrations.AddField("run", name, field)


def _given(name: str) -> models.Q:
    return models.Q(**{f"{name}__isnull": False})


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_start_options")]

    operations = [
        migrations.RunSQL(_drop(FUNCTIONS_BEFORE), RULES_BEFORE),
        _run("parent", "children"),
        _run("root", "+"),
        migrations.AddField("run", "parent_action", models.UUIDField(null=True)),
        migrations.AddField("run", "max_handoffs", models.PositiveIntegerField(null=True)),
        *(
            migrations.AddField("run", name, models.PositiveIntegerField(default=0))
            for name in LENT
        ),
        migrations.AddConstraint(
            "run",
            models.UniqueConstraint(
                fields=["parent_action"],
                condition=_given("parent_action"),
                name="run_one_child_per_action",
            ),
        ),
        migrations.AddConstraint(
            "run",
            models.CheckConstraint(
                condition=models.Q(
                    parent__isnull=True, root__isnull=True, parent_action__isnull=True
                )
                | models.Q(parent__isnull=False, root__isnull=False, parent_action__isnull=False),
                name="run_child_is_whole",
            ),
        ),
        migrations.AddIndex(
            "run", models.Index(fields=["parent"], condition=_given("parent"), name="run_parent_ix")
        ),
        migrations.AddIndex(
            "run", models.Index(fields=["root"], condition=_given("root"), name="run_root_ix")
        ),
        migrations.RunSQL(RULES, _drop(FUNCTIONS)),
    ]
