"""Pure tests: no database. Time limits of single examples say more about the machine's load."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
