"""Use cases: each is one durable transaction, and the only way for an interface to change a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db import IntegrityError, connection, transaction

from agentcore import failpoints
from agentcore.values import Json
from agentcore.version import CODE_VERSION
from runs import dispatch, selectors, transitions
from runs.access_models import IdempotencyRecord
from runs.agents import AgentDeclaration, all_agents, get_agent
from runs.approving import Decider, Decision, decide_approval
from runs.models import AgentVersion, Run
from runs.refusals import FieldError, Refused, invalid
from runs.starting import Caller, StartRun, limits_of, validated_input

__all__ = [
    "Answer",
    "Caller",
    "Decider",
    "Decision",
    "Once",
    "StartRun",
    "decide_approval",
    "start_run",
    "start_run_once",
    "stored_answer",
]


@dataclass(frozen=True, slots=True)
class Once:
    """Makes a request happen once: its key, what a repetition must equal, how it is answered.

    `principal` and `route` bound the key: the same key of another caller is another request.
    """

    principal: str
    method: str
    route: str
    key: str
    body_sha256: str
    status: int
    render: Callable[[Run], Json]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an idempotent request; `replayed` when an earlier request made it."""

    status: int
    body: Json
    run_id: str
    replayed: bool


def start_run(*, caller: Caller, request: StartRun) -> Run:
    """Start a run: its row and event 1 in one transaction, then a hint.

    Raises `Refused` (invalid_input, dedupe_open_run). A broker that is down is not an error: the
    sweep finds the run.
    """
    prepared = _prepare(request)
    try:
        with transaction.atomic(durable=True):
            run = _create(caller, request, prepared)
            failpoints.hit("start_run.before_commit")
    except IntegrityError as error:
        raise _conflict(caller, request, error) from error
    failpoints.hit("start_run.after_commit")
    return run


def start_run_once(*, caller: Caller, request: StartRun, once: Once) -> Answer:
    """`start_run` with an idempotency key: the answer is stored in the run's own transaction.

    A repetition gets the stored answer. Raises `Refused` as `start_run`, and
    idempotency_key_reused, idempotency_in_progress.
    """
    stored = stored_answer(once=once)
    if stored is not None:
        return stored
    prepared = _prepare(request)
    try:
        with transaction.atomic(durable=True):
            _take_key(once)
            run = _create(caller, request, prepared)
            body = once.render(run)
            _store(once, run, body)
            failpoints.hit("start_run.before_commit")
    except IntegrityError as error:
        stored = stored_answer(once=once)
        if stored is not None:
            return stored
        raise _conflict(caller, request, error) from error
    failpoints.hit("start_run.after_commit")
    return Answer(status=once.status, body=body, run_id=str(run.id), replayed=False)


def stored_answer(*, once: Once) -> Answer | None:
    """The answer that an earlier request with this key got, or None.

    Raises `Refused` (idempotency_key_reused) when that request had another body.
    """
    record = IdempotencyRecord.objects.filter(
        principal=once.principal, method=once.method, route=once.route, key=once.key
    ).first()
    if record is None:
        return None
    if record.body_sha256 != once.body_sha256:
        raise Refused(
            code="idempotency_key_reused",
            detail="This Idempotency-Key was used with another body. Send the first body again, "
            "or use a new key for a new request.",
        )
    return Answer(status=record.status, body=record.body, run_id=str(record.run_id), replayed=True)


# --- inside start_run -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a run is made of, ready before the transaction begins."""

    agent: AgentDeclaration
    version: AgentVersion
    input: Json


def _prepare(request: StartRun) -> _Prepared:
    agent = get_agent(request.agent)
    if agent is None:
        known = ", ".join(item.name for item in all_agents()) or "none"
        raise invalid("/agent", "unknown_agent", f"no agent has this name. Known agents: {known}.")
    if request.version not in (None, agent.version):
        raise invalid(
            "/version",
            "unknown_version",
            f"agent {agent.name} runs version {agent.version} only. Leave the field out.",
        )
    accepted = validated_input(model=agent.input_model, value=request.input)
    return _Prepared(agent=agent, version=agent.freeze(), input=accepted)


def _create(caller: Caller, request: StartRun, prepared: _Prepared) -> Run:
    """Insert the run and event 1 in the open transaction, and hint after its commit."""
    now = selectors.database_clock()
    limits = limits_of(budget=prepared.agent.budget, asked=request.budget, now=now)
    run = Run(
        tenant=caller.tenant,
        agent_version=prepared.version,
        principal=caller.principal,
        scopes=list(caller.scopes),
        dedupe_key=request.dedupe_key,
        input=prepared.input,
        metadata=dict(request.metadata),
        wake_at=now,
        hinted_at=now,  # the hint after this commit; the sweep waits its back-off
        max_turns=limits.max_turns,
        max_actions=limits.max_actions,
        deadline_at=limits.deadline_at,
        trace_id=request.trace_id,
        code_version=CODE_VERSION,
        created_at=now,
    )
    transitions.create_run(run, actor=caller.principal)
    dispatch.hint_on_commit(run)
    return run


def _take_key(once: Once) -> None:
    """Hold the key until the transaction ends, or refuse at once when another request holds it."""
    name = f"idempotency\n{once.principal}\n{once.method}\n{once.route}\n{once.key}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        row = cursor.fetchone()
    if not row or not row[0]:
        raise Refused(
            code="idempotency_in_progress",
            detail="A request with this Idempotency-Key is being answered. Send it again after "
            "the time in Retry-After.",
            retry_after=1,
        )


def _store(once: Once, run: Run, body: Json) -> None:
    IdempotencyRecord.objects.create(
        principal=once.principal,
        method=once.method,
        route=once.route,
        key=once.key,
        body_sha256=once.body_sha256,
        status=once.status,
        body=body,
        run=run,
        created_at=run.created_at,
    )


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
