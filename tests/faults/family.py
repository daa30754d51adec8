"""What must hold of a run and the runs that it asked other agents for, together and each alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from agentcore.lifecycle import ACTION_TERMINAL, RUN_TERMINAL
from tests.faults import invariants
from tests.faults.invariants import Expected, Facts, Violation


def violations(
    root: Facts, children: Sequence[Facts], expected: Expected, *, event_key: bytes
) -> list[Violation]:
    """Every broken invariant of a finished trial; without children those of the one run.

    What a downstream did is judged by the rows of all of them: it does not matter which of them
    asked for an effect, there may be one.
    """
    if not children:
        return invariants.violations(root, expected, event_key=event_key)
    whole = _together(root, children)
    return [
        *invariants.of_effects(whole, expected),
        *invariants.of_rows(root, event_key=event_key),
        *chain.from_iterable(invariants.of_rows(c, event_key=event_key) for c in children),
        *_one_for_each(root, children),
        *_ends(root, children),
        *_slices(root, children),
    ]


def _together(root: Facts, children: Sequence[Facts]) -> Facts:
    every = (root, *children)
    return replace(
        root,
        actions=[row for facts in every for row in facts.actions],
        attempts=[row for facts in every for row in facts.attempts],
        approvals=[row for facts in every for row in facts.approvals],
        owners=[row for facts in every for row in facts.owners],
    )


def _one_for_each(root: Facts, children: Sequence[Facts]) -> Iterator[Violation]:
    """A call of another agent and its run are made together: both, or none, once."""
    made = Counter(child.run["parent_action"] for child in children)
    begun = [a for a in root.actions if a["contract"] == "CHILD" and a["first_sent_at"]]
    for action in begun:
        if made[action["id"]] != 1:
            text = f"a call of another agent has {made[action['id']]} runs"
            yield Violation("R81", "duplicate" if made[action["id"]] else "lost", text)
    if set(made) - {action["id"] for action in begun}:
        yield Violation("R81", "broken", "a run was made for a call that did not begin")


def _ends(root: Facts, children: Sequence[Facts]) -> Iterator[Violation]:
    """No run ends before those that it asked for; what came of them is what they came to."""
    done = root.run["ended_at"]
    results = {action["id"]: action for action in root.actions}
    for child in children:
        state, ended = child.run["state"], child.run["ended_at"]
        if root.run["state"] in RUN_TERMINAL and (ended is None or ended > done):
            yield Violation("I2", "lost", f"the run ended before its child, {state}")
        if state not in RUN_TERMINAL:
            continue
        for row in child.actions:
            if row["state"] not in ACTION_TERMINAL:
                yield Violation("I2", "lost", f"a child is {state}, an action {row['state']}")
        action = results.get(child.run["parent_action"])
        if action is not None and action["state"] in ("SUCCEEDED", "FAILED"):
            made = sum(a["state"] == "SUCCEEDED" and a["effect"] != "READ" for a in child.actions)
            said = action["result"]
            if said["status"] != state.lower() or len(said["effects"]) != made:
                text = f"told {said['status']} with {len(said['effects'])} effects, not {made}"
                yield Violation("R81", "lie", f"{state}: {text}")


def _slices(root: Facts, children: Sequence[Facts]) -> Iterator[Violation]:
    """What the children hold and have used is part of what the root has, and counted once."""
    run = root.run
    if run["turn"] + run["turns_lent"] > run["max_turns"]:
        yield Violation("R69", "broken", f"{run['turn']} + {run['turns_lent']} turns")
    open_ones = [child.run for child in children if child.run["ended_at"] is None]
    held = sum(child["max_tokens"] or 0 for child in open_ones)
    if run["state"] in RUN_TERMINAL and run["ended_at"] and not open_ones:
        lent = sum(min(c.run["turn"], c.run["max_turns"]) for c in children)
        if run["turns_lent"] != lent:
            yield Violation("R69", "broken", f"{run['turns_lent']} turns lent, {lent} were used")
    if held > run["tokens_held"]:
        yield Violation("R69", "broken", f"{held} tokens are lent, {run['tokens_held']} held")
