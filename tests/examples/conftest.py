"""The example's services as real processes, one of each for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.refund_desk.services import Service, start_model_server, start_payment_service
from tests.examples.http import call


@pytest.fixture(scope="session")
def _payment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = start_payment_service(tmp_path_factory.mktemp("payment"))
    yield service
    service.stop()


@pytest.fixture(scope="session")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = start_model_server(tmp_path_factory.mktemp("model"))
    yield service
    service.stop()


@pytest.fixture
def payment(_payment: Service) -> Iterator[str]:
    """The address of the payment service; no fault outlives a test."""
    yield _payment.url
    call("DELETE", f"{_payment.url}/faults")


@pytest.fixture
def model(_model: Service) -> Iterator[str]:
    """The address of the model server; no fault outlives a test."""
    yield _model.url
    call("DELETE", f"{_model.url}/faults")
