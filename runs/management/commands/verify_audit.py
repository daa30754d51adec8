"""`manage.py verify_audit`: recompute every chain of events, name the first row that breaks it."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandParser

from runs import audit


def _run_id(text: str) -> UUID:
    return UUID(text.removeprefix("run_"))


class Command(BaseCommand):
    help = (
        "Recompute the chains of events of all runs and the anchors over them. Names the first row "
        "that was changed, left out or moved; exit code 1 then. Changes nothing, except with"
        " --anchor. Keep the hash of the newest anchor somewhere else: it vouches for all before."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--run", type=_run_id, help="only this run (run_…)")
        parser.add_argument("--anchor", action="store_true", help="make an anchor first")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["anchor"]:
            self.stdout.write(f"anchored {audit.anchor_now()} runs")
        report = audit.verify(run_id=options["run"])
        if report.broken is not None:
            self.stdout.write(f"BROKEN  {report.broken.text}")
            sys.exit(1)
        line = f"ok  {report.runs} runs, {report.events} events, {report.anchors} anchors"
        self.stdout.write(f"{line}, newest {report.newest}" if report.newest else line)
