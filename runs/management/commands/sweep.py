"""`manage.py sweep`: one repair pass for cron, or a loop."""

from __future__ import annotations

import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from runs import sweeps, worker


class Command(BaseCommand):
    help = (
        "Find due runs that no worker holds and hint them; drive them here when the broker is down."
        " One pass, for cron; --loop goes on until interrupted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--loop", action="store_true", help="a pass every sweep period")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            self._pass()
            while options["loop"]:
                threading.Event().wait(settings.AGENTCORE_OPTIONS.sweep_period)
                self._pass()
        except KeyboardInterrupt:
            self.stderr.write("stopped")
        finally:
            worker.stop()

    def _pass(self) -> None:
        done = sweeps.sweep_once()
        text = f"due {done.due}, hinted {done.hinted}, driven here {done.driven}"
        self.stdout.write("another sweep is running" if done.busy else text)
