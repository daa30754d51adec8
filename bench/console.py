"""`make bench ARGS="console"`: every page of the console over a full database.

100,000 runs, 300,000 actions, 1,000,000 events, 2,000 open questions (`bench/seed.py`). Each page
is loaded 20 times by Django's test client: no network, the real database. It prints the 95th
percentile and the number of queries. Goals: 300 ms and 20 queries.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from bench import machine, results

LOADS = 20
GOAL_MS, GOAL_QUERIES = 300.0, 20


def main(arguments: Sequence[str]) -> int:
    """Returns 1 when a page misses a goal."""
    parser = argparse.ArgumentParser(prog="bench console", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="100,000; at least 20,000")
    options = parser.parse_args(arguments)

    from bench.installation import installation

    with installation(
        AGENTCORE_APPS="examples.refund_desk", AGENTCORE_MODEL_API="responses"
    ) as place:
        about = machine.describe(place.env["DATABASE_URL"])
        os.environ.update(place.env)
        os.environ["AGENTCORE_DATABASE_POOL"] = "0"
        os.environ["AGENTCORE_ALLOWED_HOSTS"] = "testserver"
        import django

        django.setup()
        found = _measure(options.runs)
    results.store("console", {"machine": about, "asked": vars(options), "pages": found})
    return 1 if any(page["missed"] for page in found.values()) else 0


def _measure(runs: int) -> dict[str, dict[str, Any]]:
    """By page: p50 and p95 in milliseconds, queries, and whether a goal was missed."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from bench.seed import seed

    began = time.perf_counter()
    rows = seed(runs=runs)
    print(f"seeded in {time.perf_counter() - began:.0f} s: {rows}")
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss", "", "boss-password"))
    found: dict[str, dict[str, Any]] = {}
    print(f"{'page':<44} {'p50 ms':>8} {'p95 ms':>8} {'queries':>8}")
    for name, url in pages().items():
        with CaptureQueriesContext(connection) as queries:
            _load(client, url)
        log = list(queries)  # before the next request clears it
        times = sorted(_load(client, url) for _ in range(LOADS))
        p95 = times[round(0.95 * (LOADS - 1))]
        asked = sum(not q["sql"].startswith(("SAVEPOINT", "RELEASE", "BEGIN")) for q in log)
        bad = p95 > GOAL_MS or asked > GOAL_QUERIES
        p50 = statistics.median(times)
        found[name] = {"p50_ms": p50, "p95_ms": p95, "queries": asked, "missed": bad}
        mark = "  missed" if bad else ""
        print(f"{name:<44} {p50:>8.0f} {p95:>8.0f} {asked:>8}{mark}")
        if bad and p95 > GOAL_MS:
            slow = max(log, key=lambda q: float(q["time"]))
            print(f"    slowest query {slow['time']} s: {' '.join(slow['sql'].split())[:300]}")
    connection.close()
    return found


def _load(client: Any, url: str) -> float:
    """One load in milliseconds."""
    began = time.perf_counter()
    response = client.get(url)
    body = b"".join(response) if response.streaming else response.content
    took = (time.perf_counter() - began) * 1000
    assert response.status_code == 200, (url, response.status_code, body[:200])
    return took


def pages() -> dict[str, str]:
    """Every page, with rows of the seed where it needs some."""
    from approvals.models import Approval
    from runs.models import ActionJournal, Run

    asked = Approval.objects.filter(state="PENDING").order_by("id").first()
    unknown = ActionJournal.objects.filter(state="UNKNOWN").order_by("id").first()
    ended = Run.objects.filter(state="COMPLETED").order_by("-id").first()
    assert asked is not None
    assert unknown is not None
    assert ended is not None
    runs, actions = "/admin/runs/run/", "/admin/runs/actionjournal/"
    middle = Run.objects.order_by("id")[1000].pk
    return {
        "home": "/admin/",
        "review queue": "/admin/review/",
        "review item": f"/admin/review/{asked.pk}/",
        "unknown board": "/admin/unknown/",
        "unknown item": f"/admin/unknown/{unknown.pk}/",
        "stuck": "/admin/stuck/",
        "runs": runs,
        "runs, far back": f"{runs}?before={middle}",
        "runs, waiting for a person": f"{runs}?status=requires_action",
        "runs with an unknown outcome": f"{runs}?has=unknown",
        "runs by metadata": f"{runs}?metadata=order%3D77",
        "runs failed in a day": f"{runs}?status=FAILED&age=24",
        "runs by requester": f"{runs}?requester=token:shop-7",
        **{f"run, {tab}": f"{runs}{ended.pk}/change/?tab={tab}" for tab in
           ("overview", "timeline", "turns", "actions", "approvals", "cost", "raw")},
        "actions": actions,
        "actions by business key": f"{actions}?q=ORD-77",
        "actions by reference": f"{actions}?q=rf_4711",
        "actions unknown": f"{actions}?state=UNKNOWN",
        "action": f"{actions}{unknown.pk}/change/",
        "approvals": "/admin/approvals/approval/",
        "events": "/admin/runs/event/",
        "events of a run": f"/admin/runs/event/?q={ended.pk}",
        "agents": "/admin/agents/",
        "tools": "/admin/tools/",
        "policy": "/admin/policy/",
        "workers": "/admin/workers/",
    }  # fmt: skip
