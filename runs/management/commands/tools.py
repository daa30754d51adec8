"""`manage.py tools list`: what agents can do here, and what stands behind each tool."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs.agents import effect_of
from tools import registry
from tools.guarantees import MEANING, guarantee
from tools.spec import ToolSpec

COLUMNS = ("tool", "version", "effect", "contract", "guarantee", "approval", "notes")


class Command(BaseCommand):
    help = (
        "List the declared tools with their guarantee class: what the runtime can do when the"
        " reply to a write is lost. No class is 'exactly once'. Exit code 1 when a tool is"
        " rejected; `manage.py check` says why."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["list"], help="list: one line a tool")

    def handle(self, *_: Any, **__: Any) -> None:
        specs = registry.all_tools()
        rows = [COLUMNS, *(_row(spec) for spec in specs)]
        widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self.stdout.write("  ".join(cells).rstrip())
        self.stdout.write("")
        for name in dict.fromkeys(guarantee(spec) for spec in specs):
            self.stdout.write(f"{name}: {MEANING[name]}")
        refused = registry.rejected()
        if refused:
            names = ", ".join(spec.name for spec in refused)
            raise CommandError(f"{len(refused)} rejected (see `manage.py check`): {names}")


def _row(spec: ToolSpec) -> tuple[str, ...]:
    notes = [f"compensates {spec.compensates}"] if spec.compensates else []
    if spec.fenced_sends:
        notes.append("sends only through ctx.http")
    if spec.repeatable:
        notes.append("repeatable")
    return (
        spec.name,
        spec.version,
        str(effect_of(spec)),
        spec.contract.name if spec.contract else "-",
        guarantee(spec),
        spec.approval.rule,
        ", ".join(notes),
    )
