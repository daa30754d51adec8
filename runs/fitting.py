"""Whether what a person wrote fits into the columns of its row, said before the database does."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.db import models

from agentcore.canonical import clean_text
from approvals.errors import InvalidRule


def check_columns(row: models.Model) -> None:
    """Raises `InvalidRule` for a text that is too long or cannot be stored, or a number out of
    range. What is empty is not looked at.
    """
    values = {field.name: field.value_from_object(row) for field in row._meta.concrete_fields}
    try:
        row.clean_fields(exclude={name for name, value in values.items() if value in EMPTY_VALUES})
    except ValidationError as error:
        faults = (f"{name}: {' '.join(found)}" for name, found in error.message_dict.items())
        raise InvalidRule(" ".join(faults)[:500]) from None
    for name, value in values.items():
        if isinstance(value, str) and clean_text(value) != value:
            raise InvalidRule(f"{name} has characters that cannot be stored.")
