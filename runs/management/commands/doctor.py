"""`manage.py doctor`: one line for each thing that must be right, and what to do when it is not."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from runs import doctor


class Command(BaseCommand):
    help = (
        "Check the settings, the database, the broker and the workers. One line each: ok, warn or "
        "FAIL, and what to do. Changes nothing. Exit code 1 when something has failed."
    )
    requires_system_checks: list[str] = []
    """None: the doctor itself tells what is wrong, in one list."""

    def handle(self, *_: Any, **__: Any) -> None:
        counts = {"ok": 0, "warn": 0, "FAIL": 0}
        for finding in doctor.examine():
            counts[finding.level] += 1
            line = f"{finding.level:<4}  {finding.name}: {finding.said}"
            self.stdout.write(f"{line}. {_sentence(finding.cure)}" if finding.cure else line)
        failed = counts["FAIL"]
        self.stdout.write(f"{counts['ok']} ok, {counts['warn']} to look at, {failed} failed")
        if failed:
            sys.exit(1)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
