from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agentcore.loopback import Loopback, serving
from tests.replies.desk import Desk, open_desk, stop_worker


@pytest.fixture(scope="session")
def scripted_server() -> Iterator[Loopback]:
    with serving() as loopback:
        yield loopback


@pytest.fixture
def desk(scripted_server: Loopback, transactional_db: None) -> Iterator[Desk]:
    """A desk against the scripted server, with rows that are emptied afterwards."""
    with open_desk(scripted_server) as opened:
        yield opened
        stop_worker()
