"""`manage.py show_context RUN TURN`: the exact input of a past model call, rebuilt from rows."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentcore.context import ContextError
from runs.contexts import Rebuilt, rebuild
from runs.models import Run, Turn


class Command(BaseCommand):
    help = (
        "Rebuild the exact request of one model call from stored rows and compare its SHA-256 with "
        "the stored one. The bytes go to standard output; an input that cannot be rebuilt exactly "
        "is an error."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's id, as run_… or as a UUID")
        parser.add_argument("turn", type=int)
        shape = parser.add_mutually_exclusive_group()
        shape.add_argument("--pretty", action="store_true", help="indented, for reading")
        shape.add_argument("--manifest", action="store_true", help="what was shown and left out")

    def handle(self, *_: Any, **options: Any) -> None:
        found = self._rebuilt(options["run"], options["turn"])
        if options["manifest"]:
            self.stdout.write(json.dumps(found.turn.manifest, indent=2, sort_keys=True))
        elif options["pretty"]:
            text = json.dumps(json.loads(found.data), indent=2, ensure_ascii=False)
            self.stdout.write(text)
        else:
            self.stdout.write(found.data.decode("ascii"), ending="")
        self.stderr.write(f"sha256 {found.sha256}, {len(found.data)} bytes: as it was sent")

    def _rebuilt(self, run: str, turn: int) -> Rebuilt:
        try:
            found = rebuild(run_id=UUID(run.removeprefix("run_")), turn=turn)
        except (ValueError, Run.DoesNotExist, IndexError):
            raise CommandError(f"there is no run {run}") from None
        except Turn.DoesNotExist as error:
            raise CommandError(str(error)) from None
        except ContextError as error:
            raise CommandError(f"turn {turn} cannot be rebuilt: {error}") from None
        if not found.matches:
            raise CommandError(
                f"turn {turn} is not what was sent: rebuilt {found.sha256}, stored {found.stored};"
                f" it was compiled by version {found.turn.code_version}"
            )
        return found
