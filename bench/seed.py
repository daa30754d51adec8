"""Rows for pages: `seed(runs=100_000)` fills an empty, migrated database in about a minute.

100,000 runs of the last 30 days, three actions each, ten events each, 2,000 open questions, a few
hundred writes whose fate is open, and attempts for the newest actions. The rows are made by SQL
past the triggers: they are for reading, and no worker may ever see them.
"""

from __future__ import annotations

from typing import Any

from django.db import connection, models

from agentcore.ids import new_id
from approvals.models import Approval
from runs.models import ActionJournal, AgentVersion, Attempt, Event, Run
from runs.selectors import database_clock

PENDING, OPEN = 2000, 300
DAYS = 30


def _neutral(field: models.Field[Any, Any]) -> str:
    """An SQL value for a column that nothing is said about."""
    if field.null:
        return "NULL"
    if isinstance(field, models.JSONField):
        return "'{}'::jsonb"
    if isinstance(field, models.CharField | models.TextField):
        return "''"
    if isinstance(field, models.BooleanField):
        return "false"
    if isinstance(field, models.DateTimeField):
        return "s.at"
    if isinstance(field, models.UUIDField):
        return "gen_random_uuid()"
    return "0"


def _fill(model: type[models.Model], source: str, **said: str) -> None:
    """INSERT of one row for each row of `source` (alias s); the columns by SQL expression."""
    fields = [f for f in model._meta.concrete_fields if not isinstance(f, models.AutoField)]
    names = ", ".join(f'"{field.column}"' for field in fields)
    values = ", ".join(said.get(str(field.column), _neutral(field)) for field in fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f'INSERT INTO "{model._meta.db_table}" ({names}) SELECT {values} FROM {source}'
        )


