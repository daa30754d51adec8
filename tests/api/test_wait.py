"""`GET /runs/{id}?wait=`: the answer comes when something changes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from runs import services
from runs.api import waiting
from tests.factories import TENANT, make_run, make_waiting
from tests.runs.api_support import Api, assert_problem

pytestmark = pytest.mark.django_db(transaction=True)


def _in_thread(pool: ThreadPoolExecutor, api: Api, path: str, **query: str) -> Any:
    def ask() -> tuple[Any, float]:
        started = time.monotonic()
        try:
            return api.get(path, **query), time.monotonic() - started
        finally:
            connection.close()

    return pool.submit(ask)


@pytest.mark.requirement("R12")
def test_it_waits_until_the_status_changes(api: Api) -> None:
    waiting_run = make_waiting()
    path = f"/runs/run_{waiting_run.run.id.hex}"
    with ThreadPoolExecutor(1) as pool:
        asked = _in_thread(pool, api, path, wait="20")
        while not waiting.watched():
            time.sleep(0.01)
        services.cancel_run(run_id=waiting_run.run.id, actor="user:olga")
        answer, taken = asked.result(20)
    assert answer.json()["status"] == "cancelled"
    assert taken < 10


def test_without_a_change_it_answers_after_the_time(api: Api) -> None:
    run = make_run(tenant=TENANT)
    path = f"/runs/run_{run.id.hex}"
    started = time.monotonic()
    answer = api.get(path, wait="1")
    assert 0.9 < time.monotonic() - started < 5
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")


def test_an_ended_run_is_answered_at_once(api: Api) -> None:
    run = make_run(tenant=TENANT)
    services.cancel_run(run_id=run.id, actor="user:olga")
    started = time.monotonic()
    assert api.get(f"/runs/run_{run.id.hex}", wait="30").json()["status"] == "cancelled"
    assert time.monotonic() - started < 5


def test_the_tag_of_an_older_revision_is_answered_at_once_the_current_with_304(api: Api) -> None:
    run = make_run(tenant=TENANT)
    path = f"/runs/run_{run.id.hex}"
    api.headers["If-None-Match"] = '"rev-0"'
    answer = api.get(path, wait="30")
    assert (answer.status_code, answer["ETag"]) == (200, '"rev-1"')
    api.headers["If-None-Match"] = '"rev-1"'
    same = api.get(path)
    assert (same.status_code, same.content, same["ETag"]) == (304, b"", '"rev-1"')


def test_only_so_many_wait_in_one_process(api: Api) -> None:
    run = make_run(tenant=TENANT)
    taken = [waiting._slots.acquire(blocking=False) for _ in range(waiting.AT_ONCE)]
    assert all(taken)
    try:
        started = time.monotonic()
        assert api.get(f"/runs/run_{run.id.hex}", wait="30").status_code == 200
        assert time.monotonic() - started < 5
    finally:
        for _ in taken:
            waiting._slots.release()


@pytest.mark.parametrize("text", ["31", "-1", "1.5", "x", "", "²"])
def test_a_bad_wait_is_refused(api: Api, text: str) -> None:
    run = make_run(tenant=TENANT)
    assert_problem(api.get(f"/runs/run_{run.id.hex}", wait=text), 422, "invalid_input")
