"""Logging: one JSON line an event on stderr, without secrets."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import structlog

_SECRET = ("password", "secret", "token", "authorization", "api_key", "apikey", "cookie")

EACH_MESSAGE = ("celery.worker.strategy", "celery.app.trace")
"""Where INFO is "received" and "succeeded" for each message. That says nothing of a run, whose row
and events do; with a worker for each step these 40 lines a run took 4 % of the workers' Python."""


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the values of keys that name a secret, `claim_token` excepted."""
    for key in event:
        low = key.lower()
        if low != "claim_token" and any(word in low for word in _SECRET):
            event[key] = "[hidden]"
    return event


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]


def _quieter(level: str) -> str:
    """Without the lines of each message, save where DEBUG asks for all."""
    return "WARNING" if level.upper() == "INFO" else level


def logging_settings(*, level: str, style: str) -> dict[str, Any]:
    """Return Django's LOGGING. `style`: `json` for services, `console` for people."""
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=False)
        if style == "console"
        else structlog.processors.JSONRenderer()
    )
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if style != "console":
        last.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": [*last, renderer],
                "foreign_pre_chain": _shared(),
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            **{name: {"level": _quieter(level)} for name in EACH_MESSAGE},
        },
    }
