"""The states of a run, an action and an approval, and every legal move between them.

This table is the only source: Python checks it, the database triggers are generated from it,
`docs/states.md` is printed from it. A *move* is one arrow; a *path* is a chain of moves with no
outside call on it, which one transaction may write at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

_S = TypeVar("_S", bound=StrEnum)


class IllegalTransition(Exception):  # noqa: N818
    """A state change that the tables do not contain. Nothing was written."""


class RunState(StrEnum):
    QUEUED = "QUEUED"
    COMPILING_CONTEXT = "COMPILING_CONTEXT"
    CALLING_MODEL = "CALLING_MODEL"
    DISPATCHING_TOOLS = "DISPATCHING_TOOLS"
    WAITING_APPROVAL = "WAITING_APPROVAL"
    WAITING_CHILD = "WAITING_CHILD"
    RECONCILING = "RECONCILING"
    OBSERVING = "OBSERVING"
    VERIFYING = "VERIFYING"
    RETRY_WAIT = "RETRY_WAIT"
    SUSPENDED = "SUSPENDED"
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    INCOMPLETE = "INCOMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ActionState(StrEnum):
    PROPOSED = "PROPOSED"
    DENIED = "DENIED"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    VOIDED = "VOIDED"
    READY = "READY"
    RUNNING = "RUNNING"
    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    NEEDS_HUMAN = "NEEDS_HUMAN"
    ABANDONED = "ABANDONED"


class ApprovalState(StrEnum):
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EXPIRED = "EXPIRED"
    VOIDED = "VOIDED"
    CONSUMED = "CONSUMED"


class StopReason(StrEnum):
    """Why a run must end; set once, nothing new starts from then on."""

    CANCEL = "CANCEL"
    DEADLINE = "DEADLINE"
    BUDGET = "BUDGET"
    NO_PROGRESS = "NO_PROGRESS"
    REFUSED = "REFUSED"
    UNVERIFIED = "UNVERIFIED"
    MODEL_ERROR = "MODEL_ERROR"
    TOOL_ERROR = "TOOL_ERROR"
    CONTEXT_ERROR = "CONTEXT_ERROR"
    GUARDRAIL = "GUARDRAIL"
    PERMISSION = "PERMISSION"
    RUNTIME_ERROR = "RUNTIME_ERROR"


R, A, P = RunState, ActionState, ApprovalState

RUN_TERMINAL = frozenset({R.COMPLETED, R.INCOMPLETE, R.FAILED, R.CANCELLED})
RUN_LIVE = frozenset(R) - RUN_TERMINAL
RUN_UNLEASED = RUN_TERMINAL | {R.WAITING_APPROVAL, R.WAITING_CHILD, R.RETRY_WAIT}
"""States in which no worker may hold the lease."""
RUN_RESUMES = frozenset({R.RETRY_WAIT, R.SUSPENDED})
"""States that carry `resume_to`."""

ACTION_TERMINAL = frozenset(
    {A.DENIED, A.REJECTED, A.EXPIRED, A.VOIDED, A.SUCCEEDED, A.FAILED, A.ABANDONED}
)
ACTION_OPEN = frozenset({A.RUNNING, A.PENDING, A.UNKNOWN, A.NEEDS_HUMAN})
"""An effect may exist or come to exist."""
ACTION_UNDECIDED = frozenset({A.PROPOSED, A.AWAITING_APPROVAL, A.READY})
"""Nothing was sent."""

APPROVAL_TERMINAL = frozenset({P.REJECTED, P.EXPIRED, P.VOIDED, P.CONSUMED})

STEP_STATES = (
    R.QUEUED,
    R.COMPILING_CONTEXT,
    R.CALLING_MODEL,
    R.DISPATCHING_TOOLS,
    R.OBSERVING,
    R.VERIFYING,
)


def _run_moves() -> dict[tuple[RunState, RunState], str]:
    moves = {
        (R.QUEUED, R.COMPILING_CONTEXT): "a worker claimed the run",
        (R.COMPILING_CONTEXT, R.CALLING_MODEL): "context compiled",
        (R.CALLING_MODEL, R.DISPATCHING_TOOLS): "decision recorded",
        (R.CALLING_MODEL, R.COMPILING_CONTEXT): "invalid reply, asked again",
        (R.CALLING_MODEL, R.RETRY_WAIT): "transient model error",
        (R.DISPATCHING_TOOLS, R.WAITING_APPROVAL): "a person must decide",
        (R.DISPATCHING_TOOLS, R.WAITING_CHILD): "a child run is open",
        (R.DISPATCHING_TOOLS, R.RECONCILING): "the fate of a write is unknown",
        (R.DISPATCHING_TOOLS, R.RETRY_WAIT): "a tool call waits for its next try",
        (R.DISPATCHING_TOOLS, R.OBSERVING): "every action is terminal",
        (R.WAITING_APPROVAL, R.DISPATCHING_TOOLS): "decided, expired or due",
        (R.WAITING_CHILD, R.DISPATCHING_TOOLS): "child ended",
        (R.RECONCILING, R.DISPATCHING_TOOLS): "nothing is open any more",
        (R.OBSERVING, R.COMPILING_CONTEXT): "next turn",
        (R.OBSERVING, R.VERIFYING): "final answer",
        (R.VERIFYING, R.COMPLETED): "verified",
        (R.VERIFYING, R.INCOMPLETE): "not verified",
        (R.VERIFYING, R.COMPILING_CONTEXT): "told what is missing",
        (R.VERIFYING, R.RETRY_WAIT): "the verifier could not be reached",
        (R.CANCELLING, R.CANCELLED): "cancelled, nothing is open",
    }
    for state in (*STEP_STATES, R.RECONCILING):
        moves[R.RETRY_WAIT, state] = "timer"
        moves[R.SUSPENDED, state] = "resumed"
    moves[R.SUSPENDED, R.WAITING_APPROVAL] = "resumed"
    moves[R.SUSPENDED, R.WAITING_CHILD] = "resumed"
    for state in RUN_LIVE - {R.CANCELLING}:
        if state is not R.SUSPENDED:
            moves[state, R.SUSPENDED] = "suspended"
        moves[state, R.CANCELLING] = "cancel requested"
        moves.setdefault((state, R.INCOMPLETE), "stopped, nothing is open")
        moves[state, R.FAILED] = "broken, nothing is open"
    return moves


RUN_MOVES = _run_moves()

ACTION_MOVES: dict[tuple[ActionState, ActionState], str] = {
    (A.PROPOSED, A.READY): "allowed by policy",
    (A.PROPOSED, A.AWAITING_APPROVAL): "policy asks a person",
    (A.PROPOSED, A.DENIED): "refused before any effect",
    (A.PROPOSED, A.VOIDED): "cancelled or duplicate",
    (A.AWAITING_APPROVAL, A.READY): "approved",
    (A.AWAITING_APPROVAL, A.REJECTED): "rejected",
    (A.AWAITING_APPROVAL, A.EXPIRED): "approval expired",
    (A.AWAITING_APPROVAL, A.VOIDED): "cancelled or edited",
    (A.READY, A.RUNNING): "started",
    (A.READY, A.DENIED): "refused at execution",
    (A.READY, A.AWAITING_APPROVAL): "something bound changed",
    (A.READY, A.EXPIRED): "renewals used up",
    (A.READY, A.VOIDED): "run stopping or duplicate",
    (A.RUNNING, A.SUCCEEDED): "an attempt succeeded",
    (A.RUNNING, A.PENDING): "accepted, not final",
    (A.RUNNING, A.FAILED): "every attempt provably without effect",
    (A.RUNNING, A.UNKNOWN): "the last attempt is ambiguous or lost",
    (A.RUNNING, A.VOIDED): "a read of a stopping run",
    (A.PENDING, A.SUCCEEDED): "final word: done",
    (A.PENDING, A.FAILED): "final word: not done",
    (A.PENDING, A.NEEDS_HUMAN): "too old or conflicting",
    (A.UNKNOWN, A.SUCCEEDED): "proven done",
    (A.UNKNOWN, A.PENDING): "still being processed",
    (A.UNKNOWN, A.RUNNING): "sent again, same key and bytes",
    (A.UNKNOWN, A.FAILED): "proven absent",
    (A.UNKNOWN, A.NEEDS_HUMAN): "only a person can tell",
    (A.NEEDS_HUMAN, A.SUCCEEDED): "verdict or evidence: done",
    (A.NEEDS_HUMAN, A.FAILED): "verdict: not done",
    (A.NEEDS_HUMAN, A.RUNNING): "verdict: send again",
    (A.NEEDS_HUMAN, A.ABANDONED): "verdict: given up, fate unknown",
    (A.NEEDS_HUMAN, A.UNKNOWN): "verdict: still unknown",
    (A.NEEDS_HUMAN, A.PENDING): "evidence: still being processed",
}

APPROVAL_MOVES: dict[tuple[ApprovalState, ApprovalState], str] = {
    (P.PENDING, P.APPROVED): "approved",
    (P.PENDING, P.REJECTED): "rejected",
    (P.PENDING, P.EXPIRED): "out of time",
    (P.PENDING, P.VOIDED): "no longer needed",
    (P.APPROVED, P.CONSUMED): "its action started",
    (P.APPROVED, P.EXPIRED): "out of time",
    (P.APPROVED, P.VOIDED): "no longer valid",
}

# Composite moves: what one transaction may write at once. Every prefix and infix that starts or
# ends at a point with an outside call follows from the driver; each listed path is checked to be
# a chain of legal moves.
RUN_PATHS: tuple[tuple[RunState, ...], ...] = (
    (R.QUEUED, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.CALLING_MODEL, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.WAITING_APPROVAL),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.WAITING_CHILD),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.RECONCILING),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.OBSERVING),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.OBSERVING, R.COMPILING_CONTEXT),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.OBSERVING, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.OBSERVING, R.VERIFYING),
    (R.CALLING_MODEL, R.DISPATCHING_TOOLS, R.OBSERVING, R.VERIFYING, R.COMPLETED),
    (R.DISPATCHING_TOOLS, R.OBSERVING, R.COMPILING_CONTEXT),
    (R.DISPATCHING_TOOLS, R.OBSERVING, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.DISPATCHING_TOOLS, R.OBSERVING, R.VERIFYING),
    (R.DISPATCHING_TOOLS, R.OBSERVING, R.VERIFYING, R.COMPLETED),
    (R.OBSERVING, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.OBSERVING, R.VERIFYING, R.COMPLETED),
    (R.VERIFYING, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    (R.RECONCILING, R.DISPATCHING_TOOLS, R.WAITING_APPROVAL),
    (R.RECONCILING, R.DISPATCHING_TOOLS, R.WAITING_CHILD),
    (R.RECONCILING, R.DISPATCHING_TOOLS, R.RETRY_WAIT),
    (R.RECONCILING, R.DISPATCHING_TOOLS, R.OBSERVING),
    (R.RECONCILING, R.DISPATCHING_TOOLS, R.OBSERVING, R.COMPILING_CONTEXT),
    (R.RECONCILING, R.DISPATCHING_TOOLS, R.OBSERVING, R.COMPILING_CONTEXT, R.CALLING_MODEL),
    *((s, R.CANCELLING, R.CANCELLED) for s in RunState if s in RUN_LIVE - {R.CANCELLING}),
)
"""Run paths written as one UPDATE."""

ACTION_PATHS: tuple[tuple[ActionState, ...], ...] = (
    (A.PROPOSED, A.READY, A.RUNNING),
    (A.RUNNING, A.UNKNOWN, A.NEEDS_HUMAN),
    (A.UNKNOWN, A.RUNNING),
    (A.UNKNOWN, A.NEEDS_HUMAN, A.ABANDONED),
)
"""Action paths written as one UPDATE (longer than one move, or the resend)."""


def step_of(state: RunState, resume_to: RunState | None = None) -> str:
    """The chain link that is due in `state`: compile, model, tools or observe.

    RETRY_WAIT belongs to the step of `resume_to`. Raises KeyError for a terminal state.
    """
    if state is R.RETRY_WAIT and resume_to is not None:
        return step_of(resume_to)
    return _STEP[state]


_STEP: dict[RunState, str] = {
    R.QUEUED: "compile",
    R.COMPILING_CONTEXT: "compile",
    R.CALLING_MODEL: "model",
    R.DISPATCHING_TOOLS: "tools",
    R.WAITING_APPROVAL: "tools",
    R.WAITING_CHILD: "tools",
    R.RECONCILING: "tools",
    R.CANCELLING: "tools",
    R.SUSPENDED: "tools",
    R.OBSERVING: "observe",
    R.VERIFYING: "observe",
}

STEPS = ("compile", "model", "tools", "observe")
"""The four links of a turn, in order; also the names of their queues."""


def check_run_move(source: RunState, target: RunState) -> str:
    """The cause of a legal run move; raises `IllegalTransition` otherwise."""
    return _check(RUN_MOVES, source, target, "run")


def check_action_move(source: ActionState, target: ActionState) -> str:
    """The cause of a legal action move; raises `IllegalTransition` otherwise."""
    return _check(ACTION_MOVES, source, target, "action")


def check_approval_move(source: ApprovalState, target: ApprovalState) -> str:
    """The cause of a legal approval move; raises `IllegalTransition` otherwise."""
    return _check(APPROVAL_MOVES, source, target, "approval")


def _check(moves: Mapping[tuple[_S, _S], str], source: _S, target: _S, what: str) -> str:
    try:
        return moves[source, target]
    except KeyError:
        raise IllegalTransition(f"{what}: {source} -> {target} is not in the table") from None


def written_pairs(
    moves: Mapping[tuple[_S, _S], str], paths: Sequence[tuple[_S, ...]]
) -> frozenset[tuple[str, str]]:
    """Every (old, new) pair of states that one UPDATE may write: the moves and the path ends."""
    return frozenset(moves) | {(path[0], path[-1]) for path in paths if path[0] != path[-1]}


def run_pairs() -> frozenset[tuple[str, str]]:
    return written_pairs(RUN_MOVES, RUN_PATHS)


def action_pairs() -> frozenset[tuple[str, str]]:
    return written_pairs(ACTION_MOVES, ACTION_PATHS)


def approval_pairs() -> frozenset[tuple[str, str]]:
    return frozenset(APPROVAL_MOVES)
