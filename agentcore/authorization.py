"""Who may. Identity and scopes come from the trusted caller of the run, never from the model."""

from __future__ import annotations

from collections.abc import Iterable


def missing_scopes(*, required: Iterable[str], granted: Iterable[str]) -> tuple[str, ...]:
    """The scopes a tool requires and the run lacks, sorted. Compared exactly: no wildcards."""
    return tuple(sorted(set(required) - set(granted)))
