"""What a list of attempts says about an action, and what a probe's answer leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from agentcore.lifecycle import ActionState
from agentcore.values import (
    Absent,
    Contract,
    Effect,
    Found,
    Inconclusive,
    Json,
    Key,
    OutcomeKind,
    Pending,
    ProbeVerdict,
)

PROBE_WAITS = (5.0, 30.0, 120.0, 600.0, 3600.0)
"""Seconds before the next probe, by the number of probes made; the last one repeats."""
RETENTION_MARGIN = timedelta(minutes=1)
"""A resend is sent at least this long before the downstream may forget our key."""

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


Resolution = Succeed | Resend | Wait | Escalate


def resolve_probe(
    *,
    contract: Contract | None,
    verdict: ProbeVerdict | None,
    first_sent_at: datetime | None,
    now: datetime,
    attempts: int,
    max_attempts: int,
    stopping: bool,
    probes: int,
) -> Resolution:
    """What to do with an UNKNOWN write after a probe; `verdict` None: the tool has no probe.

    `attempts` counts the sends so far, `probes` the probes made, this one included. A stopping
    run settles what it began and sends nothing. Never ends in FAILED: age proves nothing.
    """
    if isinstance(verdict, Found):
        if not verdict.fingerprint_matches:
            return Escalate("conflict")
        return Succeed(verdict.result, verdict.reference)
    if isinstance(verdict, (Pending, Inconclusive)):
        return Wait(PROBE_WAITS[min(max(probes, 1), len(PROBE_WAITS)) - 1])
    if stopping:
        return Escalate("stopping_without_probe" if verdict is None else "stopping_absent")
    if not isinstance(contract, Key):
        return Escalate(_no_resend(contract, verdict))
    if first_sent_at is None:
        return Escalate("first_send_unknown")
    if now >= first_sent_at + contract.retention - RETENTION_MARGIN:
        return Escalate("retention_over")
    if attempts >= max_attempts:
        return Escalate("attempts_used")
    return Resend()


def _no_resend(contract: Contract | None, verdict: Absent | None) -> str:
    name = "no_contract" if contract is None else f"{contract.name.lower()}_contract"
    return f"{name}_absent" if verdict is not None else f"{name}_without_probe"
