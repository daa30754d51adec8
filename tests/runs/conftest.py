"""Fixtures of the tests that drive runs in this process (`acting.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runs import worker
from tests.runs.acting import Downstream
from tools import registry


@pytest.fixture
def shop(transactional_db: None) -> Iterator[Downstream]:
    """A downstream with empty books, an empty registry and a worker identity of its own."""
    worker.stop()
    worker._current = None
    with registry.isolated():
        yield Downstream()
    worker.stop()
    worker._current = None
