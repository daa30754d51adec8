"""A run that asked another agent: both pages lead to each other, with state and cost."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models import Run
from tests.factories import make_run
from tests.runs.rows import make_action, unguarded

pytestmark = pytest.mark.django_db


@pytest.fixture
def family(db: None) -> tuple[Run, Run]:
    """A parent that waits, and its child."""
    parent, child = make_run(), make_run()
    call = make_action(parent, "RUNNING", tool="agents.helper", effect="READ", contract="CHILD")
    with unguarded():
        Run.objects.filter(pk=parent.pk).update(
            handoffs_lent=1, turns_lent=5, state="WAITING_CHILD", wake_at=parent.deadline_at
        )
        Run.objects.filter(pk=child.pk).update(
            parent=parent, root=parent, parent_action=call.pk, cost_used=120_000, tokens_used=77
        )
    return Run.objects.get(pk=parent.pk), Run.objects.get(pk=child.pk)


def test_each_page_leads_to_the_other(family: tuple[Run, Run]) -> None:
    parent, child = family
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(f"/admin/runs/run/{parent.pk}/change/").content.decode()
    assert "waits for what it asked another agent to do" in page
    assert f"/admin/runs/run/{child.pk}/change/" in page
    assert "0.12" in page
    assert "77" in page
    assert "5 of 12, 5 of them by other agents" in page
    below = client.get(f"/admin/runs/run/{child.pk}/change/").content.decode()
    assert f"/admin/runs/run/{parent.pk}/change/" in below
    assert "Asked for by" in below
