"""The figures as text, and their place in docs/reliability.md."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from agentcore.version import CODE_VERSION
from tests.faults.exhaustive.mutation import Row
from tests.faults.exhaustive.plan import Recorded
from tests.faults.exhaustive.suite import RECOVERY_LIMIT, Figures
from tests.faults.exhaustive.trials import Outcome
from tests.world import ROOT

PAGE = ROOT / "docs" / "reliability.md"
VIOLATIONS = {
    "duplicate": "duplicated effects",
    "lost": "lost runs",
    "illegal": "illegal transitions",
    "lie": "UNKNOWN reported as FAILED, or another wrong word about an effect",
    "broken": "other broken invariants",
}


def figures_text(figures: Figures, recorded: Recorded, *, seed: int) -> str:
    """The table of one run of the suite, as Markdown."""
    minutes, p50, p99 = (figures.seconds / 60, figures.recovery(0.5), figures.recovery(0.99))
    lines = [
        f"Seed {seed}, version {CODE_VERSION}, {os.cpu_count()} cores, {minutes:.0f} minutes.",
        "",
        "| Figure | Value |",
        "|---|---|",
        f"| stories | {len(recorded.boundaries)} |",
        f"| I/O boundaries found in them | {recorded.total} |",
        f"| of a process beside its runs | {len(recorded.of_process)} |",
        f"| trials | {figures.total} |",
        *(f"| trials: {kind} | {count} |" for kind, count in sorted(figures.trials.items())),
        *(f"| {words} | {figures.violations[kind]} |" for kind, words in VIOLATIONS.items()),
        f"| kill to next claim, p50 | {p50:.2f} s |",
        f"| kill to next claim, p99 (limit {RECOVERY_LIMIT:.1f} s) | {p99:.2f} s |",
        f"| kills followed by a claim | {len(figures.recoveries)} |",
        f"| not counted: the message was lost with another trial's worker | {figures.crossed} |",
        f"| armed, but the run took another way | {figures.passed_by.total()} |",
    ]
    return "\n".join(lines)


def failure_text(outcome: Outcome, *, seed: int) -> str:
    """What broke, and how to see it again."""
    said = "\n".join(f"  {violation}" for violation in outcome.violations)
    command = "python -m tests.faults.exhaustive"
    return f"{said}\n  {command} --seed {seed} --replay {shlex.quote(outcome.trial.id)}"


def guards_text(rows: Sequence[Row]) -> str:
    """One row for each guard that was taken out."""
    lines = ["| Guard taken out | Trials with it | without it | Broken |", "|---|---|---|---|"]
    for row in rows:
        broken = ", ".join(row.broken) or "**none: the suite does not see it**"
        lines.append(f"| {row.guard}: {row.says} | {row.control} | {row.trials} | {broken} |")
    return "\n".join(lines)


def write(section: str, text: str) -> None:
    """Put `text` between the markers of a section; the rest of the page stays."""
    begin, end = f"<!-- {section}: generated -->", f"<!-- {section}: end -->"
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    PAGE.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", encoding="utf-8")
