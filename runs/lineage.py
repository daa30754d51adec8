"""The other runs of a run's tree: its root, its parents, its children and theirs."""

from __future__ import annotations

from uuid import UUID

from django.db import connection
from django.db.models import Q

from agentcore.children import CONTRACT
from agentcore.lifecycle import ActionState
from runs.models import ActionJournal, Run
from runs.view import View

TREE = """
    WITH RECURSIVE tree (id) AS (
        SELECT %s::uuid UNION ALL SELECT r.id FROM runs_run r JOIN tree t ON r.parent_id = t.id)
    SELECT id FROM tree
"""
"""SQL: a run, by its id, and all runs below it."""


def below(run: Run) -> list[UUID]:
    """The runs that a run has asked for, and those that they have; nothing for most runs."""
    if not run.handoffs_lent:
        return []
    with connection.cursor() as cursor:
        cursor.execute(TREE, [run.id])
        return [found for (found,) in cursor.fetchall() if found != run.id]


def done_below(view: View) -> list[ActionJournal]:
    """The calls of tools that the runs below a run have made."""
    runs = below(view.run)
    if not runs:  # the text of a query that is not sent took 2 % of the Python of a run
        return []
    return list(ActionJournal.objects.filter(run_id__in=runs).exclude(contract=CONTRACT))


def seen_elsewhere(view: View) -> list[ActionJournal]:
    """What tools told the other runs of the tree; nothing for a run that is alone."""
    if view.run.root_id is None and not view.run.handoffs_lent:
        return []
    tree = Run.objects.filter(Q(id=view.root.id) | Q(root_id=view.root.id))
    rows = ActionJournal.objects.filter(
        run_id__in=tree.exclude(id=view.run.id).values("id"),
        state=ActionState.SUCCEEDED,
        observation__isnull=False,
    )
    return list(rows.exclude(contract=CONTRACT))
