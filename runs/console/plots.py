"""Plots as numbers for server-rendered SVG: bars, steps and bullets. No database, no drawing code.

Each plot has its table twin: the same values, to read and to test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH, HEIGHT, FLOOR = 640, 170, 140


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle. `kind` is its colour class and its pattern."""

    x: int
    y: int
    width: int
    height: int
    kind: str


@dataclass(frozen=True, slots=True)
class Label:
    x: int
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its table. `lines` are the `d` of paths with their kind."""

    name: str
    title: str
    desc: str
    bars: list[Bar]
    lines: list[tuple[str, str]]
    labels: list[Label]
    legend: list[tuple[str, str]]
    head: list[str]
    rows: list[list[str]]
    top: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    floor: int = FLOOR

    @property
    def is_empty(self) -> bool:
        return not self.rows


def stacked(
    *,
    name: str,
    title: str,
    series: Sequence[tuple[str, str]],
    values: Mapping[datetime, Mapping[str, int]],
    times: Sequence[datetime],
    form: str,
) -> Plot:
    """Bars of `times`, each stacked in the order of `series` (kind, words)."""
    most = max([1, *(sum(values.get(at, {}).values()) for at in times)])
    step = WIDTH // max(1, len(times))
    bars = []
    for index, at in enumerate(times):
        y = FLOOR
        for kind, _ in series:
            count = values.get(at, {}).get(kind, 0)
            height = max(2, count * (FLOOR - 10) // most) if count else 0
            y -= height
            if height:
                bars.append(Bar(index * step + 2, y, step - 4, height, kind))
    used = [at for at in times if values.get(at)]
    total = sum(sum(values[at].values()) for at in used)
    return Plot(
        name=name,
        title=title,
        desc=f"{total} in all; the highest bar is {most}." if total else "Nothing in this time.",
        bars=bars,
        lines=[],
        labels=[Label(i * step + 2, f"{at:{form}}") for i, at in enumerate(times) if i % 4 == 0],
        legend=list(series),
        head=["Time (UTC)", *(words for _, words in series)],
        rows=[
            [f"{at:%b %d {form}}", *(str(values[at].get(kind, 0)) for kind, _ in series)]
            for at in used
        ],
        top=str(most),
    )


def steps(
    *,
    name: str,
    title: str,
    series: Sequence[tuple[str, str]],
    points: Sequence[tuple[str, Sequence[float]]],
    words: str,
) -> Plot:
    """One step line for each of `series` (kind, words) over labelled points."""
    most = max([1.0, *(value for _, values in points for value in values)])
    width = WIDTH // max(1, len(points))
    lines = []
    for n, (kind, _) in enumerate(series):
        path: list[str] = []
        for index, (_, values) in enumerate(points):
            y = FLOOR - round(values[n] * (FLOOR - 10) / most)
            path.append(f"{'M' if not path else 'V'} {f'0 {y}' if not path else y}")
            path.append(f"H {(index + 1) * width}")
        lines.append((kind, " ".join(path)))
    return Plot(
        name=name,
        title=title,
        desc=f"The highest value is {most:.0f} {words}.",
        bars=[],
        lines=lines if points else [],
        labels=[Label(index * width + 2, label) for index, (label, _) in enumerate(points)],
        legend=list(series),
        head=["Day", *(f"{said} ({words})" for _, said in series)],
        rows=[[label, *(f"{value:.0f}" for value in values)] for label, values in points],
        top=f"{most:.0f} {words}",
    )


def hours_before(now: datetime, count: int) -> list[datetime]:
    """The last `count` whole hours, the current one last."""
    this = now.replace(minute=0, second=0, microsecond=0)
    return [this - timedelta(hours=back) for back in range(count - 1, -1, -1)]


def days_before(now: datetime, count: int) -> list[datetime]:
    """The last `count` days, today last."""
    this = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return [this - timedelta(days=back) for back in range(count - 1, -1, -1)]
