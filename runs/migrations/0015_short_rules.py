"""The same rules in few words: the CHECKs of the hot tables become one function each, which
PostgreSQL reads once a session instead of once a statement; conditions of triggers get shorter, and
these tables are asked after an UPDATE. No row is read or rewritten; undoing it reads the hot tables
once, to make the CHECKs valid again.
"""

import re
from pathlib import Path

from django.db import migrations

FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0015_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0014_rules.sql").read_text(encoding="utf-8")
FUNCTIONS_BEFORE = (
    "runs_refuse",
    "runs_run_move",
    "runs_actionjournal_move",
    "runs_run_settled",
    "runs_run_allows",
    "runs_run_descends",
)
FUNCTIONS = (
    "runs_refuse",
    "runs_refuse_changed",
    "runs_run_move",
    "runs_actionjournal_move",
    "runs_run_whole",
    "runs_actionjournal_whole",
    "runs_attempt_whole",
    "runs_run_settled",
    "runs_run_allows",
    "runs_run_descends",
)
CHECKS = {
    "run": (
        "run_state_known",
        "run_priority_known",
        "run_resume_to_iff_waiting",
        "run_waiting_holds_no_lease",
        "run_lease_is_whole",
        "run_ended_iff_terminal",
        "run_stop_has_reason",
        "run_child_is_whole",
    ),
    "actionjournal": (
        "action_state_known",
        "action_effect_known",
        "action_ended_iff_terminal",
        "action_write_has_key",
        "action_read_is_never_unknown",
    ),
    "attempt": ("attempt_kind_known", "attempt_outcome_has_time"),
}
COUNTS = {
    "run": (
        "hints",
        "claims",
        "turn",
        "actions_used",
        "invalid_replies",
        "max_turns",
        "max_actions",
        "max_failures",
        "max_handoffs",
        "turns_lent",
        "actions_lent",
        "handoffs_lent",
        "progress_from",
    ),
    "actionjournal": ("turn", "ordinal", "edit", "generation", "probes"),
    "attempt": ("turn", "n"),
}


def _drop(names: tuple[str, ...]) -> str:
    return "".join(f"DROP FUNCTION {name} CASCADE;" for name in names)


def _counts(form: str) -> str:
    """The CHECKs that Django makes for positive numbers: one ALTER TABLE for each table."""
    return "".join(
        f"ALTER TABLE runs_{table} "
        + ", ".join(form.format(name=f"runs_{table}_{name}_check", column=name) for name in names)
        + ";"
        for table, names in COUNTS.items()
    )


def _locked() -> str:
    """All at once, the run first as in a drive: taken one by one by what follows, they would meet
    transactions of drives in another order, and one of both would be a deadlock's victim."""
    tables = set(re.findall(r"\bON (runs_\w+)", RULES + RULES_BEFORE)) - {"runs_run"}
    return f"LOCK TABLE {', '.join(['runs_run', *sorted(tables)])} IN ACCESS EXCLUSIVE MODE;"


class Migration(migrations.Migration):
    dependencies = [("runs", "0014_leaner_rules")]

    operations = [
        migrations.RunSQL(_locked(), migrations.RunSQL.noop),
        migrations.RunSQL(_drop(FUNCTIONS_BEFORE), RULES_BEFORE),
        migrations.RunSQL(RULES, _drop(FUNCTIONS)),
        *(
            migrations.RemoveConstraint(table, name)
            for table, names in CHECKS.items()
            for name in names
        ),
        migrations.RunSQL(
            _counts("DROP CONSTRAINT IF EXISTS {name}"),
            _counts("ADD CONSTRAINT {name} CHECK ({column} >= 0)"),
        ),
        migrations.RunSQL(migrations.RunSQL.noop, _locked()),  # the first when it is undone
    ]
