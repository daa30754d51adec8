"""Two workers that share a folder of failpoints: the first to reach an armed one dies, the other
one (and a replacement) goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from config.embedded import Stack
from tests.world import World, open_world


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("faults")
    points = folder / "failpoints"
    points.mkdir()
    with open_world(stack, folder, AGENTCORE_FAILPOINTS_DIR=str(points)) as made:
        made.start_web()
        made.start_worker("w1", wait=False)
        made.start_worker("w2")
        yield made
