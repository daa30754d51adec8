"""What a step can answer, and the outside calls it can ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from agentcore.values import AttemptKind
from runs import journal
from runs.models import ActionJournal
from runs.view import View
from tools import ToolContext, clock
from tools.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call into a tool's code: the tool itself, its probe, preview or post-condition."""

    attempt_id: UUID
    kind: AttemptKind
    spec: ToolSpec
    context: ToolContext
    arguments: dict[str, Any]
    result: Any = None

    @property
    def timeout(self) -> float:
        """Seconds the call may take."""
        return self.spec.timeout


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call: the exact request body and its time limit in seconds."""

    attempt_id: UUID
    request: dict[str, Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class Next:
    """Drafted; the step of the run's new state follows in the same transaction."""


@dataclass(frozen=True, slots=True)
class Again:
    """Commit what is drafted, then look again."""


@dataclass(frozen=True, slots=True)
class Call:
    """Commit the intent, then make these calls: one write, one model call, or a set of reads."""

    requests: tuple[ToolRequest, ...] | tuple[ModelRequest]

    @property
    def point(self) -> str:
        """The failpoint family of this call set."""
        first = self.requests[0]
        return "model" if isinstance(first, ModelRequest) else first.kind.lower()

    @property
    def seconds(self) -> float:
        """How long the lease covers the set: its longest time limit and a margin for overrunning
        it. A thread that is still in it then is stuck."""
        options = settings.AGENTCORE_OPTIONS
        longest = max(request.timeout for request in self.requests)
        return max(longest + options.call_margin, options.claim_margin)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `wake_at`; the lease goes back."""

    wake_at: datetime


@dataclass(frozen=True, slots=True)
class End:
    """The run is terminal."""


Answer = Next | Again | Call | Wait | End


def context_for(
    view: View, action: ActionJournal, *, attempt_id: UUID | None = None, timeout: float = 0.0
) -> ToolContext:
    """What a tool function may know: who asks and with which rights, never the model's word.

    With an attempt the limits run from now, on the local clock: read before the transaction that
    starts the attempt, so a slow commit leaves less time to send and never more.
    """
    local = clock.now() if attempt_id is not None else math.inf
    return ToolContext(
        run_id=view.run.id,
        action_id=action.id,
        attempt_id=attempt_id,
        tenant=view.run.tenant,
        principal=view.run.principal,
        scopes=tuple(view.run.scopes),
        idempotency_key=action.idempotency_key or "",
        fence=view.run.fence,
        resource_version=action.bound_version,
        deadline=local + timeout,
        send_by=local + min(journal.SEND_WITHIN, timeout),
        key_header=settings.AGENTCORE_OPTIONS.key_header,
        fence_header=settings.AGENTCORE_OPTIONS.fence_header,
    )


def far(now: datetime) -> datetime:
    """A wake-up time for a run that only an outside event can move."""
    return now + timedelta(days=365)
