"""The groups of the console, as the migration makes them."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.db import connection

from runs import deciding, reconciliations, switches, thresholds

pytestmark = pytest.mark.django_db
groups = importlib.import_module("runs.migrations.0009_groups")

MAY = {
    "agent_viewer": set(),
    "agent_approver": {deciding.PERMISSION, deciding.EDIT},
    "agent_senior_approver": {deciding.PERMISSION, deciding.EDIT, deciding.HIGH_RISK},
    "agent_oncall": {reconciliations.PERMISSION, switches.PERMISSION, "runs.cancel_run"},
    "agent_admin": {
        deciding.PERMISSION,
        deciding.EDIT,
        deciding.HIGH_RISK,
        reconciliations.PERMISSION,
        switches.PERMISSION,
        thresholds.PERMISSION,
        "runs.cancel_run",
        "runs.manage_budget",
    },
}
CHECKED = set().union(*MAY.values())


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("name", MAY)
def test_a_member_may_what_the_group_is_for_and_no_more(name: str) -> None:
    groups.create_groups(apps, None)
    user = User.objects.create_user("member")
    user.groups.add(Group.objects.get(name=name))
    assert {permission for permission in CHECKED if user.has_perm(permission)} == MAY[name]
    assert user.has_perm("runs.view_run")
    writes = user.get_all_permissions()
    assert not {p for p in writes if p.split(".")[1].startswith(("add_", "change_", "delete_"))}


def test_every_permission_is_one_of_a_model() -> None:
    """The codes in the migration are those that Django makes of the models."""
    groups.create_groups(apps, None)
    wanted = {(app, codename) for rows in groups.GROUPS.values() for app, _, codename in rows}
    made = {
        (model._meta.app_label, codename)
        for model in apps.get_models()
        for codename in (
            *(f"{action}_{model._meta.model_name}" for action in model._meta.default_permissions),
            *(code for code, _ in model._meta.permissions),
        )
    }
    assert wanted <= made
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT codename FROM auth_permission GROUP BY content_type_id, codename"
            " HAVING count(*) > 1"
        )
        assert cursor.fetchall() == []
    before = Permission.objects.count()
    groups.create_groups(apps, None)
    assert Permission.objects.count() == before
