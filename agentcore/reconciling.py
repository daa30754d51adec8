"""What people and downstreams may say about a write whose fate is not known, and what follows.

Pure rules: facts in, one answer out. The clock is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from agentcore.lifecycle import ACTION_TERMINAL, ActionState
from agentcore.values import Contract, Key, NoContract, OutcomeKind, Query
from agentcore.verdicts import RETENTION_MARGIN

A = ActionState
JUDGED = frozenset({A.UNKNOWN, A.NEEDS_HUMAN})
"""States in which a person may give a verdict."""


class Verdict(StrEnum):
    """What a person establishes about a write."""

    EFFECT_EXISTS = "EFFECT_EXISTS"
    EFFECT_DOES_NOT_EXIST = "EFFECT_DOES_NOT_EXIST"
    RESEND_SAME_KEY = "RESEND_SAME_KEY"
    ABANDON = "ABANDON"
    STILL_UNKNOWN = "STILL_UNKNOWN"


class Ground(StrEnum):
    """Why an effect cannot still happen. That time has passed is not among them."""

    KEY_CLOSED = "KEY_CLOSED"  # the downstream used up or cancelled our key
    DOWNSTREAM_REFUSED = "DOWNSTREAM_REFUSED"  # it confirms: refused, and it will not be tried
    ABSENT_AFTER_SETTLING = "ABSENT_AFTER_SETTLING"  # asked after the settle window: nothing there


class Word(StrEnum):
    """A downstream's own word about an effect."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    PENDING = "PENDING"


class Heard(StrEnum):
    """What a downstream's word leads to."""

    SUCCEED = "SUCCEED"
    FAIL = "FAIL"
    PEND = "PEND"
    CONFLICT = "CONFLICT"  # a person must look: it speaks of another effect than we know of
    WAIT = "WAIT"  # too early to take: a request may still be on its way
    EVIDENCE = "EVIDENCE"  # kept, and changes nothing
    CONTRADICTION = "CONTRADICTION"  # against what is final here: an incident


@dataclass(frozen=True, slots=True)
class Send:
    """One attempt of a write: when it began, until when it may send, how it ended, if it did."""

    started_at: datetime
    send_by: datetime
    outcome: OutcomeKind | None = None
    ended_at: datetime | None = None
    lost: bool = False

    def may_still_send(self, now: datetime) -> bool:
        """Whether the process that made it may yet send its first byte."""
        return self.outcome is None and (not self.lost or now <= self.send_by)


def in_flight(sends: Sequence[Send], *, now: datetime) -> bool:
    """Whether a request of this write may still be on its way to the downstream."""
    return any(send.may_still_send(now) for send in sends)


def settled_at(
    *, sends: Sequence[Send], contract: Contract | None, timeout: float
) -> datetime | None:
    """From when "it is not there" means that it will not come; None when nothing was sent.

    The settle window runs from the recorded end of the last attempt, else from the latest time at
    which it could have been answered (`timeout` in seconds after its last chance to send).
    """
    ends = [send.ended_at or send.send_by + timedelta(seconds=timeout) for send in sends]
    settle = contract.settle if isinstance(contract, Query) else timedelta(0)
    return max(ends) + settle if ends else None


def retained_until(*, contract: Contract | None, first_sent_at: datetime | None) -> datetime | None:
    """Until when a resend of the same key is deduplicated; None when there is no such promise."""
    if not isinstance(contract, Key) or first_sent_at is None:
        return None
    return first_sent_at + contract.retention - RETENTION_MARGIN


def resend_refusal(
    *,
    contract: Contract | None,
    first_sent_at: datetime | None,
    sends: Sequence[Send],
    stopping: bool,
    now: datetime,
) -> str:
    """Why the same key and bytes may not be sent again; "" when they may. For people."""
    if stopping:
        return "The run is stopping: it settles what it began and sends nothing more."
    if contract is None:
        return "The tool is not registered in the version that made this action."
    if isinstance(contract, NoContract):
        return "The downstream promises nothing about a repeated request: one attempt ever."
    if in_flight(sends, now=now):
        return "A request may still be on its way. Wait until it is recorded or lost."
    if isinstance(contract, Key):
        until = retained_until(contract=contract, first_sent_at=first_sent_at)
        if until is None or now >= until:
            return "The downstream may have forgotten our key: a resend could act twice."
    return ""


def absence_refusal(
    *,
    ground: Ground,
    sends: Sequence[Send],
    contract: Contract | None,
    timeout: float,
    now: datetime,
) -> str:
    """Why "it does not exist and cannot still happen" may not be said yet; "" when it may."""
    if in_flight(sends, now=now):
        return "A request may still be on its way. Wait until it is recorded or lost."
    settled = settled_at(sends=sends, contract=contract, timeout=timeout)
    if ground is Ground.ABSENT_AFTER_SETTLING and settled is not None and now < settled:
        return f"The settle window runs until {settled:%Y-%m-%d %H:%M:%S} UTC. Ask again after it."
    return ""


def hear(
    *,
    state: ActionState,
    word: Word,
    reference: str,
    known_reference: str,
    conflict: bool,
    sends: Sequence[Send],
    fenced: bool,
    heard_at: datetime,
    now: datetime,
) -> Heard:
    """What the downstream's word about one write leads to.

    `conflict`: the action waits for a person because the downstream holds our key with other
    arguments; its word that it succeeded then says nothing about ours. `fenced`: what the tool
    sends asks the clock before each write, so a lost attempt sends nothing after its time.
    """
    other = bool(reference and known_reference and reference != known_reference)
    if state in ACTION_TERMINAL:
        return _against_final(state, word, other=other)
    if conflict:
        return Heard.EVIDENCE
    match word:
        case Word.SUCCEEDED if other:
            return Heard.EVIDENCE if state is A.NEEDS_HUMAN else Heard.CONFLICT
        case Word.SUCCEEDED:
            return Heard.SUCCEED
        case Word.PENDING:
            return Heard.PEND if state is A.UNKNOWN else Heard.EVIDENCE
    if other or any(send.started_at > heard_at for send in sends):
        return Heard.EVIDENCE  # it speaks of something else, or of an earlier send only
    return _failed(sends, fenced, now)


def _failed(sends: Sequence[Send], fenced: bool, now: datetime) -> Heard:
    """FAILED frees the key, so nothing sent under it may still arrive."""
    if len(sends) == 1 and sends[0].lost:
        return Heard.FAIL  # the word itself proves that the one request has arrived
    if not fenced and any(send.lost and send.outcome is None for send in sends):
        return Heard.EVIDENCE  # one of several may arrive at any time; a person must look
    return Heard.WAIT if in_flight(sends, now=now) else Heard.FAIL


def _against_final(state: ActionState, word: Word, *, other: bool) -> Heard:
    if state is A.SUCCEEDED:
        against = word is Word.FAILED or (word is Word.SUCCEEDED and other)
    else:
        against = word is Word.SUCCEEDED or (word is Word.PENDING and state is not A.ABANDONED)
    return Heard.CONTRADICTION if against else Heard.EVIDENCE
