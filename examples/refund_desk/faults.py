"""Switchable faults of the example's services, so that tests can break a call at a chosen moment.

`POST /faults` arms one: `{"mode": M, "times": n, "seconds": s, "target": "POST /refunds",
"order_id": "ORD-7"}`; only `mode` is required. `target` is a prefix of "METHOD /path".
`GET /faults` lists the armed ones with how often each fired; `DELETE /faults` removes all and
lets every delayed request go on at once (so a long `delay` is a gate that a test opens).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.refund_desk.json_http import DROP, Reply, Request

SERVER_ERROR = {"error": "internal", "detail": "the service failed (an armed fault)"}


@dataclass(slots=True)
class Fault:
    """One armed fault; `left` counts down, `released` ends its delays early."""

    mode: str
    left: int
    seconds: float
    target: str
    order_id: str | None
    fired: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def matches(self, *, label: str, order_id: str | None) -> bool:
        if self.left <= 0 or not label.startswith(self.target):
            return False
        return self.order_id is None or self.order_id == order_id

    def wait(self) -> None:
        """Hold the request for `seconds`, or until the faults are removed."""
        self.released.wait(self.seconds)

    def public(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "left": self.left,
            "fired": self.fired,
            "seconds": self.seconds,
            "target": self.target,
            "order_id": self.order_id,
        }


class FaultBox:
    """The armed faults of one service."""

    def __init__(self, *, modes: Sequence[str], target: str) -> None:
        self._modes = tuple(modes)
        self._target = target
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def take(self, *, label: str, order_id: str | None = None) -> Fault | None:
        """Use up one firing of the first fault that matches this request."""
        with self._lock:
            for fault in self._faults:
                if fault.matches(label=label, order_id=order_id):
                    fault.left -= 1
                    fault.fired += 1
                    return fault
        return None

    def endpoint(self, request: Request) -> Reply:
        """GET, POST and DELETE of /faults."""
        if request.method == "POST":
            return self._arm(request)
        with self._lock:
            if request.method == "DELETE":
                for fault in self._faults:
                    fault.released.set()
                self._faults.clear()
            return Reply(body={"data": [fault.public() for fault in self._faults]})

    def _arm(self, request: Request) -> Reply:
        try:
            spec = dict(request.json())
            fault = Fault(
                mode=str(spec.pop("mode")),
                left=int(spec.pop("times", 1)),
                seconds=float(spec.pop("seconds", 1.0)),
                target=str(spec.pop("target", self._target)),
                order_id=spec.pop("order_id", None),
            )
        except (TypeError, ValueError, KeyError) as error:
            return Reply(status=400, body={"error": "bad_fault", "detail": repr(error)})
        if fault.mode not in self._modes or spec:
            detail = f"modes: {', '.join(self._modes)}; unknown fields: {sorted(spec)}"
            return Reply(status=400, body={"error": "bad_fault", "detail": detail})
        with self._lock:
            self._faults.append(fault)
        return Reply(status=201, body=fault.public())


EFFECT_MODES = (
    "drop_before_commit",
    "error_before_commit",
    "delay",
    "delay_after_commit",
    "commit_then_drop",
    "error_after_commit",
    "cut_after_commit",
    "html_after_commit",
)


def around_effect(*, fault: Fault | None, effect: Callable[[], Reply]) -> Reply:
    """Run `effect` with the fault on the side of it that its mode names."""
    mode = fault.mode if fault else ""
    if mode == "drop_before_commit":
        return DROP
    if mode == "error_before_commit":
        return Reply(status=500, body=SERVER_ERROR)
    if fault and mode == "delay":
        fault.wait()
    reply = effect()
    if fault and mode == "delay_after_commit":
        fault.wait()
    if mode == "commit_then_drop":
        return DROP
    if mode == "error_after_commit":
        return Reply(status=500, body=SERVER_ERROR)
    if mode == "cut_after_commit":
        return Reply(status=reply.status, body=reply.body, cut=True)
    if mode == "html_after_commit":
        return Reply(status=reply.status, body="<html><body>login required</body></html>")
    return reply


class RequestCounter:
    """Counts every request received, by "METHOD /first-part", and those still being answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._active = 0

    def enter(self, label: str) -> None:
        with self._lock:
            self._counts[label] = self._counts.get(label, 0) + 1
            self._active += 1

    def leave(self) -> None:
        with self._lock:
            self._active -= 1

    def public(self) -> dict[str, Any]:
        with self._lock:
            total = sum(self._counts.values())
            return {"total": total, "active": self._active, "by_route": dict(self._counts)}


def route_label(request: Request) -> str:
    """The request as "METHOD /first-part", for counting."""
    return f"{request.method} /{request.path.strip('/').split('/')[0]}"
