"""One signed POST to one endpoint: bounded, never redirected, never to a private address.

The name is resolved once, every address is checked, and the connection goes to an address that
was checked: what the name says a moment later does not matter.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcore.values import Json
from runs.webhooks.addresses import Network, is_allowed
from tools import clock
from tools.errors import NotSent, ToolError
from tools.transport import Transport


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one POST. `status` None: there was no reply, `error` says why."""

    status: int | None
    error: str = ""
    retry_after: float | None = None  # seconds, as the receiver asked

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedTransport(Transport):
    """A transport that connects to allowed addresses only."""

    networks: tuple[Network, ...] = ()

    def _resolve(self, host: str, port: int) -> list[Any]:
        found = super(_CheckedTransport, self)._resolve(
            host, port
        )  # plain `super()` breaks with slots
        for family, _, _, _, address in found:
            if family not in (socket.AF_INET, socket.AF_INET6):
                raise NotSent(f"{host} has no internet address", error_class="address_denied")
            if not is_allowed(str(address[0]), self.networks):
                raise NotSent(f"{host} leads to a private address", error_class="address_denied")
        return found


def body_of(payload: Json) -> bytes:
    """The bytes that the transport makes of a payload: what is signed is what is sent."""
    return json.dumps(payload, allow_nan=False).encode()


def post(
    *,
    url: str,
    payload: Json,
    headers: Mapping[str, str],
    networks: tuple[Network, ...],
    seconds: float,
) -> Sent:
    """Send `payload` and read the status. `seconds` bound everything, the resolver included."""
    until = clock.now() + seconds
    transport = _CheckedTransport(deadline=until, send_by=until, networks=networks)
    try:
        reply = transport.request("POST", url, json=payload, headers=headers)
    except ToolError as error:
        return Sent(None, f"{error.error_class}: {error.detail}"[:300])
    said = "" if 200 <= reply.status < 300 else f"answered {reply.status}"
    if 300 <= reply.status < 400:
        said += "; redirects are not followed"
    return Sent(reply.status, said, retry_after_of(reply.headers))


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds in a `Retry-After` header; its form with a date is not honoured."""
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
