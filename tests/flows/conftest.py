"""One installation for all flow tests of a module, with one worker that serves every queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.embedded import Stack
from tests.world import World, open_world


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("world")
    with open_world(stack, folder) as made:
        made.start_web()
        made.start_worker()
        yield made
