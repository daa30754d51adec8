"""The Celery app of floors (b) and (c), with the broker settings of ours.

`FLOOR_DATABASE_URL` is the database of floor (b). `FLOOR_PREFIX` begins every key in the broker,
also that of the list on which the end of each run is announced. `FLOOR_CONF` are settings of a
worker that differ, as JSON.
"""

from __future__ import annotations

import json
import os
import threading
from uuid import uuid4

import django
import redis
from celery import Celery, chain, signals
from django.conf import settings

from bench.floor_psycopg import APPEND, INSERT_RUN, LOCK, MOVE, steps_of
from config.addresses import parse_database_url
from config.broker import QUEUES, celery_settings

PREFIX = os.environ["FLOOR_PREFIX"]
DONE = f"{PREFIX}done"
THREADS = 16

# No DJANGO_SETTINGS_MODULE: Celery would close the connection around every task.
if not settings.configured:
    parts = parse_database_url(os.environ["FLOOR_DATABASE_URL"])
    database = {**parts, "ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": None}
    settings.configure(DATABASES={"default": database}, USE_TZ=True)
    django.setup()

# Not as current: in the process that starts the runs, that is the app of the runtime.
app = Celery("bench.floor_app", set_as_current=False)
app.conf.update(celery_settings(broker_url=os.environ["REDIS_URL"], prefix=PREFIX, threads=THREADS))
app.conf.update(json.loads(os.environ.get("FLOOR_CONF", "{}")))
app.conf.task_routes = {f"floor.{name}": {"queue": name} for name in QUEUES}


@signals.worker_ready.connect
def _say(**_: object) -> None:
    """Its log says so, as that of ours does; nothing else is logged."""
    print("the floor is ready.", flush=True)


_local = threading.local()


def announce(run: str) -> None:
    """Say that a run has ended."""
    if not hasattr(_local, "broker"):
        _local.broker = redis.Redis.from_url(os.environ["REDIS_URL"])
    _local.broker.rpush(DONE, run)


@app.task(name="floor.whole_run", queue=QUEUES[0])
def whole_run(turns: int) -> None:
    """Floor (b): every commit of a run in one task, raw SQL on Django's connection."""
    from django.db import connection, transaction

    run = str(uuid4())
    with connection.cursor() as cursor:
        cursor.execute(INSERT_RUN, [run])
        for kind, turn, payload in steps_of(run, turns):
            with transaction.atomic():
                cursor.execute(LOCK, [run])
                revision = cursor.fetchone()[0]
                cursor.execute(APPEND, [run, revision + 1, kind, payload])
                cursor.execute(MOVE, [kind, revision + 1, turn, run, revision])
    announce(run)


@app.task(name="floor.compile")
def compile_context(turn: int, turns: int) -> None:
    """Floor (c): nothing."""


@app.task(name="floor.model")
def call_model(turn: int, turns: int) -> None:
    """Nothing."""


@app.task(name="floor.tools")
def dispatch_tools(turn: int, turns: int) -> None:
    """Nothing."""


@app.task(name="floor.observe")
def observe(turn: int, turns: int) -> None:
    """The next turn, or the end."""
    if turn + 1 < turns:
        start_chain(turn + 1, turns)
    else:
        announce(str(turns))


def start_chain(turn: int, turns: int) -> None:
    """One turn: a chain of four tasks on four queues."""
    links = (compile_context, call_model, dispatch_tools, observe)
    chain(*(link.si(turn, turns) for link in links)).apply_async()
