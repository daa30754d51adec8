"""What the workload writes: about half a kilobyte for each decision and each result."""

from __future__ import annotations

import json
import random
from typing import Any

MOST_TURNS = 5000
"""The limit of the agent; the model counts what is left of it."""
_LETTERS = "etaoin shrdlu cmfwyp "


def _made(seed: int) -> str:
    chosen = random.Random(seed)  # noqa: S311  (filler, not a secret)
    return "".join(chosen.choices(_LETTERS, k=440))


TEXTS = tuple(_made(seed) for seed in range(32))


def words(seed: int, size: int) -> str:
    """About `size` characters of random words, which compress no better than prose."""
    chosen = random.Random(seed)  # noqa: S311
    return " ".join(_word(chosen) for _ in range(size // 6))


def _word(chosen: random.Random) -> str:
    letters = "etaoinshrdlucmfwypvbgk"
    return "".join(chosen.choice(letters) for _ in range(chosen.randint(2, 8)))


def decision(*, run: str, turn: int, turns: int) -> dict[str, Any]:
    """What the model of the floors says in turn `turn` (from 0) of `turns`."""
    text = TEXTS[turn % len(TEXTS)]
    if turn >= turns - 1:
        return {"text": text, "tool": None}
    arguments = {"account": f"{run[:24]}-{turn}", "amount": 100 * turn, "memo": text[:40]}
    return {"text": text, "tool": "transfer", "call_id": f"call-{turn}", "arguments": arguments}


def result(decided: dict[str, Any]) -> dict[str, Any]:
    """What the tool of the floors gives back."""
    return {"call_id": decided["call_id"], "ok": True, "output": decided["text"]}


def written(value: dict[str, Any]) -> str:
    """As JSON text."""
    return json.dumps(value)
