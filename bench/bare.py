"""The yardstick: a bare DRF view that parses JSON and inserts one row. Settings and URLs in one."""

from __future__ import annotations

from typing import Any

from config.settings import *  # noqa: F403

ROOT_URLCONF = "bench.bare_urls"
MIDDLEWARE: list[Any] = []
