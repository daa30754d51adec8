"""`manage.py sweep`: one repair pass for cron, or a loop."""

from __future__ import annotations

import argparse
import threading
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from agentcore.lifecycle import STEPS
from runs import chores, isolation, poison, sweeps, worker


class Command(BaseCommand):
    help = (
        "Find due runs that no worker holds and hint them; drive them here when the broker is down."
        " Then send webhooks that are due, go on with bulk operations, wake sessions, and tidy up."
        " One pass, for cron; --loop goes on until interrupted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--loop", action="store_true", help="a pass every sweep period")
        parser.add_argument(
            "--isolate",
            action="store_true",
            help="also drive runs that killed their process, each in a child process, one at a"
            " time; for an installation without a worker for the queue `isolate`",
        )
        parser.add_argument("--isolate-run", type=UUID, help=argparse.SUPPRESS)

    def handle(self, *_: Any, **options: Any) -> None:
        if options["isolate_run"] is not None:
            self._alone(options["isolate_run"])
            return
        children = poison.Children(wait=0.0) if options["isolate"] else None
        worker.configure(queues=STEPS, slots=sweeps.DRIVE_THREADS)
        worker.current()
        try:
            self._pass(children)
            while options["loop"]:
                threading.Event().wait(settings.AGENTCORE_OPTIONS.sweep_period)
                self._pass(children)
        except KeyboardInterrupt:
            self.stderr.write("stopped")
        finally:
            worker.stop()

    def _pass(self, children: poison.Children | None) -> None:
        done = sweeps.sweep_once(children=children)
        if children is not None:
            children.join()
        text = f"due {done.due}, hinted {done.hinted}, driven here {done.driven}"
        if done.isolated or done.suspended:
            text += f", driven alone {done.isolated}, suspended {done.suspended}"
        self.stdout.write("another sweep is running" if done.busy else text)
        extra = chores.do_once()
        self.stdout.write(
            f"webhooks sent {extra.sent}, bulk items {extra.bulk}, woken {extra.woken}, "
            f"forgotten {extra.forgotten}"
        )

    def _alone(self, run_id: UUID) -> None:
        """This process is the child that may die of the run."""
        worker.configure(queues=[isolation.QUEUE], slots=1)
        try:
            poison.drive_alone(run_id)
        finally:
            worker.stop()
