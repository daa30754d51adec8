"""The yardsticks: settings of the product with other URLs. Same middleware, same database."""

from __future__ import annotations

from config.settings import *  # noqa: F403

ROOT_URLCONF = "bench.bare_urls"
