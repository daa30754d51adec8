"""What a tool is told about the call it serves. All of it comes from the trusted run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from uuid import UUID

from tools import clock
from tools.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """One call, as the runtime sees it. Nothing here was chosen by the model.

    `deadline` and `send_by` are seconds of `tools.clock.now()`: the call ends by the first, its
    first byte leaves by the second. `idempotency_key` is empty until the start of a write.
    `resource_version` is what the precheck saw and the write is bound to: send it as its
    precondition (If-Match), and a resource that moved on refuses the write.
    """

    run_id: UUID
    action_id: UUID | None = None
    attempt_id: UUID | None = None
    tenant: str
    principal: str
    scopes: tuple[str, ...] = ()
    idempotency_key: str = ""
    fence: int = 0
    resource_version: str = ""
    deadline: float = math.inf
    send_by: float = math.inf
    key_header: str = "Idempotency-Key"
    fence_header: str = "X-Agentcore-Fence"
    # What `http` has sent, shared by all requests of the call: a context serves one attempt.
    writes: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def remaining(self) -> float:
        """Seconds left until the deadline, never below zero."""
        return max(0.0, self.deadline - clock.now())

    @property
    def http(self) -> Transport:
        """An HTTP client bound to this call: its deadline, `send_by`, key and fence."""
        headers = {self.fence_header: str(self.fence)}
        if self.idempotency_key:
            headers[self.key_header] = self.idempotency_key
        return Transport(
            deadline=self.deadline,
            send_by=self.send_by,
            write_headers=headers,
            writes=self.writes,
        )
