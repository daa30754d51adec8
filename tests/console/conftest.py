"""Shared by the page tests: somebody who reviews, signed in."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import make_user


@pytest.fixture
def reviewer(db: None) -> User:
    """A staff user who may decide."""
    return make_user("grace")


@pytest.fixture
def page(reviewer: User) -> Client:
    """A browser of the reviewer that enforces CSRF, as a real one does."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(reviewer)
    return client
