"""A scripted model server that speaks `POST /v1/responses`, so that the real client is exercised.

    python -m examples.refund_desk.model_server --port 0

    POST /v1/responses       one response; stateless: the input decides (see `model_script.py`)
    GET  /requests           counts, and with ?bodies=N the last N request bodies
    GET|POST|DELETE /faults  see `faults.py`; modes error_500, error_429, quota_429, delay, drop,
                             html_200, cut_200, error_401

It refuses a history the real API would refuse, with the same words (see `model_history.py`).
"""

from __future__ import annotations

import argparse
from collections import deque
from typing import Any

from examples.refund_desk.faults import Fault, FaultBox, RequestCounter, route_label
from examples.refund_desk.json_http import DROP, Reply, Request, serve
from examples.refund_desk.model_bodies import response_body
from examples.refund_desk.model_history import BadRequestError, check_request, error_reply
from examples.refund_desk.model_script import next_proposal

MODES = (
    "error_500", "error_429", "quota_429", "error_401", "delay", "drop", "html_200", "cut_200",
)  # fmt: skip
ROUTE = "POST /v1/responses"
KEPT_BODIES = 200


class ModelServer:
    """The routes of the scripted model server."""

    def __init__(self) -> None:
        self.faults = FaultBox(modes=MODES, target=ROUTE)
        self.requests = RequestCounter()
        self.bodies: deque[Any] = deque(maxlen=KEPT_BODIES)

    def __call__(self, request: Request) -> Reply:
        """Answer one request."""
        if request.path == "/faults":
            return self.faults.endpoint(request)
        if request.path == "/requests":
            last = int(request.query.get("bodies", "0"))
            bodies = list(self.bodies)[-last:] if last else []
            return Reply(body={**self.requests.public(), "bodies": bodies})
        self.requests.enter(route_label(request))
        try:
            return self._responses(request)
        finally:
            self.requests.leave()

    def _responses(self, request: Request) -> Reply:
        if f"{request.method} {request.path}" != ROUTE:
            message = f"Invalid URL ({request.method} {request.path})"
            return error_reply(status=404, message=message, kind="invalid_request_error")
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return _unauthorized()
        fault = self.faults.take(label=ROUTE)
        if fault is not None and (broken := _broken(fault)) is not None:
            return broken
        try:
            body = request.json()
            self.bodies.append(body)
            items = check_request(body)
        except BadRequestError as refusal:
            return refusal.reply()
        except ValueError:
            return BadRequestError("We could not parse the JSON body of your request.").reply()
        proposal = next_proposal(items=items)
        reply = response_body(request=body, proposal=proposal)
        headers = {"openai-version": "2020-10-01", "x-request-id": f"req_{reply['id'][5:37]}"}
        cut = fault is not None and fault.mode == "cut_200"
        return Reply(body=reply, headers=headers, cut=cut)


def _unauthorized() -> Reply:
    message = "Incorrect API key provided. You can find your API key in your account settings."
    return error_reply(
        status=401, message=message, kind="invalid_request_error", code="invalid_api_key"
    )


def _broken(fault: Fault) -> Reply | None:
    """The broken answer of a fault, or None where the request goes on (after its delay)."""
    match fault.mode:
        case "drop":
            return DROP
        case "error_401":
            return _unauthorized()
        case "html_200":
            return Reply(body="<html><body>login required</body></html>")
        case "error_500":
            return error_reply(
                status=500,
                message="The server had an error while processing your request.",
                kind="server_error",
            )
        case "error_429":
            message = "Rate limit reached. Please try again in 1s."
            reply = error_reply(
                status=429, message=message, kind="tokens", code="rate_limit_exceeded"
            )
            return Reply(status=429, body=reply.body, headers={"retry-after": "1"})
        case "quota_429":
            return error_reply(
                status=429,
                message="You exceeded your current quota, please check your plan and billing.",
                kind="insufficient_quota",
                code="insufficient_quota",
            )
        case "delay":
            fault.wait()
    return None


def main() -> None:
    """Parse the command line and serve until stopped."""
    parser = argparse.ArgumentParser(description="A scripted Responses API server (loopback).")
    parser.add_argument("--port", type=int, default=0)
    serve(name="model_server", application=ModelServer(), port=parser.parse_args().port)


if __name__ == "__main__":
    main()
