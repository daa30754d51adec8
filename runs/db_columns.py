"""What may happen to each column of the guarded tables after the row is there.

Every column of a guarded table stands in exactly one list; a test compares with the models, so a
new column has to be given its rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one table by their rule.

    `frozen` never changes. `once` goes from NULL to a value and `once_blank` from '' to a value,
    then never changes. `growing` is a number that never gets smaller. `free` has no rule of its
    own here.
    """

    table: str
    frozen: tuple[str, ...]
    once: tuple[str, ...] = ()
    once_blank: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()
    free: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.frozen, *self.once, *self.once_blank, *self.growing, *self.free)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RUN = Columns(
    table="runs_run",
    frozen=_words(
        "id tenant agent_version_id principal scopes on_behalf_of dedupe_key session_id "
        "retry_of_id parent_id root_id parent_action webhook_endpoint_id input priority dry_run "
        "created_at deadline_at"
    ),
    once=_words("stop_reason failure"),
    growing=_words("revision fence event_seq"),
    free=_words(
        "metadata state resume_to reason claim_token lease_worker call_deadline_at claims "
        "pause_asked_by wake_at hinted_at hints turn actions_used invalid_replies max_turns "
        "max_actions max_tokens max_cost max_failures max_handoffs turns_lent actions_lent "
        "handoffs_lent tokens_used tokens_held cost_used cost_held progress_from "
        "event_head output business_outcome trace_id code_version started_at ended_at"
    ),
)
RUN_FROZEN_AT_END = _words("state output stop_reason reason fence ended_at")
"""Events, the head of their chain and the business outcome may still grow on a terminal run."""
RUN_SLICE = _words("max_turns max_actions max_tokens max_cost max_handoffs")
"""Fixed for a child run: its parent has set these amounts aside."""

ACTION = Columns(
    table="runs_actionjournal",
    frozen=_words(
        "id run_id tenant turn ordinal edit edited_by call_id tool tool_version effect contract "
        "arguments params_hash fingerprint intent_key created_at"
    ),
    once=_words("idempotency_key generation first_sent_at observation"),
    growing=_words("revision fence"),
    free=_words(
        "resource_key policy_verdict policy_rule policy_version precheck bound_version approval_id "
        "state reason detail same_as_id result error_class downstream_ref next_probe_at probes "
        "ended_at"
    ),
)
ACTION_AFTER_END = _words("observation revision")
"""All that a terminal action still takes."""

ATTEMPT_OUTCOME = _words("outcome late result error_class detail reference usage ended_at")
"""Written together, once."""

ATTEMPT = Columns(
    table="runs_attempt",
    frozen=_words(
        "id run_id turn action_id kind n fence worker idempotency_key fingerprint input_revision "
        "send_by started_at"
    ),
    once=_words("lost_at"),
    free=ATTEMPT_OUTCOME,
)

TURN_DECISION = _words("response_id output decision text usage decided_at")
"""Fixed once `decided_at` is set; `problem` may follow when an answer is not accepted."""

TURN = Columns(
    table="runs_turn",
    frozen=_words("id run_id number model manifest request_sha256 code_version created_at"),
    once=_words("usage decided_at"),
    once_blank=_words("response_id output decision"),
    free=_words("text problem"),
)

KEY_OWNER = Columns(
    table="runs_keyowner",
    frozen=_words("id tenant tool intent_key generation action_id fingerprint created_at"),
    once=_words("released_at"),
)

APPROVAL = Columns(
    table="approvals_approval",
    frozen=_words(
        "id tenant run_id action_id tool tool_version policy_version rule arguments params_hash "
        "resource_key resource_version impact requester role required_count policy_reason "
        "high_risk tool_digest editor renewal supersedes standing expires_at created_at"
    ),
    once=_words("decided_at consumed_at validation"),
    free=_words("state claimed_by claimed_until"),
)

STANDING = Columns(
    table="approvals_standingapproval",
    frozen=_words(
        "id tenant tool tool_version agent principal conditions max_uses expires_at granted_by "
        "reason created_at"
    ),
    once=_words("revoked_at"),
    once_blank=_words("revoked_by revoke_reason"),
    growing=_words("uses"),
)

THRESHOLD = Columns(
    table="runs_policythreshold",
    frozen=_words(
        "id tenant tool argument op value verdict role quorum ttl_seconds reason created_by "
        "created_at"
    ),
    once=_words("retired_at"),
    once_blank=_words("retired_by retire_reason"),
)

CALLBACK = Columns(
    table="runs_callback",
    frozen=_words(
        "id source event_id body_sha256 word idempotency_key reference result detail sent_at "
        "created_at"
    ),
    once=_words("action_id settled_at"),
    once_blank=_words("did"),
)

GUARDED = (RUN, ACTION, ATTEMPT, TURN, KEY_OWNER, CALLBACK, THRESHOLD, APPROVAL, STANDING)
