"""What must hold after every trial, from the rows and from the downstream's own ledger.

The numbers are those of the fault plan: I1 effects, I2 end, I3 transitions, I4 intent before
effect, I5 the bytes that were approved, I7 calls on the wire, I8 one output for each call, I9
fences and decisions, I6 nothing after a cancel, I11 the chain of events, and of I10 one end: that
it is delivered is shown by the tests of the webhooks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from agentcore import canonical, lifecycle
from agentcore.lifecycle import ACTION_TERMINAL, ActionState, ApprovalState, RunState

Row = dict[str, Any]
SAME_CLOCK = timedelta(milliseconds=2)
"""Both clocks are of one machine; the ledger's is cut to milliseconds."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant. `kind`: duplicate, lost, illegal, lie or broken."""

    code: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.code} ({self.kind}): {self.text}"


@dataclass(frozen=True, slots=True)
class Expected:
    """How a run may end, and how often the downstream must have booked each order.

    A run that is cancelled may have had its effects or not. `undisturbed`: nothing was broken on
    purpose, so that no worker may lose what it is doing.
    """

    states: tuple[str, ...] = ("COMPLETED",)
    effects: Mapping[str, int] = field(default_factory=dict)
    undisturbed: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything known about one run. `ledger` are the downstream's rows for its orders, `claims`
    the fences that were handed out, `wire` the model calls that arrived, `stale_links` what stale
    messages published."""

    run: Row
    events: Sequence[Row]
    actions: Sequence[Row]
    attempts: Sequence[Row]
    approvals: Sequence[Row]
    turns: Sequence[Row]
    owners: Sequence[Row]
    ledger: Sequence[Row]
    claims: Sequence[int]
    wire: int | None
    stale_links: int = 0


def read_rows(conn: psycopg.Connection[Any], run_id: str) -> dict[str, Any]:
    """The rows of a run, as `Facts` wants them."""

    def rows(sql: str) -> list[Row]:
        with conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(sql, [run_id]).fetchall()

    return {
        "run": rows("SELECT * FROM runs_run WHERE id = %s")[0],
        "events": rows("SELECT * FROM runs_event WHERE run_id = %s ORDER BY seq"),
        "actions": rows(
            "SELECT * FROM runs_actionjournal WHERE run_id = %s ORDER BY turn, ordinal, edit"
        ),
        "attempts": rows("SELECT * FROM runs_attempt WHERE run_id = %s ORDER BY started_at, n"),
        "approvals": rows("SELECT * FROM approvals_approval WHERE run_id = %s"),
        "turns": rows("SELECT * FROM runs_turn WHERE run_id = %s ORDER BY number"),
        "owners": rows(
            "SELECT k.* FROM runs_keyowner k JOIN runs_actionjournal a ON a.id = k.action_id"
            " WHERE a.run_id = %s"
        ),
    }


def violations(facts: Facts, expected: Expected, *, event_key: bytes) -> list[Violation]:
    """Every broken invariant of one finished trial."""
    return [*of_effects(facts, expected), *of_rows(facts, event_key=event_key)]


def of_effects(facts: Facts, expected: Expected) -> list[Violation]:
    """What the rows and the other side must say together, and how it must have ended."""
    return [
        *_effects(facts, expected),
        *_end(facts, expected),
        *_intents(facts),
        *_bytes(facts),
        *_outputs(facts),
    ]


def of_rows(facts: Facts, *, event_key: bytes) -> list[Violation]:
    """What the rows alone must fulfil, at any moment of a run."""
    return [
        *_transitions(facts),
        *_fences(facts),
        *_questions(facts),
        *_cancelled(facts),
        *_attempts(facts),
        *_chain(facts, event_key),
    ]


def _effects(facts: Facts, expected: Expected) -> Iterator[Violation]:
    """I1, and no lie: what the rows say about an effect is what the ledger has."""
    booked = Counter(row["order_id"] for row in facts.ledger)
    for order, wanted in expected.effects.items():
        if booked[order] > wanted:
            yield Violation("I1", "duplicate", f"{order}: {booked[order]} effects, not {wanted}")
        if booked[order] < wanted and facts.run["state"] == "COMPLETED":
            yield Violation("I1", "lie", f"COMPLETED, but {order} has no effect")
    keys = {row["idempotency_key"] for row in facts.ledger}
    for action in facts.actions:
        done = action["idempotency_key"] in keys
        if done and action["state"] in ("FAILED", "DENIED", "VOIDED", "REJECTED", "EXPIRED"):
            yield Violation("I1", "lie", f"the action is {action['state']}, its effect exists")
        if not done and action["state"] == "SUCCEEDED" and action["effect"] != "READ":
            yield Violation("I1", "lie", "the action is SUCCEEDED, its effect does not exist")


def _end(facts: Facts, expected: Expected) -> Iterator[Violation]:
    """I2: the end that the story has, with nothing left open. A cancelled run sends nothing more,
    so an effect of it that cannot be found waits for a person."""
    state = facts.run["state"]
    asked = state == "CANCELLING" and any(a["state"] == "NEEDS_HUMAN" for a in facts.actions)
    if state not in expected.states and not (asked and "CANCELLED" in expected.states):
        kind = "lost" if state not in lifecycle.RUN_TERMINAL else "broken"
        wanted = " or ".join(expected.states)
        yield Violation("I2", kind, f"{state}, not {wanted}: {facts.run['reason'][:200]}")
    late = [a for a in facts.attempts if a["late"] or a["lost_at"]]
    if expected.undisturbed and late:
        yield Violation("I9", "broken", f"{len(late)} calls of living workers were taken from them")
    if state in lifecycle.RUN_TERMINAL:
        for action in facts.actions:
            if action["state"] not in ACTION_TERMINAL:
                yield Violation("I2", "lost", f"{state} with an action in {action['state']}")


def _moves(facts: Facts) -> Iterator[tuple[Row, Row]]:
    """Every change with its event; an event without one counts as one, of nothing."""
    for event in facts.events:
        for move in event["data"].get("transitions") or ({"object": "nothing", "to": ""},):
            yield event, {"id": str(facts.run["id"]), **move}  # a move of the run does not say it


def _transitions(facts: Facts) -> Iterator[Violation]:
    """I3: every arrow is in the tables, each begins where the last one ended, the last is now."""
    now: dict[str, str] = {}
    for event, move in _moves(facts):
        table = _TABLES.get(move["object"])
        if table is None:
            continue
        key, to = move["id"], move["to"]
        source = now.get(key) if move["object"] == "approval" else move.get("from")
        where = f"event {event['seq']}: {move['object']} {source} -> {to}"
        if source != now.get(key):
            yield Violation("I3", "illegal", f"{where}, but it was {now.get(key)}")
        elif source is not None and (source, to) not in table:
            yield Violation("I3", "illegal", f"{where} is not in the table")
        now[key] = to
    for row in (facts.run, *facts.actions, *facts.approvals):
        last = now.get(str(row["id"]))
        if last != row["state"]:
            yield Violation("I3", "illegal", f"the row is {row['state']}, its events say {last}")


_TABLES: dict[str, frozenset[tuple[str, str]]] = {
    "run": frozenset((str(a), str(b)) for a, b in lifecycle.RUN_MOVES),
    "action": frozenset((str(a), str(b)) for a, b in lifecycle.ACTION_MOVES),
    "approval": frozenset((str(a), str(b)) for a, b in lifecycle.APPROVAL_MOVES),
}
assert all(isinstance(state, str) for state in (*RunState, *ActionState, *ApprovalState))


def _intents(facts: Facts) -> Iterator[Violation]:
    """I4: an effect has an attempt that was committed before it. One intent, one sender."""
    sent: defaultdict[str, list[Row]] = defaultdict(list)
    for attempt in facts.attempts:
        if attempt["kind"] == "TOOL" and attempt["idempotency_key"]:
            sent[attempt["idempotency_key"]].append(attempt)
    for row in facts.ledger:
        at = datetime.fromisoformat(row["created_at"])
        before = [a for a in sent[row["idempotency_key"]] if a["started_at"] <= at + SAME_CLOCK]
        if not before:
            yield Violation("I4", "broken", f"the effect of {row['order_id']} has no intent")
    for attempts in sent.values():
        if len({attempt["action_id"] for attempt in attempts}) > 1:
            yield Violation("I1", "duplicate", "two actions were sent under one key")
    intents = Counter(
        (action["tool"], action["intent_key"], action["generation"])
        for action in facts.actions
        if action["intent_key"] and action["idempotency_key"]
    )
    if any(count > 1 for count in intents.values()):
        yield Violation("I1", "duplicate", "two actions own one generation of an intent")


def _bytes(facts: Facts) -> Iterator[Violation]:
    """I5: what the downstream executed is what was journaled, and what a person approved."""
    approvals = {row["id"]: row for row in facts.approvals}
    actions = {row["idempotency_key"]: row for row in facts.actions if row["idempotency_key"]}
    for row in facts.ledger:
        action = actions.get(row["idempotency_key"])
        if action is None:
            yield Violation("I5", "broken", "an effect under a key that no action has")
            continue
        executed = canonical.params_hash(
            tool=action["tool"],
            tool_version=action["tool_version"],
            tenant=action["tenant"],
            params={
                "order_id": row["order_id"],
                "amount": f"{row['amount']} {row['currency']}",
                "reason": row["reason"],
            },
        )
        if executed != action["params_hash"]:
            yield Violation("I5", "broken", "the executed bytes are not the journaled ones")
        approval = approvals.get(action["approval_id"])
        if approval is not None and approval["params_hash"] != executed:
            yield Violation("I5", "broken", "the executed bytes are not the approved ones")
        if approval is not None and approval["state"] != "CONSUMED":
            yield Violation("I5", "broken", f"executed with an approval {approval['state']}")


def _outputs(facts: Facts) -> Iterator[Violation]:
    """I8: one observation for each call; I7: every call on the wire has its attempt."""
    if facts.run["state"] == "COMPLETED":
        for action in facts.actions:
            if action["observation"] is None:
                yield Violation("I8", "broken", f"call {action['call_id']} has no output")
    if facts.stale_links:
        yield Violation("R65", "broken", f"stale messages published {facts.stale_links} links")
    asked = sum(attempt["kind"] == "MODEL" for attempt in facts.attempts)
    if facts.wire is not None and facts.wire > asked:
        yield Violation("I7", "broken", f"{facts.wire} model calls arrived, {asked} attempts")


def _fences(facts: Facts) -> Iterator[Violation]:
    """I9: fences grow with every claim, one decision a turn, no turn left out."""
    # Not by the order of the log: a process may be stopped between its COMMIT and its word.
    if len(set(facts.claims)) < len(facts.claims):
        yield Violation("I9", "broken", f"claims got the fences {list(facts.claims)}")
    workers: defaultdict[int, set[Any]] = defaultdict(set)
    for attempt in facts.attempts:
        workers[attempt["fence"]].add(attempt["worker"])
        if attempt["fence"] > facts.run["fence"]:
            yield Violation("I9", "broken", "an attempt has a fence of the future")
    if any(len(found) > 1 for found in workers.values()):
        yield Violation("I9", "broken", "two workers made attempts under one fence")
    numbers = [turn["number"] for turn in facts.turns]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Violation("I9", "broken", f"turns {numbers}")


def _questions(facts: Facts) -> Iterator[Violation]:
    """The model is asked once for each decision, and never while the fate of a write is open."""
    open_now: set[str] = set()
    decided = {turn["number"]: turn["decided_at"] for turn in facts.turns if turn["decided_at"]}
    for event, move in _moves(facts):
        if move["object"] == "action":
            (open_now.add if move["to"] in _UNSETTLED else open_now.discard)(move["id"])
        if move["object"] == "attempt" and move["kind"] == "MODEL" and move["to"] == "STARTED":
            at = f"event {event['seq']}: the model is asked in turn {move['turn']}"
            if open_now:
                yield Violation("R53", "broken", f"{at} while an action is open")
            if event["created_at"] > decided.get(move["turn"], event["created_at"]):
                yield Violation("R16", "broken", f"{at} although its decision is stored")


def _cancelled(facts: Facts) -> Iterator[Violation]:
    """I6: once the cancel is committed no tool call of the run starts."""
    cancelled = 0
    for event, move in _moves(facts):
        starts = move["object"] == "attempt" and move["to"] == "STARTED"
        if cancelled and starts and move["kind"] in ("TOOL", "MODEL"):
            text = f"event {event['seq']}: a call started after the cancel {cancelled}"
            yield Violation("I6", "broken", text)
        if event["data"].get("command") == "cancel":
            cancelled = cancelled or event["seq"]


_UNSETTLED = ("PENDING", "UNKNOWN", "NEEDS_HUMAN")


def _attempts(facts: Facts) -> Iterator[Violation]:
    """An outcome is recorded once; after an unclear one of a write, UNKNOWN comes before a send."""
    recorded: Counter[str] = Counter()
    writes = {str(row["id"]) for row in facts.actions if row["effect"] != "READ"}
    action_of = {str(row["id"]): str(row["action_id"]) for row in facts.attempts}
    unclear: set[str] = set()
    for event, move in _moves(facts):
        if move["object"] == "action" and move["to"] in ("UNKNOWN", "SUCCEEDED", "PENDING"):
            unclear.discard(move["id"])
        if move["object"] != "attempt":
            continue
        action = action_of.get(move["id"], "")
        if move["to"] not in ("STARTED", "LOST"):
            recorded[move["id"]] += 1
        if move["kind"] != "TOOL" or action not in writes:
            continue
        if move["to"] in ("LOST", "AMBIGUOUS"):
            unclear.add(action)
        if move["to"] == "STARTED" and action in unclear:
            text = f"event {event['seq']}: sent again without having been UNKNOWN"
            yield Violation("I3", "lie", text)
    if any(count > 1 for count in recorded.values()):
        yield Violation("I9", "broken", "the outcome of an attempt was recorded twice")


def _chain(facts: Facts, event_key: bytes) -> Iterator[Violation]:
    """I11: no gap in `seq`, the hashes verify, the head is that of the run."""
    previous, head = 0, ""
    for event in facts.events:
        if event["seq"] != previous + 1:
            yield Violation("I11", "broken", f"event {previous + 1} is missing")
        body = {
            "run": str(event["run_id"]),
            "seq": event["seq"],
            "type": event["type"],
            "actor": event["actor"],
            "revision": [event["revision_before"], event["revision_after"]],
            "data": event["data"],
            "at": event["created_at"].isoformat(),
        }
        head = canonical.event_hash(key=event_key, previous=head, body=body)
        if head != event["hash"]:
            yield Violation("I11", "broken", f"event {event['seq']} does not verify")
        previous, head = event["seq"], event["hash"]
    if (previous, head) != (facts.run["event_seq"], facts.run["event_head"]):
        yield Violation("I11", "broken", "the run does not point to its last event")
    ends = [e for e in facts.events if e["type"] in _ENDS]
    if len(ends) > 1:
        yield Violation("I10", "broken", "two terminal events")


_ENDS = ("run.completed", "run.incomplete", "run.failed", "run.cancelled")
