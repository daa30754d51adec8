"""A paginator that never counts a whole table."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator

CAP = 1000


class CappedCount(int):
    """A number that reads `1000+` where counting stopped."""

    def __str__(self) -> str:
        return f"{CAP}+" if self > CAP else super().__repr__()


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # not generic at run time
    """Counts at most `CAP` + 1 rows: a page of a big table costs the same as of a small one."""

    @cached_property
    def count(self) -> int:
        """The number of rows, at most `CAP` + 1."""
        rows: Any = self.object_list
        if hasattr(rows, "order_by"):
            return CappedCount(rows.order_by()[: CAP + 1].count())
        return CappedCount(min(len(rows), CAP + 1))
