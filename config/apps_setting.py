"""AGENTCORE_APPS: the Django apps that bring tools and agents, checked before Django loads them."""

from __future__ import annotations

from importlib.util import find_spec

from django.core.exceptions import ImproperlyConfigured


def tool_apps(text: str) -> list[str]:
    """Split the comma list `text` and check that each name can be found.

    A name is a package (`my_company.tools_app`) or an app config class
    (`my_company.tools_app.apps.ToolsConfig`). Raises ImproperlyConfigured.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        parent = name.rpartition(".")[0]
        is_class = name.rpartition(".")[2][:1].isupper()
        if not _found(parent if is_class else name):
            raise ImproperlyConfigured(
                f"AGENTCORE_APPS names {name!r}, which Python cannot find. Write the dotted name "
                "of a Django app, separate several by commas, and put the app's folder on "
                "PYTHONPATH or install it."
            )
    return names


def _found(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
