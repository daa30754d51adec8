"""Who owns a business intent: taking it, giving it back, looking it up.

At most one action owns an intent; the database says so (`key_one_live_owner`). The idempotency key
is made of the intent and a generation, the number of owners that gave it back before: it never
depends on time, attempt, worker or the model. An owner gives its intent back when

- it is proven FAILED;
- it SUCCEEDED under a `Natural` contract, where doing it again is harmless;
- its tool is `repeatable` and a later write on the same resource SUCCEEDED (for another tool, such
  as one that pays, a write beside it is no reason to pay again);
- its tool is `repeatable` and an approval names exactly this repeat;
- it SUCCEEDED longer ago than the tool's `horizon`.

An ABANDONED owner keeps it: nobody knows what its write did. Reads own nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import F

from agentcore import canonical
from agentcore.lifecycle import ActionState
from agentcore.values import Natural
from runs import sql
from runs.at_once import Joining
from runs.fleet_models import KeyOwner
from runs.models import ActionJournal, Incident
from runs.transitions import Draft, StaleDraft
from runs.view import View, is_write
from tools import registry
from tools.spec import ToolSpec

A = ActionState
REPEAT = "repeat"
"""Member of an approval's impact that names the owner whose intent may be done once more."""


@dataclass(frozen=True, slots=True)
class Free:
    """The intent may be taken. `instead_of`: the owner that gives it back in the same step."""

    released: int
    instead_of: KeyOwner | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Another action owns it: this one is its duplicate, or a conflict."""

    owner: KeyOwner


@dataclass(frozen=True, slots=True)
class Repeat:
    """It was done, and a person may allow it once more."""

    owner: KeyOwner


Standing = Free | Taken | Repeat


# --- looking up, before the transaction ------------------------------------------------------


def owner_of(view: View, action: ActionJournal) -> tuple[KeyOwner | None, int]:
    """Who owns the action's intent now, and how many owners gave it back before."""
    key = (action.tool, action.intent_key)
    if key not in view.owners:
        rows = list(
            KeyOwner.objects.filter(
                tenant=action.tenant, tool=action.tool, intent_key=action.intent_key
            ).select_related("action")
        )
        live = next((row for row in rows if row.released_at is None), None)
        view.owners[key] = (live, sum(row.released_at is not None for row in rows))
    return view.owners[key]


def standing_of(
    view: View, action: ActionJournal, spec: ToolSpec, now: datetime, *, guess: bool = False
) -> Standing:
    """Whether the intent of `action` may be taken now.

    `guess`: an intent that this run has not had is taken for new without looking, as most are. Who
    takes it finds out; then the view is read again and no longer `trusting`.
    """
    if guess and view.trusting and not _had_before(view, action):
        return Free(0)
    owner, released = owner_of(view, action)
    if owner is None:
        return Free(released)
    # This drive's own rows know more than the database until its transaction is written.
    owner.action = next((row for row in view.actions if row.id == owner.action_id), owner.action)
    if _gives_back(view, owner.action, spec):
        return Free(released + 1)
    if _is_over(owner.action, spec, now) or _is_named(view, action, spec, owner):
        return Free(released, instead_of=owner)
    if spec.repeatable and owner.action.state == A.SUCCEEDED:
        return Repeat(owner)
    return Taken(owner)


def _had_before(view: View, action: ActionJournal) -> bool:
    intent = (action.tool, action.intent_key)
    return intent in view.history.intents or any(
        (row.tool, row.intent_key) == intent and row.id != action.id for row in view.recent
    )


def _gives_back(view: View, owner: ActionJournal, spec: ToolSpec) -> bool:
    """The transaction that is being drafted releases this owner before it starts anything."""
    if owner.state == A.FAILED:
        return True
    if owner.state != A.SUCCEEDED or owner.ended_at is None:
        return False
    return owner.contract == Natural.name or (
        spec.repeatable and any(_follows(row, owner) for row in view.in_state(A.SUCCEEDED))
    )


def _follows(row: ActionJournal, owner: ActionJournal) -> bool:
    """A later write on the same resource."""
    if row.id == owner.id or not is_write(row) or row.resource_key != owner.resource_key:
        return False
    ends = (row.ended_at, owner.ended_at)
    return bool(row.resource_key and ends[0] and ends[1] and ends[0] > ends[1])


def _is_over(owner: ActionJournal, spec: ToolSpec, now: datetime) -> bool:
    """The horizon: what was done longer ago than that is another intent by now."""
    if spec.horizon is None or owner.state != A.SUCCEEDED or owner.ended_at is None:
        return False
    return owner.ended_at + spec.horizon <= now


