"""What must hold within one row of a hot table, whatever it was before: conditions on NEW.

They would be CHECKs, if PostgreSQL did not read the text of each CHECK of a table anew for each
statement that writes to it: a tenth of its time for the lists of states. As one function a table
(`db_functions.whole`) they are read once a session. A refusal carries the name it has here.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentcore.lifecycle import (
    ACTION_TERMINAL,
    RUN_RESUMES,
    RUN_TERMINAL,
    RUN_UNLEASED,
    ActionState,
    RunState,
)
from agentcore.values import AttemptKind, Effect, Priority
from runs.db_rule import listed


def _in(column: str, values: Iterable[str]) -> str:
    return f"NEW.{column} IN ({listed(values)})"


def _set_iff(column: str, condition: str) -> str:
    return f"(NEW.{column} IS NOT NULL) = ({condition})"


_STOPS = ("INCOMPLETE", "FAILED", "CANCELLED", "CANCELLING")
_CALLED = ("RUNNING", "PENDING", "SUCCEEDED", "FAILED", "UNKNOWN")
_UNSETTLED = ("UNKNOWN", "NEEDS_HUMAN", "PENDING")

CHECKS: dict[str, dict[str, str]] = {
    "runs_run": {
        "run_state_known": _in("state", RunState),
        "run_priority_known": _in("priority", Priority),
        "run_resume_to_iff_waiting": _set_iff("resume_to", _in("state", RUN_RESUMES)),
        "run_waiting_holds_no_lease": "NEW.lease_worker IS NULL"
        f" OR NOT {_in('state', RUN_UNLEASED)}",
        "run_lease_is_whole": "num_nulls(NEW.lease_worker, NEW.claim_token) <> 1"
        " AND (NEW.lease_worker IS NULL OR NEW.call_deadline_at IS NOT NULL)",
        "run_ended_iff_terminal": _set_iff("ended_at", _in("state", RUN_TERMINAL)),
        "run_stop_has_reason": f"NEW.stop_reason IS NOT NULL OR NOT {_in('state', _STOPS)}",
        "run_child_is_whole": "num_nulls(NEW.parent_id, NEW.root_id, NEW.parent_action) IN (0, 3)",
    },
    "runs_actionjournal": {
        "action_state_known": _in("state", ActionState),
        "action_effect_known": _in("effect", Effect),
        "action_ended_iff_terminal": _set_iff("ended_at", _in("state", ACTION_TERMINAL)),
        "action_write_has_key": "NEW.effect = 'READ' OR NEW.idempotency_key IS NOT NULL"
        f" OR NOT {_in('state', _CALLED)}",
        "action_read_is_never_unknown": f"NEW.effect <> 'READ' OR NOT {_in('state', _UNSETTLED)}",
    },
    "runs_attempt": {
        "attempt_kind_known": _in("kind", AttemptKind),
        "attempt_outcome_has_time": "(NEW.outcome IS NULL) = (NEW.ended_at IS NULL)",
    },
}
"""Table -> name -> condition. As with a CHECK, one that is NULL holds."""

COUNTS: dict[str, tuple[str, ...]] = {
    "runs_run": (
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
    "runs_actionjournal": ("turn", "ordinal", "edit", "generation", "probes"),
    "runs_attempt": ("turn", "n"),
}
"""Numbers that are never below zero: what Django calls positive, and would make a CHECK each."""
