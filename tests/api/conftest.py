"""What the tests of the API share: an agent, a caller of the tenant of the factories."""

from __future__ import annotations

import pytest

from tests.factories import TENANT
from tests.runs.api_support import Api, declare_agent, make_token


@pytest.fixture(autouse=True)
def _agent() -> None:
    declare_agent()


@pytest.fixture
def api(db: None) -> Api:
    """A caller that may do everything for the tenant of `tests/factories.py`."""
    return Api(make_token(name="ops", tenant=TENANT))
