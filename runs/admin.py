"""Django finds the admin classes here; they live in `runs/console`."""

from runs.console import admin  # noqa: F401
