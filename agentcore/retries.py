"""How long to wait before the next try. Pure: the caller draws the jitter and keeps the clock."""

from __future__ import annotations


def backoff(
    *, n: int, base: float, cap: float, jitter: float, at_least: float | None = None
) -> float:
    """Seconds before try `n + 1`, after `n` >= 1 failed ones: doubles from `base` up to `cap`.

    `jitter` in 0..1 spreads the wait over its upper half, so that many runs do not come back
    together. `at_least` is what the other side asked for (Retry-After, seconds): the wait is
    never shorter, also beyond `cap`, and the jitter is added on top of it.
    """
    if n < 1 or base <= 0 or cap < base or not 0 <= jitter <= 1:
        raise ValueError("backoff: n >= 1, 0 < base <= cap and jitter in 0..1")
    full = min(cap, base * 2.0 ** min(n - 1, 60))
    wait = full * (0.5 + jitter / 2)
    if at_least is None or at_least <= 0:
        return wait
    return max(wait, at_least + base * jitter)