def _is_named(view: View, action: ActionJournal, spec: ToolSpec, owner: KeyOwner) -> bool:
    """A person approved this action as the repeat of exactly this owner."""
    approval = view.approval_of(action)
    if approval is None or not spec.repeatable or owner.action.state != A.SUCCEEDED:
        return False
    named = (approval.impact or {}).get(REPEAT) or {}
    return bool(named.get("action") == str(owner.action_id))


def repeat_note(owner: KeyOwner) -> dict[str, object]:
    """What an approval shows and binds when it allows a repeat."""
    done = owner.action
    return {
        "action": str(done.id),
        "run": str(done.run_id),
        "at": done.ended_at.isoformat() if done.ended_at else None,
        "reference": done.downstream_ref,
    }


# --- taking and giving back, drafted and guarded ----------------------------------------------


def take(view: View, draft: Draft, *, action: ActionJournal, free: Free) -> None:
    """Make `action` the owner, as part of its start. Another owner by then: `StaleDraft`."""
    generation = free.released
    if free.instead_of is not None:
        draft.also(partial(_give_back, free.instead_of, draft.now))
        generation += 1
    key = canonical.idempotency_key(intent_key=action.intent_key, generation=generation)
    draft.set_action(action, generation=generation, idempotency_key=key)
    draft.also(_Take(action, draft.now))
    view.owners.pop((action.tool, action.intent_key), None)


def _give_back(owner: KeyOwner, now: datetime) -> None:
    rows = KeyOwner.objects.filter(pk=owner.pk, released_at=None)
    if rows.update(released_at=now) != 1:
        raise StaleDraft(f"the intent of action {owner.action_id} was given back by another")


@dataclass(frozen=True, slots=True)
class _Take(Joining):
    """The row that says who owns an intent."""

    action: ActionJournal
    now: datetime

    def row(self) -> KeyOwner:
        action = self.action
        return sql.new(
            KeyOwner,
            tenant=action.tenant,
            tool=action.tool,
            intent_key=action.intent_key,
            generation=action.generation,
            action_id=action.id,
            fingerprint=action.fingerprint,
            created_at=self.now,
        )

    def join(self, writes: sql.Together) -> None:
        writes.insert_new(self.row())

    def __call__(self) -> None:
        _insert_owner(self.action, self.now)


def _insert_owner(action: ActionJournal, now: datetime) -> None:
    if not sql.insert_new(_Take(action, now).row()):
        raise StaleDraft(f"the intent of action {action.id} has another owner")


def release(draft: Draft, action: ActionJournal) -> None:
    """The action is proven without effect: its intent may be tried anew."""
    draft.also(partial(_release, action, draft.now))


def _release(action: ActionJournal, now: datetime) -> None:
    KeyOwner.objects.filter(
        tenant=action.tenant,
        tool=action.tool,
        intent_key=action.intent_key,  # the index asks for these
        action_id=action.id,
        released_at=None,
    ).update(released_at=now)


def after_success(draft: Draft, action: ActionJournal) -> None:
    """What a SUCCEEDED write gives back: its own intent when it is absolute, and those of
    repeatable writes that were done to the same resource before it."""
    if action.contract == Natural.name:
        release(draft, action)
    tools = [spec.name for spec in registry.all_tools() if spec.repeatable]
    if tools and action.resource_key:
        draft.also(partial(_release_same_resource, action, tools, draft.now))


def _release_same_resource(action: ActionJournal, tools: list[str], now: datetime) -> None:
    KeyOwner.objects.filter(
        tenant=action.tenant,
        tool__in=tools,
        released_at=None,
        action__resource_key=action.resource_key,
        action__state=A.SUCCEEDED,
        tool=F("action__tool"),  # an owner is of its action: the index asks for these
        intent_key=F("action__intent_key"),
    ).exclude(action_id=action.id).update(released_at=now)


# --- the loser ----------------------------------------------------------------------------


def yield_to(draft: Draft, action: ActionJournal, owner: KeyOwner) -> None:
    """A duplicate is VOIDED; the same intent with other arguments is refused, with an incident."""
    if owner.fingerprint == action.fingerprint:
        draft.move_action(action, A.VOIDED, reason="DUPLICATE", same_as_id=owner.action_id)
        return
    detail = f"action {owner.action_id} did this with other arguments"
    if owner.action.state != A.SUCCEEDED:
        detail = f"action {owner.action_id} began this with other arguments"
    draft.move_action(
        action, A.DENIED, reason="KEY_CONFLICT", detail=detail, same_as_id=owner.action_id
    )
    draft.add(
        Incident(
            run_id=action.run_id,
            action=action,
            kind="KEY_CONFLICT",
            detail=detail,
            created_at=draft.now,
        )
    )
