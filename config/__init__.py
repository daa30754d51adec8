"""Wires the parts: settings, the Celery app, URLs, embedded servers."""

from __future__ import annotations

from config.celery_app import app

__all__ = ["app"]
