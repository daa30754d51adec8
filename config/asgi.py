"""ASGI entry point: `uvicorn config.asgi:application`. Serves event streams, and all the rest."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_django = get_asgi_application()

from runs.api.streams import EventStreams  # noqa: E402  (needs the applications loaded)

application = EventStreams(_django)
