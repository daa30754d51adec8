"""Use cases: each is one durable transaction, and the only way for an interface to change a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import IntegrityError, transaction

from agentcore import failpoints
from agentcore.values import Json
from agentcore.version import CODE_VERSION
from approvals.errors import DecisionError
from runs import agents, dispatch, prepared, selectors, spending, sql, switches, transitions
from runs.agents import AgentDeclaration, all_agents, get_agent
from runs.approving import Decider, Decision, decide_approval
from runs.callbacks import receive_callback
from runs.cancelling import Cancellation, cancel_run
from runs.claiming import claim_approval, escalate_approval, release_approval
from runs.editing import edit_action
from runs.models import AgentVersion, Run
from runs.once import Answer, Once, Within, answered_once, stored_answer
from runs.pausing import NewLimits, pause_run, resume_run
from runs.probing import ask_probe
from runs.reconciliations import record_verdict
from runs.refusals import FieldError, Refused, invalid
from runs.retrying import Retried, retry_request
from runs.selectors import Begun
from runs.sessions import create_session, delete_session, join_session
from runs.standing import grant_standing, revoke_standing
from runs.starting import Caller, StartRun, limits_of, validated_input
from runs.switches import switch_off, switch_on
from runs.thresholds import add_threshold, retire_threshold
from runs.webhooks.endpoints import has_endpoint

__all__ = [
    "Answer",
    "Caller",
    "Cancellation",
    "Decider",
    "Decision",
    "DecisionError",
    "NewLimits",
    "Once",
    "StartRun",
    "add_threshold",
    "ask_probe",
    "cancel_run",
    "claim_approval",
    "create_session",
    "decide_approval",
    "delete_session",
    "edit_action",
    "escalate_approval",
    "grant_standing",
    "pause_run",
    "receive_callback",
    "record_verdict",
    "release_approval",
    "resume_run",
    "retire_threshold",
    "retry_run",
    "revoke_standing",
    "start_run",
    "start_run_once",
    "stored_answer",
    "switch_off",
    "switch_on",
]


def start_run(*, caller: Caller, request: StartRun, within: Within | None = None) -> Run:
    """Start a run: its row and event 1 in one transaction, then a hint.

    Raises `Refused` (invalid_input, dedupe_open_run). A broker that is down is not an error: the
    sweep finds the run.
    """
    try:
        run = prepared.again(lambda: _start(caller, request, within))
    except IntegrityError as error:
        if not agents.is_unknown_version(error):
            raise _conflict(caller, request, error) from error
        agents.forget_frozen()
        run = _start(caller, request, within)
    failpoints.hit("start_run.after_commit")
    return run


def retry_run(*, caller: Caller, run: Run, within: Within | None = None) -> Run:
    """Start the task of a failed or incomplete run again; see `runs/retrying.py`.

    Raises `Refused` as `start_run`, and run_not_retryable.
    """
    guard = Retried(run.id, within)
    return start_run(caller=caller, request=retry_request(run), within=guard)


def start_run_once(*, caller: Caller, request: StartRun, once: Once) -> Answer:
    """`start_run` with an idempotency key: the answer is stored in the run's own transaction.

    A repetition gets the stored answer. Raises `Refused` as `start_run`, and
    idempotency_key_reused, idempotency_in_progress.
    """
    return answered_once(
        once=once, act=lambda guard: start_run(caller=caller, request=request, within=guard)
    )


# --- inside start_run -------------------------------------------------------------------------


def _start(caller: Caller, request: StartRun, within: Within | None) -> Run:
    prepared = _prepare(caller, request)
    with transaction.atomic(durable=True):
        begun = within.begin() if within else selectors.begun()
        switches.refuse_start(request.agent, stamp=begun.controls)
        with sql.in_one_go(commit=True):
            run = _create(caller, request, prepared, begun=begun)
            if within:
                within.end(run, run_id=run.id)
            failpoints.hit("start_run.before_commit")
    return run


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a run is made of, ready before the transaction begins."""

    agent: AgentDeclaration
    version: AgentVersion
    input: Json


