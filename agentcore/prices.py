"""The price list that comes with the runtime, and how another one is given.

Millionths of a US dollar for a million tokens, as the providers' price pages said on the day in
`since`. Providers change prices without telling us: check the list, and give your own as
AGENTCORE_PRICES, such as
`[{"model": "gpt-5.2", "since": "2026-01-01", "input": 1750000, "cached": 175000,
"output": 14000000}]`. It replaces this one. A run with a money limit does not start on a model
without a price.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated

from pydantic import BeforeValidator

from agentcore.ledger import Price


def _given(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


PriceTable = Annotated[tuple[Price, ...], BeforeValidator(_given)]
"""The option's type: a tuple of prices, or their JSON text."""

DEFAULT_PRICES: tuple[Price, ...] = (
    Price("gpt-4.1", date(2025, 4, 14), 2_000_000, 500_000, 8_000_000),
    Price("gpt-4.1-mini", date(2025, 4, 14), 400_000, 100_000, 1_600_000),
    Price("gpt-5", date(2025, 8, 7), 1_250_000, 125_000, 10_000_000),
    Price("gpt-5-mini", date(2025, 8, 7), 250_000, 25_000, 2_000_000),
    Price("gpt-5-nano", date(2025, 8, 7), 50_000, 5_000, 400_000),
    Price("gpt-5.1", date(2025, 11, 13), 1_250_000, 125_000, 10_000_000),
    Price("gpt-5.2", date(2025, 12, 11), 1_750_000, 175_000, 14_000_000),
)
