"""The example's scripted model server, with faults for one order only and calls counted by order.

python -m tests.faults.exhaustive.model_server --port 0
"""

from __future__ import annotations

import argparse
import threading
from collections import Counter
from typing import Any

from examples.refund_desk.json_http import Reply, Request, serve
from examples.refund_desk.model_script import ORDER
from examples.refund_desk.model_server import ROUTE, ModelServer


class TrialModelServer(ModelServer):
    """A fault with an `order_id` breaks only the calls whose input names that order first."""

    def __init__(self) -> None:
        super().__init__()
        self._box = self.faults
        self.faults = self  # type: ignore[assignment]
        self._local = threading.local()
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply:
        if request.path == "/calls":
            return Reply(body={"calls": self.calls[request.query["order_id"]]})
        order = ORDER.search(request.body.decode("utf-8", "replace"))
        self._local.order = order[0] if order else None
        if f"{request.method} {request.path}" == ROUTE and order:
            with self._lock:
                self.calls[order[0]] += 1
        return super().__call__(request)

    def take(self, *, label: str, **_: Any) -> Any:
        """As `FaultBox.take`, for the order of the request at hand."""
        return self._box.take(label=label, order_id=self._local.order)

    def endpoint(self, request: Request) -> Reply:
        """The fault box's own endpoint."""
        return self._box.endpoint(request)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    serve(name="model_server", application=TrialModelServer(), port=parser.parse_args().port)
