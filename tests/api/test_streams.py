"""Event streams of a real ASGI server: no gap, no repetition, whatever is cut."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.db import connection

from agentcore.lifecycle import RunState, StopReason
from config.embedded.ports import free_port
from runs.models import Run
from runs.transitions import locked_run
from tests.api.streaming import Stream, add_events, log_of, open_stream, stream_server
from tests.factories import TENANT, make_run
from tests.runs.api_support import Api, make_token

pytestmark = pytest.mark.django_db(transaction=True)


def _end(run: Run) -> None:
    with locked_run(run.pk, actor="worker:test", event="run.failed") as draft:
        draft.move_run(RunState.FAILED, stop_reason=StopReason.RUNTIME_ERROR, reason="over")


def _seqs(stream: Stream) -> list[int]:
    return [seq for seq, _, _ in stream.events]


@pytest.mark.requirement("R89", "R90")
def test_cut_at_every_event_the_reads_together_are_the_log(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    run, token = make_run(tenant=TENANT), make_token(tenant=TENANT)
    add_events(run, 70)  # more than one page
    _end(run)
    log = log_of(run)
    assert len(log) == 72
    with stream_server(process_env, tmp_path) as (port, _):
        for cut in range(1, len(log) + 1):
            with open_stream(port, token, run) as stream:
                stream.read(until=cut)
                first = _seqs(stream)[:cut]
            with open_stream(port, token, run, after=first[-1]) as stream:
                stream.read()
                assert stream.done
                assert first + _seqs(stream) == log
        run_id = f"run_{run.id.hex}"
        listed = Api(token).get(f"/runs/{run_id}/events", limit="100").json()["data"]
        with open_stream(port, token, run) as stream:
            stream.read()
            assert [data for _, _, data in stream.events] == listed
        with open_stream(port, token, run, query=f"?after={listed[4]['id']}") as stream:
            stream.read()
            assert _seqs(stream) == log[5:]


@pytest.mark.requirement("R90")
def test_cut_at_any_byte(process_env: dict[str, str], tmp_path: Path) -> None:
    run, token = make_run(tenant=TENANT), make_token(tenant=TENANT)
    add_events(run, 2)
    _end(run)
    log = log_of(run)
    with stream_server(process_env, tmp_path) as (port, _):
        with open_stream(port, token, run) as stream:
            stream.read()
            whole = len(stream._body)
        for cut in range(1, whole, 7):
            with open_stream(port, token, run) as stream:
                stream.cut_after(cut)
                first = _seqs(stream)
            with open_stream(port, token, run, after=first[-1] if first else None) as stream:
                stream.read()
                assert first + _seqs(stream) == log


@pytest.mark.requirement("R12", "R90")
def test_what_happens_is_streamed_at_once_and_leaving_stops_nothing(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    run, token = make_run(tenant=TENANT), make_token(tenant=TENANT)
    with stream_server(process_env, tmp_path) as (port, _):
        with open_stream(port, token, run) as stream:
            stream.read(until=1)
            taken = []
            for number in range(2, 8):
                started = time.monotonic()
                add_events(run)
                stream.read(until=number)
                taken.append(time.monotonic() - started)
        assert sorted(taken)[len(taken) // 2] < 0.5, taken  # woken, not found by the poll
    run.refresh_from_db()
    assert (run.state, run.stop_reason) == ("QUEUED", None)


def test_without_the_broker_the_stream_looks_by_itself(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    run, token = make_run(tenant=TENANT), make_token(tenant=TENANT)
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    with (
        stream_server(process_env, tmp_path, REDIS_URL=nobody) as (port, _),
        open_stream(port, token, run) as stream,
    ):
        stream.read(until=1)
        started = time.monotonic()
        add_events(run, 3)
        stream.read(until=4)
        assert time.monotonic() - started < 3
        assert _seqs(stream) == [1, 2, 3, 4]


@pytest.mark.fault
@pytest.mark.requirement("R90")
def test_the_server_is_killed_and_started_again_under_an_open_stream(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    run, token = make_run(tenant=TENANT), make_token(tenant=TENANT)
    add_events(run, 3)
    with stream_server(process_env, tmp_path) as (port, process):
        with open_stream(port, token, run) as stream:
            stream.read(until=2)
            first = _seqs(stream)
            process.kill()
            process.wait()
            add_events(run, 2)
        with (
            stream_server(process_env, tmp_path, port=port),
            open_stream(port, token, run, after=first[-1]) as stream,
        ):
            stream.read(until=6 - first[-1])
            add_events(run)
            stream.read(until=7 - first[-1])
            assert first + _seqs(stream) == log_of(run) == list(range(1, 8))


def test_an_idle_stream_is_kept_open_and_closed_after_its_time(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    run, token = make_run(tenant=TENANT), make_token(tenant=TENANT)
    short = {"AGENTCORE_STREAM_HEARTBEAT": "0.2", "AGENTCORE_STREAM_SECONDS": "1"}
    with (
        stream_server(process_env, tmp_path, **short) as (port, _),
        open_stream(port, token, run) as stream,
    ):
        stream.read_comment()
        stream.read()
        assert (stream.closed, stream.done, _seqs(stream)) == (True, False, [1])


@pytest.mark.requirement("R99")
def test_a_stream_is_refused_as_the_list_would_be(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    run = make_run(tenant=TENANT)
    good, other = make_token(tenant=TENANT), make_token(tenant="other")
    blind = make_token(tenant=TENANT, scopes=["runs:read"])
    with stream_server(process_env, tmp_path) as (port, _):
        for token, after, status in (
            ("nobody", None, 401),
            (blind, None, 403),
            (other, None, 404),
            (good, 2, 410),
            (good, 1, 200),
        ):
            with open_stream(port, token, run, after=after) as stream:
                while not stream.status:
                    stream._more(time.monotonic() + 10)
                assert stream.status == status


def test_many_streams_share_one_poller_and_few_connections(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    runs, token = [make_run(tenant=TENANT) for _ in range(10)], make_token(tenant=TENANT)
    named = {"AGENTCORE_PROCESS": "stream-test"}
    with stream_server(process_env, tmp_path, **named) as (port, _):
        opened = [open_stream(port, token, runs[n % 10]) for n in range(120)]
        try:
            streams = [item.__enter__() for item in opened]
            for stream in streams:
                stream.read(until=1)
            for run in runs:
                add_events(run)
            for stream in streams:
                stream.read(until=2)
                assert _seqs(stream) == [1, 2]
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stream-test'"
                )
                assert cursor.fetchone()[0] <= 6
        finally:
            for item in opened:
                item.__exit__(None, None, None)


def test_the_wsgi_server_replays_and_lets_the_client_come_back() -> None:
    run, api = make_run(tenant=TENANT), Api(make_token(tenant=TENANT))
    api.headers["Accept"] = "text/event-stream"
    path = f"/runs/run_{run.id.hex}/events"
    text = api.get(path).content.decode()
    assert text.startswith("retry: 1000\n\nid: 1\nevent: run.created\n")
    assert "event: done" not in text
    api.headers["Last-Event-ID"] = "1"
    assert api.get(path).content == b"retry: 1000\n\n"
    _end(run)
    assert api.get(path).content.decode().endswith("event: done\ndata: {}\n\n")