def seed(*, runs: int = 100_000) -> dict[str, int]:
    """Fill the database; the number of rows by table."""
    version = AgentVersion.objects.create(
        name="refund_desk", version="1", digest=new_id().hex, created_at=database_clock(),
        spec={"budget": {"cost": 400_000}, "instructions": "Be exact.", "model": "m",
              "settings": {}, "tools": []},
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(_PLAN, {"runs": runs, "days": DAYS, "pending": PENDING, "open": OPEN})
    _runs(str(version.pk))
    _actions()
    _questions()
    _fill(
        Event,
        "bench_run s CROSS JOIN generate_series(1, 10) q ORDER BY s.n, q",
        run_id="s.id",
        seq="q",
        type="(ARRAY['run.created','run.advanced','action.started','action.succeeded'])[1 + q % 4]",
        actor="'worker:seed'",
        data="jsonb_build_object('transitions', jsonb_build_array(jsonb_build_object("
        "'object', 'run', 'from', 'OBSERVING', 'to', 'COMPILING_CONTEXT', 'cause', 'next turn')))",
        hash="md5(s.n::text || q) || md5(q::text)",
        created_at="s.at + q * interval '1 second'",
    )
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("SET statement_timeout = DEFAULT")
        cursor.execute("ANALYZE")
    tables = (Run, ActionJournal, Attempt, Event, Approval)
    return {table._meta.db_table: table.objects.count() for table in tables}


_PLAN = """
    CREATE TEMP TABLE bench_run AS
    SELECT n, at, uuidv7(at - clock_timestamp()) AS id, CASE
        WHEN n > %(runs)s - %(pending)s THEN 'WAITING_APPROVAL'
        WHEN n > %(runs)s - %(pending)s - %(open)s THEN 'RECONCILING'
        WHEN n %% 17 = 0 THEN 'FAILED' WHEN n %% 13 = 0 THEN 'INCOMPLETE'
        WHEN n %% 29 = 0 THEN 'CANCELLED' ELSE 'COMPLETED' END AS state
    FROM (SELECT n, clock_timestamp() - (%(runs)s - n) * (%(days)s * interval '1 day' / %(runs)s)
                 - interval '1 second' AS at
          FROM generate_series(1, %(runs)s) n) numbered;
    CREATE TEMP TABLE bench_action AS
    SELECT r.n, o, r.id AS run_id, r.at + o * interval '1 second' AS at,
           uuidv7(r.at + o * interval '1 second' - clock_timestamp()) AS id,
           CASE WHEN o < 2 THEN 'SUCCEEDED'
                WHEN r.state = 'WAITING_APPROVAL' THEN 'AWAITING_APPROVAL'
                WHEN r.state = 'RECONCILING' THEN 'UNKNOWN' WHEN r.state = 'FAILED' THEN 'FAILED'
                ELSE 'SUCCEEDED' END AS state,
           uuidv7(r.at + o * interval '1 second' - clock_timestamp()) AS approval_id
    FROM bench_run r CROSS JOIN generate_series(0, 2) o;
"""
_ENDED = "s.state IN ('COMPLETED', 'FAILED', 'INCOMPLETE', 'CANCELLED', 'SUCCEEDED')"


def _runs(version: str) -> None:
    _fill(
        Run,
        "bench_run s ORDER BY s.n",
        id="s.id",
        tenant="'acme'",
        agent_version_id=f"'{version}'",
        principal="'token:shop-' || (s.n % 40)",
        input="jsonb_build_object('request', 'Refund order ORD-' || s.n || ', it arrived late.')",
        metadata="jsonb_build_object('order', s.n::text)",
        state="s.state",
        stop_reason="CASE s.state WHEN 'FAILED' THEN 'MODEL_ERROR' WHEN 'INCOMPLETE' THEN 'BUDGET'"
        " WHEN 'CANCELLED' THEN 'CANCEL' END",
        revision="10",
        fence="1",
        turn="3",
        max_turns="12",
        max_actions="20",
        actions_used="3",
        cost_used="20000 + s.n % 9000",
        wake_at="CASE WHEN s.state IN ('WAITING_APPROVAL', 'RECONCILING')"
        " THEN clock_timestamp() + interval '3 hours' ELSE s.at END",
        deadline_at="clock_timestamp() + interval '1 day'",
        event_seq="10",
        ended_at=f"CASE WHEN {_ENDED} THEN s.at + interval '12 seconds' END",
        code_version="'seed'",
    )


def _actions() -> None:
    _fill(
        ActionJournal,
        "bench_action s ORDER BY s.n, s.o",
        id="s.id",
        run_id="s.run_id",
        tenant="'acme'",
        turn="1 + s.o",
        ordinal="0",
        edit="0",
        call_id="'call_' || s.o",
        tool="CASE WHEN s.o < 2 THEN 'refund_desk.get_order' ELSE 'refund_desk.submit_refund' END",
        tool_version="'1'",
        effect="CASE WHEN s.o < 2 THEN 'READ' ELSE 'WRITE' END",
        contract="CASE WHEN s.o < 2 THEN '' ELSE 'KEY' END",
        arguments="jsonb_build_object('order_id', 'ORD-' || s.n)",
        params_hash="md5(s.n::text) || md5(s.o::text)",
        idempotency_key="CASE WHEN s.o = 2 AND s.state <> 'AWAITING_APPROVAL'"
        " THEN 'k_' || md5(s.n::text) END",
        resource_key="CASE WHEN s.o = 2 THEN 'order:ORD-' || s.n ELSE '' END",
        downstream_ref="CASE WHEN s.o = 2 AND s.state = 'SUCCEEDED' THEN 'rf_' || s.n ELSE '' END",
        approval_id="CASE WHEN s.state = 'AWAITING_APPROVAL' THEN s.approval_id END",
        state="s.state",
        first_sent_at="CASE WHEN s.state <> 'AWAITING_APPROVAL' THEN s.at END",
        ended_at="CASE WHEN s.state IN ('SUCCEEDED', 'FAILED') THEN s.at END",
    )
    _fill(
        Attempt,
        "bench_action s WHERE s.o = 2 AND s.state <> 'AWAITING_APPROVAL' ORDER BY s.n",
        id="s.id",
        run_id="s.run_id",
        action_id="s.id",
        turn="3",
        kind="'TOOL'",
        n="1",
        fence="1",
        send_by="s.at",
        started_at="s.at",
        outcome="CASE s.state WHEN 'UNKNOWN' THEN 'AMBIGUOUS' WHEN 'FAILED' THEN 'NO_EFFECT'"
        " ELSE 'SUCCESS' END",
        ended_at="s.at + interval '300 milliseconds'",
    )


def _questions() -> None:
    """The open questions, and one that was decided for every tenth run."""
    _fill(
        Approval,
        "bench_action s WHERE s.o = 2 AND (s.state = 'AWAITING_APPROVAL' OR s.n % 10 = 0)"
        " ORDER BY s.n",
        id="s.approval_id",
        tenant="'acme'",
        run_id="s.run_id",
        action_id="s.id",
        state="CASE WHEN s.state = 'AWAITING_APPROVAL' THEN 'PENDING' ELSE 'CONSUMED' END",
        tool="'refund_desk.submit_refund'",
        tool_version="'1'",
        policy_version="'1'",
        rule="'amount above 50.00 EUR'",
        arguments="jsonb_build_object('order_id', 'ORD-' || s.n)",
        params_hash="md5(s.n::text) || md5('2')",
        resource_key="'order:ORD-' || s.n",
        impact="jsonb_build_object('preview', jsonb_build_object("
        "'summary', 'Refund 80.00 EUR for order ORD-' || s.n))",
        requester="'token:shop-' || (s.n % 40)",
        required_count="1",
        expires_at="clock_timestamp() + interval '2 hours' + s.n * interval '1 millisecond'",
        decided_at="CASE WHEN s.state <> 'AWAITING_APPROVAL'"
        " THEN s.at + (s.n % 90) * interval '1 minute' END",
    )
