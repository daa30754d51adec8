"""The Celery app. Tasks live in `runs/tasks.py`; the settings are built in `config/broker.py`."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals

from config.broker import PUBLISH

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


class AgentcoreCelery(Celery):
    """Celery whose publishing connections give up early; consuming ones keep their patience."""

    def connection_for_write(self, url: str | None = None, **kwargs: Any) -> Any:
        """Return a connection for producing, with the bounds of `PUBLISH`."""
        kwargs["transport_options"] = {**PUBLISH, **(kwargs.get("transport_options") or {})}
        return super().connection_for_write(url, **kwargs)


app = AgentcoreCelery("agentcore")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["runs"])


@signals.setup_logging.connect
def _leave_logging_to_django(**_: Any) -> None:
    """Being connected is enough: Celery then leaves the handlers of Django's LOGGING alone."""
