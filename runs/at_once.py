"""What of a transaction's drafts can be written as one statement, made ready for it.

One statement instead of about eight is a third of the time of a run (docs/performance.md). It sees
the rows as they were before it, so nothing in it may be written twice, and what needs a look in
between does not fit. Then nothing is lost: the drafts are written one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import models

from runs import sql
from runs.models import ActionJournal

if TYPE_CHECKING:
    from runs.transitions import Draft


class Joining:
    """An effect of a draft that can be a part of the one statement. Called, it acts by itself."""

    def join(self, writes: sql.Together) -> None:
        """Add it to the statement."""
        raise NotImplementedError

    def __call__(self) -> None:
        """Act now. Raises `StaleDraft` when it comes too late."""
        raise NotImplementedError


Update = tuple[type[models.Model], dict[str, Any], dict[str, Any]]
"""(model, where, sets): guarded, one row."""


@dataclass(frozen=True, slots=True)
class Together:
    """The writes beside the run row and the event."""

    updates: list[Update]
    inserts: list[list[models.Model]]
    effects: list[Joining]

    def join(self, writes: sql.Together) -> None:
        """Add them to the statement."""
        for model, where, sets in self.updates:
            writes.update(model, where=where, sets=sets)
        for rows in self.inserts:
            writes.insert(rows)
        for effect in self.effects:
            effect.join(writes)


def together(drafts: Sequence[Draft]) -> Together | None:
    """All of `drafts` in one; None when they do not fit into one statement."""
    new_rows = [row for draft in drafts for row in draft.new_rows]
    wanted = [effect for draft in drafts for effect in draft.effects]
    effects = [effect for effect in wanted if isinstance(effect, Joining)]
    actions, rows = _actions(drafts), _rows(drafts, new_rows)
    if len(effects) != len(wanted) or actions is None or rows is None:
        return None
    kinds = dict.fromkeys(type(row) for row in new_rows)
    inserts = [[row for row in new_rows if type(row) is kind] for kind in kinds]
    return Together([*actions, *rows], inserts, effects)


def _actions(drafts: Sequence[Draft]) -> list[Update] | None:
    """One update an action; it raises the revision as often as there are drafts that change it."""
    sets: dict[UUID, dict[str, Any]] = {}
    base: dict[UUID, int] = {}
    times: Counter[UUID] = Counter()
    for draft in drafts:
        for action_id, fields in draft.action_sets.items():
            if "state" in fields and "state" in sets.get(action_id, ()):
                return None  # each move has to be seen by the rules of the table
            base.setdefault(action_id, draft.action_base[action_id])
            sets.setdefault(action_id, {}).update(fields)
            times[action_id] += 1
    return [
        (
            ActionJournal,
            {"id": action_id, "revision": base[action_id]},
            {**fields, "revision": base[action_id] + times[action_id]},
        )
        for action_id, fields in sets.items()
    ]


def _rows(drafts: Sequence[Draft], new_rows: list[models.Model]) -> list[Update] | None:
    """One update a turn or an attempt."""
    found: dict[tuple[type[models.Model], Any], Update] = {}
    fresh = {(type(row), row.pk) for row in new_rows}
    for draft in drafts:
        for row, guard, fields in draft.row_sets:
            key = (type(row), row.pk)
            if key in fresh or (key in found and guard):
                return None  # the guard is about what the earlier change wrote
            _, where, sets = found.get(key, (key[0], {"id": row.pk, **guard}, {}))
            found[key] = (key[0], where, {**sets, **fields})
    return list(found.values())
