"""Start a run, follow its events, decide or cancel it. Standard library only.

    API_URL=http://127.0.0.1:8000 API_TOKEN=agc_... python start_and_follow.py ORD-1001 "20.00 EUR"

`EVENTS_URL` names the server of event streams, when it is another one.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

API = os.environ.get("API_URL", "http://127.0.0.1:8000") + "/api/v1"
EVENTS = (
    os.environ.get("EVENTS_URL", os.environ.get("API_URL", "http://127.0.0.1:8000")) + "/api/v1"
)
TOKEN = os.environ.get("API_TOKEN", "")


def call(method: str, path: str, body: Any = None, *, key: str = "") -> Any:
    """One request. The same key and body may be sent again safely: nothing is done twice."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(API + path, data, method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", "application/json")
    if method == "POST":
        request.add_header("Idempotency-Key", key or str(uuid4()))
    for attempt in range(5):
        try:
            with urllib.request.urlopen(request, timeout=40) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            problem = json.load(error)
            wait = error.headers.get("Retry-After")
            if wait is None or attempt == 4:
                raise SystemExit(f"{problem['code']}: {problem['detail']}") from None
            time.sleep(float(wait))
    raise SystemExit("the server stays busy")


def events(run_id: str) -> Iterator[dict[str, Any]]:
    """Every event of a run, once, in order, over any number of connections."""
    last = 0
    while True:
        request = urllib.request.Request(f"{EVENTS}/runs/{run_id}/events")
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Accept", "text/event-stream")
        request.add_header("Last-Event-ID", str(last))
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                for line in reply:
                    if line.startswith(b"event: done"):
                        return
                    if line.startswith(b'data: {"id"'):
                        event = json.loads(line[6:])
                        last = event["seq"]
                        yield event
        except (TimeoutError, ConnectionError, urllib.error.URLError):
            pass  # the connection was cut: come back and go on after `last`
        time.sleep(1)


def main(order: str, amount: str) -> int:
    """Refund an order and tell what happens."""
    run = call(
        "POST",
        "/runs",
        {
            "agent": "refund_desk",
            "input": {"order_id": order, "message": "It arrived broken.", "amount": amount},
            "dedupe_key": order,
        },
    )
    print(run["id"], run["status"])
    for event in events(run["id"]):
        print(f"{event['seq']:>4} {event['type']}")
        if event["type"] == "run.requires_action":
            waiting = call("GET", f"/runs/{run['id']}")["required_action"]
            print("     a person has to decide:", waiting)
            run = call("POST", f"/runs/{run['id']}/cancel", {"reason": "nobody is here"})
            print("    ", run["status"], run["in_flight_actions"])
    run = call("GET", f"/runs/{run['id']}?wait=10")
    print(run["status"], json.dumps(run["output"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
