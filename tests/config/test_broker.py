"""The Celery app: what its settings promise, and that publishing never holds the caller."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator

import kombu.exceptions
import pytest
import redis
from django.conf import settings

from config.broker import QUEUES, ROUTES, celery_settings
from config.celery_app import AgentcoreCelery, app
from config.embedded import Stack

BOUND = 3.0  # s; what REST promises for a broker that is down


@pytest.fixture
def half_open() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield server.getsockname()[1]


def make_app(url: str) -> AgentcoreCelery:
    made = AgentcoreCelery("publisher", set_as_current=False)
    made.config_from_object(celery_settings(broker_url=url, prefix="test:", threads=16))
    return made


def publish(made: AgentcoreCelery) -> object:
    """Publish in another thread. Returns the error or the result; fails after BOUND seconds."""
    answers: queue.Queue[object] = queue.Queue()

    def run() -> None:
        try:
            answers.put(made.send_task("runs.compile_context", args=[["x", 1]], expires=600))
        except kombu.exceptions.OperationalError as error:
            answers.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answers.get(timeout=BOUND)
    except queue.Empty:
        pytest.fail(f"publishing was held for more than {BOUND} s")


@pytest.mark.fault
def test_publishing_to_a_half_open_broker_fails_soon(half_open: int) -> None:
    made = make_app(f"redis://:pw@127.0.0.1:{half_open}/0")
    for _ in range(3):
        assert isinstance(publish(made), kombu.exceptions.OperationalError)


@pytest.mark.fault
def test_many_senders_do_not_wait_for_each_other(half_open: int) -> None:
    made = make_app(f"redis://:pw@127.0.0.1:{half_open}/0")
    results: queue.Queue[object] = queue.Queue()
    senders = [threading.Thread(target=lambda: results.put(publish(made))) for _ in range(16)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert results.qsize() == 16
    assert all(isinstance(results.get(), kombu.exceptions.OperationalError) for _ in range(16))


@pytest.mark.fault
def test_publishing_ends_when_the_broker_stops_and_works_when_it_is_back(own_stack: Stack) -> None:
    assert own_stack.valkey is not None
    made = make_app(own_stack.redis_url)
    assert not isinstance(publish(made), Exception)
    own_stack.valkey.freeze()
    assert isinstance(publish(made), kombu.exceptions.OperationalError)
    own_stack.valkey.thaw()
    assert not isinstance(publish(made), Exception)
    own_stack.valkey.stop()
    assert isinstance(publish(made), kombu.exceptions.OperationalError)
    own_stack.valkey.start()
    assert not isinstance(publish(made), Exception)
    own_stack.valkey.flush()
    assert not isinstance(publish(made), Exception)
    with own_stack.valkey.client() as client:
        assert client.llen("test:compile") == 1


def test_consuming_keeps_its_patience() -> None:
    made = make_app("redis://127.0.0.1:1/0")
    reading = made.connection_for_read().transport_options
    writing = made.connection_for_write().transport_options
    assert reading["socket_timeout"] > 1  # the blocking pop takes 1 s
    assert "max_retries" not in reading
    assert writing["socket_timeout"] <= 0.5
    assert writing["max_retries"] == 0
    assert writing["global_keyprefix"] == reading["global_keyprefix"] == "test:"


def test_the_settings_of_the_app_are_ours() -> None:
    conf = app.conf
    assert conf.accept_content == ["json"]
    assert conf.task_ignore_result
    assert conf.result_backend is None
    assert not conf.task_acks_late
    assert not conf.task_publish_retry
    assert conf.worker_prefetch_multiplier == 1
    assert conf.worker_pool == "threads"
    assert conf.worker_concurrency == settings.AGENTCORE_OPTIONS.threads
    assert conf.broker_connection_max_retries is None
    assert conf.broker_transport_options["priority_steps"] == [0, 3, 6, 9]
    assert conf.broker_transport_options["ack_emulation"] is False


def test_what_was_read_ahead_goes_back_and_the_broker_keeps_no_book_of_it(
    stack: Stack,
) -> None:
    made = make_app(stack.redis_url)
    name = made.conf.task_routes["runs.observe"]["queue"]
    queue_of = next(one for one in made.conf.task_queues if one.name == name)
    with make_app(stack.redis_url).connection_for_read() as connection:
        bound = queue_of(connection.default_channel)
        bound.purge()
        made.send_task("runs.observe", args=[["x", 7]])
        assert bound.get() is not None
        broker = redis.Redis.from_url(stack.redis_url)
        assert [*broker.scan_iter("*unacked*")] == []
        assert bound.get() is None
    with make_app(stack.redis_url).connection_for_read() as connection:
        back = queue_of(connection.default_channel).get()
        assert back is not None
        assert back.payload[0] == [["x", 7]]
        back.ack()


def test_each_task_has_its_queue_and_no_other_queue_is_made() -> None:
    from kombu.exceptions import KombuError

    for name, where in ROUTES.items():
        assert app.amqp.router.route({}, name)["queue"].name == where
    assert set(ROUTES.values()) == set(QUEUES)
    with pytest.raises((KombuError, LookupError)):
        app.amqp.router.route({"queue": "no-such-queue"}, "runs.observe")
