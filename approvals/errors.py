"""Why a decision was not recorded: one hierarchy, each with a machine code and an HTTP status.

The message says what the person can do next; entry points show it as it is.
"""

from __future__ import annotations


class DecisionError(Exception):
    """The decision was not recorded and nothing was written.

    `code` is for machines, `status` is the HTTP status an entry point answers with.
    """

    code = "decision_refused"
    status = 409

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ApprovalNotFound(DecisionError):
    """There is no approval with this id."""

    code = "approval_not_found"
    status = 404


class ReasonRequired(DecisionError):
    """A rejection says why: the model is shown the reason."""

    code = "reason_required"
    status = 400


class NotPermitted(DecisionError):
    """The person lacks the permission or the role that the policy names."""

    code = "not_permitted"
    status = 403


class SelfApproval(NotPermitted):
    """Four eyes: who asked for the run, and the agent itself, never decide. Superusers included."""

    code = "self_approval"


class StaleApproval(DecisionError):
    """What the person saw is not what would run, or the question is no longer open."""

    code = "approval_stale"


class AlreadyDecided(StaleApproval):
    """Somebody else decided first, or this person voted the other way before."""

    code = "already_decided"


class ApprovalExpired(StaleApproval):
    """Too late by the clock of the database."""

    code = "approval_expired"


class RunNotWaiting(StaleApproval):
    """The run has ended or is stopping; its actions will not start."""

    code = "run_not_waiting"


class AlreadyClaimed(DecisionError):
    """Somebody else is looking at it."""

    code = "already_claimed"


class NothingHigher(DecisionError):
    """There is no group above the one that is asked already."""

    code = "nothing_higher"


class InvalidEdit(DecisionError):
    """The tool does not take these arguments. `errors` are (argument or "", message)."""

    code = "invalid_arguments"
    status = 422

    def __init__(self, message: str, errors: list[tuple[str, str]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or [("", message)]


class NothingChanged(DecisionError):
    """The edited arguments are those that were there before."""

    code = "nothing_changed"
    status = 400


class InvalidRule(DecisionError):
    """A threshold or a standing approval that cannot mean anything."""

    code = "invalid_rule"
    status = 422
