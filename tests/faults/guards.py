"""The guards of the runtime, each with a way to take it out.

They are taken out by patching, in a process of the test's own (`worker_entry.py`), never by a
switch of the product. Where the database repeats a guard, `drops` takes that trigger out of the
world of the test as well: else PostgreSQL would refuse what Python no longer does.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Guard:
    """`trials`: (kind, story) that need it. `out` takes it out of this process: of the workers, or
    of the web server where it stands `in_web`."""

    says: str
    out: Callable[[], None]
    trials: tuple[tuple[str, str], ...]
    drops: tuple[str, ...] = ()
    in_web: bool = False


def remove(name: str) -> None:
    """Take the guard `name` out of this process; "" leaves everything in place."""
    if name:
        GUARDS[name].out()


def swap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name` by what `make` makes of it; an error when it has gone."""
    found = getattr(owner, name)
    made = make(found)
    if callable(found) and not isinstance(found, type) and callable(made):
        functools.update_wrapper(made, found)
    setattr(owner, name, made)


def _without_compare_and_swap() -> None:
    """A thawed worker writes what it planned, whatever was written meanwhile."""
    from runs import commits, transitions
    from runs.leases import Lease

    local = threading.local()

    class Unlocked:
        """`transitions` as `commits` sees it: the view always carries the newest revision."""

        def __getattr__(self, name: str) -> Any:
            return getattr(transitions, name)

        def lock_run(self, run_id: Any) -> Any:
            run, now = transitions.lock_run(run_id)
            local.view.run.revision = run.revision
            return run, now

    def remembering(once: Any) -> Any:
        def remember(view: Any, *args: Any, **kwargs: Any) -> Any:
            local.view = view
            return once(view, *args, **kwargs)

        return remember

    class Unguarded:
        """`sql` as `transitions` sees it: updates ask for nothing but the id."""

        def __init__(self, sql: Any) -> None:
            self._sql = sql

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sql, name)

        def update(self, model: Any, *, where: dict[str, Any], sets: dict[str, Any]) -> int:
            changed: int = self._sql.update(model, where={"id": where["id"]}, sets=sets)
            return changed

    swap(commits, "_once", remembering)
    swap(commits, "transitions", lambda _: Unlocked())
    swap(transitions, "sql", Unguarded)
    swap(Lease, "holds", lambda _: lambda self, run: True)


def _without_fence() -> None:
    """Every claim has the fence of the one before it."""
    from runs.transitions import Draft

    def made(take: Any) -> Any:
        def taking(self: Any, **kwargs: Any) -> None:
            before = self.run.fence
            take(self, **kwargs)
            self.set_run(fence=max(before, 1))

        return taking

    swap(Draft, "take_lease", made)


def _without_live_lease() -> None:
    """A run is claimed although somebody works on it, and by any message."""
    from runs import leases

    def made(claim: Any) -> Any:
        return lambda *, run_id, revision, worker: claim(
            run_id=run_id, revision=None, worker=worker
        )

    swap(leases, "is_live", lambda _: lambda *, run_id: False)
    swap(leases, "claim", made)


def _without_intent_guard() -> None:
    """Two proposals of one intent are two actions, each sent."""
    from runs import keys
    from runs.transitions import StaleDraft

    def made(insert: Any) -> Any:
        def inserting(action: Any, now: Any) -> None:
            with contextlib.suppress(StaleDraft):
                insert(action, now)

        return inserting

    swap(keys, "owner_of", lambda _: lambda view, action: (None, 0))
    swap(keys, "_insert_owner", made)


def _without_stable_key() -> None:
    """Each send has a key of its own, so the downstream cannot tell a repetition."""
    from tools.transport import Transport

    def made(build: Any) -> Any:
        def building(self: Any, *args: Any) -> Any:
            parts, body, headers = build(self, *args)
            if "Idempotency-Key" in headers:
                headers["Idempotency-Key"] = f"once_{secrets.token_hex(8)}"
            return parts, body, headers

        return building

    swap(Transport, "_build", made)


