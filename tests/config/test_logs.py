"""What is logged at which level."""

from __future__ import annotations

import pytest

from config.logs import EACH_MESSAGE, logging_settings


@pytest.mark.parametrize(("level", "theirs"), [("INFO", "WARNING"), ("DEBUG", "DEBUG")])
def test_each_message_is_logged_only_where_all_is_asked_for(level: str, theirs: str) -> None:
    made = logging_settings(level=level, style="json")
    assert made["root"]["level"] == level
    assert {made["loggers"][name]["level"] for name in EACH_MESSAGE} == {theirs}
