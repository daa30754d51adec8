"""`docs/fault-points.md`: the list of the placed points is whole, and all that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache

from agentcore.failpoints import FAILPOINTS
from agentcore.lifecycle import STEPS
from tests.docs.pages import table_rows
from tests.faults.exhaustive.phases import KINDS
from tests.world import ROOT

ROWS = [(int(row[0]), row[2]) for row in table_rows("docs/fault-points.md", "Point")]
PER_STEP = range(8, 18)
LEFT_OUT = "left out: "


def test_every_placed_point_is_covered_or_left_out_with_a_reason() -> None:
    assert [number for number, _ in ROWS] == list(range(1, 102))
    assert sum(len(STEPS) if number in PER_STEP else 1 for number, _ in ROWS) == 131
    left_out = [number for number, said in ROWS if not _names(said)]
    assert left_out == [number for number, said in ROWS if said.startswith(LEFT_OUT)]
    assert len(left_out) == 3


def test_everything_that_covers_a_point_exists() -> None:
    named = [(number, name) for number, said in ROWS for name in _names(said)]
    assert [(number, name) for number, name in named if not _exists(name)] == []


def _names(said: str) -> list[str]:
    return [] if said.startswith(LEFT_OUT) else re.findall(r"`([^`]+)`", said)


def _exists(name: str) -> bool:
    if name.startswith("phase:"):
        return name.removeprefix("phase:") in KINDS
    file, _, test = name.partition("::")
    return test in _tests(file) if test else name in FAILPOINTS


@cache
def _tests(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
