"""What `manage.py sweep` does beside the runs, and what is left when it is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from runs import chores
from runs.models import Event, Run
from runs.rest_models import BulkItem, BulkOperation
from tests.factories import TENANT, force_state, make_run
from tests.runs.api_support import Api
from tests.world import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


def _cancel_all(api: Api) -> str:
    """A running operation that cancels every queued run; its path."""
    asked = {"verb": "cancel", "filter": {"status": ["queued"]}, "dry_run": False}
    made = api.post("/bulk_operations", asked).json()
    path = f"/bulk_operations/{made['id']}"
    start = {"confirm_token": made["confirm_token"], "confirm_count": made["total"]}
    assert api.post(f"{path}/start", start).status_code == 202
    return path


def _sweep(env: dict[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "sweep"],
        env={**env, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_one_pass_for_cron_does_the_chores_too(api: Api, process_env: dict[str, str]) -> None:
    runs = [make_run(tenant=TENANT) for _ in range(3)]
    path = _cancel_all(api)
    done = _sweep(process_env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "bulk items 4" in done.stdout  # three runs, and the end of the operation
    assert api.get(path).json()["status"] == "completed"
    assert {Run.objects.get(pk=run.pk).state for run in runs} == {"CANCELLED"}


@pytest.mark.fault
@pytest.mark.parametrize("point", ["cancel.before_commit", "cancel.after_commit"])
def test_a_process_that_dies_leaves_each_run_done_and_noted_or_to_be_done(
    api: Api, process_env: dict[str, str], point: str
) -> None:
    runs = [make_run(tenant=TENANT) for _ in range(3)]
    path = _cancel_all(api)
    killed = _sweep(process_env, AGENTCORE_FAILPOINTS=f"{point}=kill")
    assert killed.returncode == -9, killed.stderr[-2000:]
    noted = set(BulkItem.objects.filter(outcome="DONE").values_list("run_id", flat=True))
    ended = set(Run.objects.filter(state="CANCELLED").values_list("id", flat=True))
    assert noted == ended
    assert len(noted) == (point == "cancel.after_commit")
    chores.do_once()
    body: dict[str, Any] = api.get(path).json()
    assert (body["status"], body["done"], body["refused"]) == ("completed", 3, 0)
    assert Event.objects.filter(type="run.cancelled", run__in=runs).count() <= 3
    assert {Run.objects.get(pk=run.pk).state for run in runs} == {"CANCELLED"}
    assert [Event.objects.filter(run=run).count() for run in runs] == [2, 2, 2]


def test_a_refusal_is_noted_once_and_an_aborted_operation_takes_nothing(api: Api) -> None:
    run = make_run(tenant=TENANT)
    path = _cancel_all(api)
    BulkOperation.objects.update(status="ABORTED")
    chores.do_once()
    assert api.get(path).json()["items"][0]["outcome"] == "pending"
    BulkOperation.objects.update(status="RUNNING", verb="resume")
    chores.do_once()
    item = api.get(path).json()["items"][0]
    assert (item["outcome"], item["code"]) == ("refused", "run_not_paused")
    force_state(run, reason="untouched")
    assert chores.do_once().bulk == 0
