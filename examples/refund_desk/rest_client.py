"""A small client of the REST API, as a backend service would write one. Standard library only."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

TERMINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})


class RestError(RuntimeError):
    """The API refused a request; the text is its problem document."""

    def __init__(self, status: int, problem: Any) -> None:
        detail = problem.get("detail") if isinstance(problem, dict) else problem
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status
        self.problem = problem


class RestClient:
    """Calls `/api/v1` at `url` with a bearer token."""

    def __init__(self, *, url: str, token: str) -> None:
        self._base = f"{url}/api/v1"
        self._token = token

    def start_run(self, *, agent: str, run_input: Any, key: str, **more: Any) -> dict[str, Any]:
        """POST /runs with this Idempotency-Key. The same key and body give the same run."""
        body = {"agent": agent, "input": run_input, **more}
        run: dict[str, Any] = self._send("POST", "/runs", body, {"Idempotency-Key": key})
        return run

    def run(self, run_id: str) -> dict[str, Any]:
        """GET /runs/{id}."""
        run: dict[str, Any] = self._send("GET", f"/runs/{run_id}")
        return run

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Every event of a run, oldest first, page by page."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self._send("GET", f"/runs/{run_id}/events?limit=100{after}")
            found += page["data"]
            if not page["has_more"]:
                return found
            after = f"&after={page['last_id']}"

    def follow(
        self,
        run_id: str,
        *,
        until: Callable[[dict[str, Any]], bool],
        seconds: float,
        between: Callable[[], None] = lambda: None,
        every: float = 0.1,
    ) -> dict[str, Any]:
        """Read the run until `until` is true for it; `between` is called before each read.

        Raises TimeoutError after `seconds`, with the status it was left in.
        """
        deadline = time.monotonic() + seconds
        while True:
            between()
            run = self.run(run_id)
            if until(run):
                return run
            if time.monotonic() > deadline:
                raise TimeoutError(f"{run_id} is still {run['status']} after {seconds:.0f} s")
            time.sleep(every)

    def _send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise RestError(error.code, _problem(error.read())) from None


def _problem(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload[:300].decode(errors="replace")


def is_over(run: dict[str, Any]) -> bool:
    """Whether the run has ended."""
    return run["status"] in TERMINAL


def needs_somebody(run: dict[str, Any]) -> bool:
    """Whether the run waits for a person, or has ended."""
    return is_over(run) or run["status"] == "requires_action"
