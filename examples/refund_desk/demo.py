"""One refund from request to receipt, on real parts: `python -m examples.refund_desk.demo`.

A client posts a run over REST; the model proposes; the runtime reads, waits for a person, sends
one refund, checks it and answers. On a terminal it then stays up with a second run that waits for
your own approval. Exit code 0 when every check holds, 1 when one fails or a part cannot start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from types import FrameType
from typing import Any

from config.embedded import ServerError
from examples.refund_desk import timeline
from examples.refund_desk.admin_client import AdminError, AdminSession
from examples.refund_desk.rest_client import RestClient, RestError, is_over, needs_somebody
from examples.refund_desk.screen import Screen
from examples.refund_desk.services import ROOT, ServiceError
from examples.refund_desk.stage import Stage, open_stage

AGENT = "refund_desk"
FIRST = {
    "order_id": "ORD-1001",
    "message": "My order ORD-1001 arrived damaged. Please refund 80.00 EUR.",
    "amount": "80.00 EUR",
}
SECOND = {
    "order_id": "ORD-1004",
    "message": "ORD-1004 came three weeks late. I would like 120.00 EUR back.",
    "amount": "120.00 EUR",
}
PATIENCE = 120.0
"""Seconds for a run to get to its next stop; a real model needs some of them."""


class CheckFailedError(RuntimeError):
    """The demo ran, but something that must hold does not; the text names it."""


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description="A refund run, end to end, on real parts.")
    parser.add_argument("--port", type=int, default=0, help="port of the console; 0: a free one")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminated)
    screen = Screen()
    folder = Path(os.environ.get("AGENTCORE_RUN_DIR") or ROOT / ".run") / "demo"
    try:
        with open_stage(screen=screen, folder=folder, port=options.port) as stage:
            _tell(screen, stage)
    except (ServerError, ServiceError, AdminError, RestError, TimeoutError, OSError) as error:
        screen.line()
        print(f"The demo could not go on: {error}", file=sys.stderr)
        return 1
    except CheckFailedError as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; everything is stopped.", file=sys.stderr)
        return 130
    return 0


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def _tell(screen: Screen, stage: Stage) -> None:
    screen.line(f"The model is {stage.model}.")
    client = RestClient(url=stage.web, token=stage.token)
    run, waited = _first_run(screen, stage, client)
    events = client.events(run["id"])
    screen.title("Timeline, from GET /api/v1/runs/{id}/events")
    for text in timeline.lines(events):
        screen.line(text)
    refunds = _ledger(stage)
    screen.title("Payment ledger")
    for row in refunds:
        screen.line(
            f"  {row['id']}  {row['order_id']}  {row['amount']:>8} {row['currency']}"
            f"  key {row['idempotency_key'][:16]}…"
        )
    screen.title("Checks")
    failed = _show(screen, _checks(run, waited, events, refunds))
    if failed:
        raise CheckFailedError("; ".join(failed))
    _second_run(screen, stage, client)


def _first_run(screen: Screen, stage: Stage, client: RestClient) -> tuple[dict[str, Any], bool]:
    """Post, wait for the question, approve it in the console, wait for the end."""
    screen.title(f"POST /api/v1/runs: {FIRST['message']}")
    key = str(uuid.uuid4())
    run = client.start_run(agent=AGENT, run_input=FIRST, key=key)
    again = client.start_run(agent=AGENT, run_input=FIRST, key=key)
    if again["id"] != run["id"]:
        raise CheckFailedError("the same Idempotency-Key started two runs")
    screen.line(f"  {run['id']}  {run['status']} (posted twice with one key: one run)")
    run = client.follow(run["id"], until=needs_somebody, seconds=PATIENCE, between=stage.watch)
    required = run["required_action"] or {}
    screen.line(f"  {run['status']}: {required.get('type', run['status_reason'])}")
    waited = required.get("type") == "approval"
    if waited:
        if _ledger(stage):
            raise CheckFailedError("a refund was sent before anybody approved it")
        page = _review_page(stage, run)
        console = AdminSession(url=stage.web)
        console.sign_in(user=stage.user, password=stage.password)
        console.decide(page=page, decision="APPROVE")
        screen.line(f"  approved by {stage.user} in Django admin")
    run = client.follow(run["id"], until=is_over, seconds=PATIENCE, between=stage.watch)
    screen.line(f"  {run['status']}: {_answer(run)}")
    return run, waited


def _checks(
    run: dict[str, Any],
    waited: bool,
    events: list[dict[str, Any]],
    refunds: list[dict[str, Any]],
) -> list[tuple[str, bool]]:
    moves = [move for event in events for move in event["data"].get("transitions", [])]
    sent = [(row["order_id"], f"{row['amount']} {row['currency']}") for row in refunds]
    wanted = [(FIRST["order_id"], FIRST["amount"])]
    verified = any(
        move.get("kind") == "POSTCONDITION" and move.get("to") == "SUCCESS" for move in moves
    )
    numbers = [event["seq"] for event in events]
    links = {(row.turn, row.link) for row in timeline.rows(events)}
    turns = range(1, run["turns"] + 1)
    return [
        ("the run is completed", run["status"] == "completed"),
        ("a person was asked before money moved", waited),
        (f"exactly one refund, {FIRST['amount']} for {FIRST['order_id']}", sent == wanted),
        ("the refund was read back at the payment service", verified),
        (
            "every turn went through its four links",
            all((turn, link) in links for turn in turns for link in timeline.LINKS),
        ),
        ("the events have no gap", numbers == list(range(1, len(numbers) + 1))),
    ]


def _show(screen: Screen, checks: list[tuple[str, bool]]) -> list[str]:
    for what, ok in checks:
        screen.check(ok=ok, what=what)
    return [what for what, ok in checks if not ok]


def _second_run(screen: Screen, stage: Stage, client: RestClient) -> None:
    """A run that waits for the reader; stays until Ctrl-C when there is a terminal."""
    screen.title("Your turn")
    run = client.start_run(agent=AGENT, run_input=SECOND, key=str(uuid.uuid4()))
    run = client.follow(run["id"], until=needs_somebody, seconds=PATIENCE, between=stage.watch)
    if run["status"] != "requires_action":
        raise CheckFailedError(f"the second run does not wait for approval: {run['status']}")
    screen.line(f"  {SECOND['message']}")
    screen.line(f"  {run['id']} waits for your approval.")
    screen.line()
    screen.line(f"  console   {screen.bold(f'{stage.web}/admin/')}")
    screen.line(f"  user      {stage.user}")
    screen.line(f"  password  {stage.password}")
    screen.line(f"  review    {screen.bold(_review_page(stage, run))}")
    screen.line(f"  logs      {_short(stage.logs)}")
    screen.line()
    if sys.stdin is None or not sys.stdin.isatty():
        screen.line("There is no terminal, so the demo ends here.")
        return
    screen.line("Ctrl-C stops everything.")
    _stay(screen, stage, client, run)


def _stay(screen: Screen, stage: Stage, client: RestClient, run: dict[str, Any]) -> None:
    try:
        run = client.follow(
            run["id"], until=is_over, seconds=4 * 3600, between=stage.watch, every=0.5
        )
        screen.line(f"  {run['status']}: {_answer(run)}")
        for text in timeline.lines(client.events(run["id"])):
            screen.line(text)
        screen.line("Ctrl-C stops everything.")
        while True:
            stage.watch()
            time.sleep(0.5)
    except KeyboardInterrupt:
        screen.line()


def _answer(run: dict[str, Any]) -> str:
    output = run["output"]
    if isinstance(output, dict) and isinstance(output.get("text"), str):
        return str(output["text"])
    return json.dumps(output, ensure_ascii=False) if output else str(run["status_reason"] or "")


def _review_page(stage: Stage, run: dict[str, Any]) -> str:
    approval = uuid.UUID(hex=run["required_action"]["ids"][0].partition("_")[2])
    return f"{stage.web}/admin/review/{approval}/"


def _ledger(stage: Stage) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{stage.payment}/ledger", timeout=10) as reply:  # noqa: S310
        rows: list[dict[str, Any]] = json.load(reply)["data"]
    return rows


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