def _prepare(caller: Caller, request: StartRun) -> _Prepared:
    agent = get_agent(request.agent)
    if caller.agents and request.agent not in caller.agents:
        raise Refused(
            code="agent_forbidden",
            detail=f"The token is for the agents {', '.join(caller.agents)} only.",
        )
    if agent is None:
        known = ", ".join(item.name for item in all_agents()) or "none"
        raise invalid("/agent", "unknown_agent", f"no agent has this name. Known agents: {known}.")
    if request.version not in (None, agent.version):
        raise invalid(
            "/version",
            "unknown_version",
            f"agent {agent.name} runs version {agent.version} only. Leave the field out.",
        )
    if request.start_at is not None and request.session_conflict == "queue":
        raise invalid("/start_at", "not_both", "cannot be combined with a place in a queue.")
    accepted = validated_input(model=agent.input_model, value=request.input)
    version = agent.freeze()
    if request.budget.max_cost is not None:
        _check_price(version)
    return _Prepared(agent=agent, version=version, input=accepted)


def _check_price(version: AgentVersion) -> None:
    """A limit in money can only be kept where the model has a price."""
    model = version.spec["model"]
    if spending.price_for(model, datetime.now(UTC).date()) is None:
        raise invalid("/budget/max_cost", "no_price", f"there is no price for the model {model}.")


def _create(caller: Caller, request: StartRun, prepared: _Prepared, *, begun: Begun) -> Run:
    """Insert the run and event 1 in the open transaction, and hint after its commit."""
    now = begun.now
    limits = limits_of(budget=prepared.agent.budget, request=request, now=now)
    wake_at = _begins(caller, request, now=now, deadline=limits.deadline_at)
    run = sql.new(
        Run,
        tenant=caller.tenant,
        agent_version_id=prepared.version.id,
        principal=caller.principal,
        scopes=list(caller.scopes),
        on_behalf_of=request.on_behalf_of,
        dedupe_key=request.dedupe_key,
        session_id=request.session,
        retry_of_id=request.retry_of,
        webhook_endpoint_id=request.webhook_endpoint,
        input=prepared.input,
        metadata=dict(request.metadata),
        priority=request.priority,
        dry_run=request.dry_run,
        wake_at=wake_at,
        hinted_at=now,  # the hint after this commit; the sweep waits its back-off
        max_turns=limits.max_turns,
        max_actions=limits.max_actions,
        max_tokens=limits.max_tokens,
        max_cost=limits.max_cost,
        deadline_at=limits.deadline_at,
        trace_id=request.trace_id,
        code_version=CODE_VERSION,
        created_at=now,
    )
    run.agent_version = prepared.version  # at hand for the answer
    transitions.create_run(run, actor=caller.principal, listened=begun.listened)
    if wake_at <= now:
        dispatch.hint_on_commit(run)
    return run


def _begins(caller: Caller, request: StartRun, *, now: datetime, deadline: datetime) -> datetime:
    """When the run may begin: now, at `start_at`, or (its deadline) when its session lets it.

    Raises `Refused` for what the request names and the caller does not have.
    """
    if request.webhook_endpoint is not None and not has_endpoint(
        caller=caller, endpoint_id=request.webhook_endpoint
    ):
        raise invalid("/webhook_endpoint", "unknown_endpoint", "there is no live endpoint.")
    if request.session is not None and join_session(
        caller=caller,
        session_id=request.session,
        agent=request.agent,
        conflict=request.session_conflict,
    ):
        return deadline
    start_at = request.start_at or now
    if start_at >= deadline:
        raise invalid("/start_at", "after_deadline", f"must be before {deadline.isoformat()}.")
    return max(start_at, now)


def _conflict(caller: Caller, request: StartRun, error: IntegrityError) -> Exception:
    """What a violated constraint means: an open run with the same dedupe_key, or a defect."""
    if "run_one_open_per_dedupe_key" not in str(error):
        return error
    run_id = selectors.open_run_of(tenant=caller.tenant, dedupe_key=request.dedupe_key)
    open_run = f"run_{run_id.hex}" if run_id else ""
    detail = "A run with this dedupe_key is still open"
    return Refused(
        code="dedupe_open_run",
        detail=f"{detail}: {open_run}. Wait for its end or use its result."
        if open_run
        else f"{detail} or has just ended. Send the request again.",
        errors=[FieldError("/dedupe_key", "dedupe_open_run", f"{detail}.")],
        context={"run": open_run} if open_run else {},
    )
