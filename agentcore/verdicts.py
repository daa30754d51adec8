"""What a list of attempts says about an action, and what is done about an open write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from agentcore.lifecycle import ActionState
from agentcore.values import (
    Absent,
    Conflict,
    Contract,
    Effect,
    Found,
    Inconclusive,
    Json,
    Key,
    Natural,
    NotDone,
    OutcomeKind,
    Pending,
    ProbeVerdict,
    Query,
)

PROBE_WAITS = (5.0, 30.0, 120.0, 600.0, 3600.0)
"""Seconds before the next probe, by the number of probes made; the last one repeats."""
RETENTION_MARGIN = timedelta(minutes=1)
"""A resend is sent at least this long before the downstream may forget our key."""
MIN_SPACING, MAX_SPACING = timedelta(seconds=1), timedelta(minutes=1)
"""Bounds of the time between the two answers that prove an absence."""
QUERY_SENDS = 2
"""The first send of a `Query` write, and the one new attempt after a proven absence."""

_WITHOUT_EFFECT = frozenset({OutcomeKind.NO_EFFECT, OutcomeKind.REFUSED})


def join_attempts(*, effect: Effect, outcomes: Sequence[OutcomeKind | None]) -> ActionState:
    """The state of an action from the outcomes of all its attempts; None is a lost attempt.

    A write is FAILED only when every attempt provably had no effect. One refusal never overrules
    an earlier attempt that may have worked. A read is never UNKNOWN. FAILED says "as far as these
    attempts go": whether another one follows is the caller's decision. Raises ValueError without
    attempts.
    """
    if not outcomes:
        raise ValueError("an action without attempts has no outcome")
    if OutcomeKind.SUCCESS in outcomes:
        return ActionState.SUCCEEDED
    if not effect.is_write:
        return ActionState.FAILED
    if OutcomeKind.PENDING in outcomes:
        return ActionState.PENDING
    if all(outcome in _WITHOUT_EFFECT for outcome in outcomes):
        return ActionState.FAILED
    return ActionState.UNKNOWN


@dataclass(frozen=True, slots=True)
class Succeed:
    """The effect exists with our arguments."""

    result: Json
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """The effect does not exist and cannot come any more; `reason` is a machine word."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the same key and bytes again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Escalate:
    """Only a person can tell; `reason` is a machine word."""

    reason: str


Resolution = Succeed | Fail | Resend | Wait | Escalate


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWrite:
    """What is known of an UNKNOWN or PENDING write when the question is what to do about it.

    `verdict` is the newest answer of its probe, None for a tool without one; `probes` counts the
    answers, `absent_at` are the times at which the answers "absent" were asked for. `sends` counts
    the attempts that may have left this side, `last_refused` says that the newest one was refused.
    `idle_at`: from when nothing of ours can be under way any more; `unsettled_since`: since when
    the outcome is not known. `fenced`: every send of the tool goes through the transport, so
    nothing leaves after its time. `stopping` and `suspended` runs send nothing.
    """

    contract: Contract | None
    verdict: ProbeVerdict | None
    now: datetime
    state: ActionState = ActionState.UNKNOWN
    first_sent_at: datetime | None
    idle_at: datetime
    unsettled_since: datetime
    max_age: timedelta
    sends: int
    max_sends: int
    probes: int
    absent_at: Sequence[datetime] = ()
    last_refused: bool = False
    fenced: bool = False
    stopping: bool = False
    suspended: bool = False
    waits: Sequence[float] = PROBE_WAITS


def resolve_probe(write: OpenWrite) -> Resolution:
    """What to do about an open write. Age alone never ends in Fail: it proves nothing."""
    match write.verdict:
        case Found(fingerprint_matches=False) | Conflict():
            return Escalate("conflict")
        case Found(result=result, reference=reference):
            return Succeed(result, reference)
        case NotDone(detail=detail) if write.now >= write.idle_at:
            return Fail("not_done_downstream", detail)
    if write.now >= write.unsettled_since + write.max_age:
        return Escalate("too_old")
    if write.state is ActionState.PENDING:
        return _later(write)  # it was accepted: "absent" now is a fault of the question
    if write.suspended or isinstance(write.verdict, (Pending, Inconclusive, NotDone)):
        return _later(write)
    return _absent(write)


def _later(write: OpenWrite) -> Wait:
    waits = write.waits or PROBE_WAITS
    return Wait(waits[min(max(write.probes, 1), len(waits)) - 1])


def _absent(write: OpenWrite) -> Resolution:
    """The downstream does not know our request, or cannot be asked."""
    contract = write.contract
    if isinstance(contract, Query) and write.verdict is not None:
        return _after_settling(write, contract.settle, max_sends=QUERY_SENDS)
    if isinstance(contract, Key):
        return _by_key(write, contract)
    if isinstance(contract, Natural):
        refused = "precondition_failed" if write.last_refused else ""
        return _resend_or(write, refused)
    return Escalate(_no_resend(contract, write.verdict))


def _by_key(write: OpenWrite, contract: Key) -> Resolution:
    if write.first_sent_at is None:
        return Escalate("first_send_unknown")
    if write.now < write.first_sent_at + contract.retention - RETENTION_MARGIN:
        return _resend_or(write, "refused_after_ambiguous" if write.last_refused else "")
    if write.verdict is None:
        return Escalate("retention_over")
    # Our key may be forgotten, so a resend could act twice: now it is as a write that can only be
    # looked up, and what stays invisible does so no longer than the key was promised to be kept.
    return _after_settling(write, contract.retention, max_sends=write.max_sends)


def _resend_or(write: OpenWrite, refused: str) -> Resolution:
    """Send again, for a downstream where twice is once; `refused` speaks against it."""
    if write.stopping:
        return Escalate(f"stopping_{'without_probe' if write.verdict is None else 'absent'}")
    if refused:
        return Escalate(refused)
    if write.sends >= write.max_sends:
        return Escalate("attempts_used")
    return Resend()


def _after_settling(write: OpenWrite, settle: timedelta, *, max_sends: int) -> Resolution:
    """ "Not there" counts when it was asked after the settle window, twice, with time between.

    And only when nothing of ours can still send: else a stalled process could make the effect
    after it was proven absent.
    """
    wait = _until_proven(write, settle)
    if wait is not None:
        return wait
    if not write.fenced:
        return Escalate("absent_not_fenced")
    if write.stopping or write.last_refused:
        return Fail("proven_absent", f"asked {len(write.absent_at)} times, settled and absent")
    if write.sends >= max_sends:
        return Escalate("attempts_used")
    return Resend()


def _until_proven(write: OpenWrite, settle: timedelta) -> Wait | None:
    """When to ask again before the absence is proven; None when it is."""
    settled = write.idle_at + settle
    spacing = min(max(settle, MIN_SPACING), MAX_SPACING)
    counted = [at for at in write.absent_at if at >= settled]
    if counted and max(counted) - min(counted) >= spacing:
        return None
    later = timedelta(seconds=_later(write).seconds)
    if counted:
        wait = min(counted) + spacing - write.now
    elif write.now < settled:
        wait = min(later, settled - write.now)
    else:
        wait = min(later, spacing)
    return Wait(max(wait.total_seconds(), 0.0))


def _no_resend(contract: Contract | None, verdict: ProbeVerdict | None) -> str:
    name = "no_contract" if contract is None else f"{contract.name.lower()}_contract"
    return f"{name}_absent" if isinstance(verdict, Absent) else f"{name}_without_probe"
