"""Random interleavings of two workers, a sweep, people who decide, and a downstream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.machine import TwoWorkers
from tests.properties.stepping import by_hand
from tests.runs.callback_support import sources
from tools import registry

PROFILE = settings(
    max_examples=24,
    stateful_step_count=25,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # shrinking takes minutes: add Phase.shrink by hand
    suppress_health_check=list(HealthCheck),
)
"""With a fixed seed the same examples in every run."""


@pytest.fixture
def hands(transactional_db: None) -> Iterator[None]:
    with registry.isolated(), sources(), by_hand() as messages:
        TwoWorkers.messages = messages
        yield


@pytest.mark.requirement("R60", "R61", "R65")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_interleaving_breaks_a_run(hands: None, number: int) -> None:
    run_state_machine_as_test(seed(number)(TwoWorkers), settings=PROFILE)