def _without_truth_guard() -> None:
    """An outcome is written again, although it is there."""
    from runs import commits, journal
    from runs.transitions import Draft

    def loose(set_row: Any) -> Any:
        def setting(self: Any, row: Any, *, guard: Any = None, **fields: Any) -> None:
            set_row(self, row, guard={} if guard == {"outcome": None} else guard, **fields)

        return setting

    class Unanswered:
        """The attempts as `journal` reads them: none has an outcome yet."""

        def __init__(self, kind: Any) -> None:
            self._kind, self.objects = kind, self

        def __getattr__(self, name: str) -> Any:
            return getattr(self._kind.objects, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._kind(*args, **kwargs)

        def in_bulk(self, ids: Any) -> Any:
            found = self._kind.objects.in_bulk(ids)
            for attempt in found.values():
                attempt.outcome = None
            return found

    swap(commits, "_written", lambda _: lambda run, plan: None)
    swap(Draft, "set_row", loose)
    swap(journal, "Attempt", Unanswered)


def _without_unknown() -> None:
    """An ambiguous outcome of a write is called FAILED."""
    from agentcore.lifecycle import ActionState
    from runs import journal

    def made(join: Any) -> Any:
        def joining(**kwargs: Any) -> ActionState:
            state: ActionState = join(**kwargs)
            return ActionState.FAILED if state == ActionState.UNKNOWN else state

        return joining

    swap(journal, "join_attempts", made)


def _without_lost() -> None:
    """A write whose process died is sent again as if nothing had happened."""
    from runs import journal
    from runs.steps import dispatch_tools

    def made(settle: Any) -> Any:
        def settling(view: Any, draft: Any) -> None:
            for action in view.in_state(dispatch_tools.A.RUNNING):
                for attempt in view.attempts_of(action):
                    if attempt.outcome is None and attempt.fence < view.run.fence:
                        journal.mark_lost(draft, [attempt])
            settle(view, draft)

        return settling

    swap(dispatch_tools, "settle_lost", made)


def _without_ignore() -> None:
    """A stale message passes the next link on, as a task that returns does."""
    from celery.exceptions import Ignore

    from runs import tasks

    def made(follow: Any) -> Any:
        def following(*, task: Any, message: list[str | int]) -> Any:
            try:
                return follow(task=task, message=message)
            except Ignore:
                return message

        return following

    swap(tasks, "follow", made)


def _without_hash() -> None:
    """What is sent is whatever the arguments have become."""
    from runs.steps import bound, starting

    def made(breach_of: Any) -> Any:
        def finding(*args: Any) -> Any:
            found = breach_of(*args)
            return None if found is not None and found.reason == "ARGUMENTS_CHANGED" else found

        return finding

    swap(bound, "content_breach", made)
    swap(starting, "is_unchanged", lambda _: lambda action: True)


def _without_settle_window() -> None:
    """ "Not there" counts as soon as it is said."""
    from agentcore import verdicts

    swap(verdicts, "_until_proven", lambda _: lambda write, settle: None)


def _without_request_key() -> None:
    """A repeated request is a new one."""
    from runs import once

    swap(once, "stored_answer", lambda _: lambda *, once: None)
    swap(once, "store", lambda _: lambda **_: None)


GUARDS: dict[str, Guard] = {
    "compare-and-swap": Guard(
        "fence, claim token and revision compared before every advance",
        _without_compare_and_swap,
        (("pause", "small"), ("pause", "batch")),
        drops=(
            "DROP TRIGGER run_move ON runs_run",
            "DROP TRIGGER run_ended ON runs_run",
            "DROP TRIGGER run_grows ON runs_run",
            "DROP TRIGGER attempt_starts ON runs_attempt",
            "DROP TRIGGER attempt_asks ON runs_attempt",
        ),
    ),
    "fence": Guard(
        "a new fence with every claim",
        _without_fence,
        (("kill", "small"),),
    ),
    "live lease": Guard(
        "no claim while the lease is live or the message is stale",
        _without_live_lease,
        (("only messages", "thinking"),),
    ),
    "hash": Guard(
        "what is sent has the hash of what was judged and approved",
        _without_hash,
        (("tampered", "tampered"),),
    ),
    "settle window": Guard(
        "not there counts after the settle window, twice",
        _without_settle_window,
        (("late", "looked_up"),),
    ),
    "request key": Guard(
        "a request that was answered is not done again",
        _without_request_key,
        (("web kill", "small"),),
        in_web=True,
    ),
    "intent": Guard(
        "one owner for one business intent (unique keys)",
        _without_intent_guard,
        (("intent", "again"),),
        drops=(
            "DROP INDEX key_one_live_owner",
            "ALTER TABLE runs_keyowner DROP CONSTRAINT key_generation_once",
        ),
    ),
    "key": Guard(
        "the same idempotency key with every send of one action",
        _without_stable_key,
        (("kill", "small"), ("kill", "lost_reply")),
    ),
    "truth": Guard(
        "an outcome is written once",
        _without_truth_guard,
        (("connection", "small"),),
        drops=("DROP TRIGGER attempt_outcome_once ON runs_attempt",),
    ),
    "unknown": Guard(
        "a write without a reply is UNKNOWN, never FAILED",
        _without_unknown,
        (("lost", "lost_reply"),),
    ),
    "lost": Guard(
        "a write whose process died is UNKNOWN before it is sent again",
        _without_lost,
        (("kill", "small"),),
    ),
    "ignore": Guard(
        "a stale message publishes nothing",
        _without_ignore,
        (("messages", "batch"), ("messages", "small")),
    ),
}
