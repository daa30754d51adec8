"""Settings and extensions of drf-spectacular. Imports nothing of Django: the settings import it."""

from __future__ import annotations

from typing import Any

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "agentcore",
    "DESCRIPTION": "Start durable agent runs and read what became of them.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": False,
    "DISABLE_ERRORS_AND_WARNINGS": False,
    "POSTPROCESSING_HOOKS": ["runs.api.openapi.add_security"],
}

SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token made by `manage.py token create`.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "sessionid",
        "description": "The session of the admin site, for reading.",
    },
}


def add_security(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Describe the ways in that the operations name."""
    result.setdefault("components", {})["securitySchemes"] = SECURITY_SCHEMES
    return result
