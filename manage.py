"""Django's command line for this project: `python manage.py help`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run one management command. Returns the exit code."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] != ["sweep"]:  # the only command that works in several threads
        os.environ.setdefault("AGENTCORE_DATABASE_POOL", "0")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db.utils import OperationalError
    except ModuleNotFoundError as error:
        hint = "Run this as .venv/bin/python manage.py after `make test` or `make demo`."
        print(f"{error}. {hint}", file=sys.stderr)
        return 1
    try:
        execute_from_command_line(sys.argv)
    except (ImproperlyConfigured, OperationalError) as error:
        if "--traceback" in sys.argv:
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
