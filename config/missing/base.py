"""Django looks for `base.DatabaseWrapper` in the package that ENGINE names."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db.backends.postgresql import base
from django.db.utils import OperationalError

from config.missing import NO_DATABASE


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL without an address."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> NoReturn:  # noqa: ARG002
        """Raise OperationalError with what to do."""
        raise OperationalError(NO_DATABASE)
