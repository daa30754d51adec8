"""Everything the demo needs, started in order and stopped in the reverse order at the end."""

from __future__ import annotations

import io
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.addresses import AddressError, check_redis_url, parse_database_url
from config.embedded import ServerError, embedded_stack
from examples.refund_desk import services
from examples.refund_desk.screen import Screen
from examples.refund_desk.services import ROOT, Service, ServiceError

APP = "examples.refund_desk"
SCOPES = ("runs:write", "runs:read", "events:read", "refunds.write")
REVIEWER = "reviewer"
SCRIPTED_MODEL = "scripted-model"


@dataclass(slots=True)
class Stage:
    """The running demo. `model` is what answers; `processes` are all that were started."""

    web: str
    payment: str
    token: str
    user: str
    password: str = field(repr=False)
    model: str
    logs: Path
    processes: list[Service] = field(default_factory=list)

    def watch(self) -> None:
        """Raise ServiceError, with the end of its log, when a process has ended by itself."""
        for service in self.processes:
            if not service.alive:
                raise ServiceError(
                    f"{service.name} ended with code {service.process.returncode}. The end of"
                    f" {service.log}:\n{service.log_tail()}"
                )


@contextmanager
def open_stage(*, screen: Screen, folder: Path, port: int = 0) -> Iterator[Stage]:
    """Start it all, with a line for each part. Raises ServerError or ServiceError with the cause.

    `folder` holds the data and logs and starts empty; `port` is the console's, 0 takes a free one.
    """
    _check_port(port)
    with ExitStack() as stack:
        processes: list[Service] = []
        what = "database and broker" if _given() else "PostgreSQL and Valkey"
        with screen.step(f"starting {what}"):
            with redirect_stderr(io.StringIO()) as said:  # a notice would tear the line apart
                servers = stack.enter_context(embedded_stack(folder=folder, fresh=True))
            _check_servers(database=servers.database_url, broker=servers.redis_url)
        if said.getvalue():
            screen.line(screen.faint(said.getvalue().strip()))
        stack.callback(services.stop_all, processes)
        logs = folder / "logs"
        with screen.step("starting the payment service"):
            payment = services.start_payment_service(_emptied(logs))
            processes.append(payment)
        env = {**servers.env(), **_environment(folder), "PAYMENT_URL": payment.url}
        model = _model(screen, env, logs, processes)
        os.environ.update(env)
        processes.append(services.start_web(logs, env=env, port=port, wait=False))
        with screen.step("creating tables, reviewer and token"):
            password = secrets.token_urlsafe(12)
            user, token = _prepare_database(password)
        processes.append(services.start_worker(logs, env=env, wait=False))
        with screen.step("starting web server and worker"):
            web = services.await_web(processes[-2])
            services.await_worker(processes[-1])
        yield Stage(web.url, payment.url, token, user, password, model, logs, processes)
        with screen.step("stopping everything"):
            stack.close()


def _given() -> bool:
    return bool(os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"))


def _emptied(logs: Path) -> Path:
    """The folder of logs without what an earlier demo left, its payment ledger above all."""
    logs.mkdir(parents=True, exist_ok=True)
    for path in logs.iterdir():
        path.unlink()
    return logs


def _environment(folder: Path) -> dict[str, str]:
    named = os.environ.get("AGENTCORE_APPS", "")
    apps = [name for name in named.split(",") if name and name != APP]
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "AGENTCORE_APPS": ",".join([APP, *apps]),
        "AGENTCORE_RUN_DIR": str(folder),
        "AGENTCORE_BROKER_PREFIX": f"agentcore-demo-{secrets.token_hex(4)}:",
    }


def _model(screen: Screen, env: dict[str, str], logs: Path, processes: list[Service]) -> str:
    """The real model when a key is given, else the scripted server; tells which."""
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("AGENTCORE_OPENAI_API_KEY"):
        name = os.environ.get("AGENTCORE_MODEL") or "the default model"
        return f"{name} at {os.environ.get('OPENAI_BASE_URL') or 'api.openai.com'}"
    with screen.step("starting the scripted model server"):
        server = services.start_model_server(logs)
        processes.append(server)
    for name in ("AGENTCORE_OPENAI_BASE_URL", "AGENTCORE_OPENAI_API_KEY"):
        os.environ.pop(name, None)
    env["OPENAI_API_KEY"] = "scripted"
    env["OPENAI_BASE_URL"] = f"{server.url}/v1"
    env["AGENTCORE_MODEL"] = SCRIPTED_MODEL
    return "the scripted model server (set OPENAI_API_KEY to use a real model)"


def _check_port(port: int) -> None:
    """Before anything is started. Raises ServerError when another process listens there."""
    with socket.socket() as caller:
        taken = port != 0 and caller.connect_ex(("127.0.0.1", port)) == 0
    if taken:
        raise ServerError(f"port {port} is taken by another process; choose another with --port")


def _check_servers(*, database: str, broker: str) -> None:
    """Ask both servers once, with short limits. Raises ServerError that says what to do."""
    import psycopg
    import redis

    try:
        parse_database_url(database)
        check_redis_url(broker)
        psycopg.connect(database, connect_timeout=5).close()
    except AddressError as error:
        raise ServerError(str(error)) from None
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise ServerError(
            f"the database of DATABASE_URL cannot be reached: {reason} Start it, or unset "
            "DATABASE_URL to use the embedded one."
        ) from None
    try:
        with redis.Redis.from_url(broker, socket_timeout=3, socket_connect_timeout=3) as client:
            client.ping()
    except redis.RedisError as error:
        raise ServerError(
            f"the broker of REDIS_URL cannot be reached: {error} Start it, or unset REDIS_URL to "
            "use the embedded one."
        ) from None


def _prepare_database(password: str) -> tuple[str, str]:
    """Tables, an account that may decide, and a service's token. Returns (user, token)."""
    import django
    from django.core.management import call_command

    django.setup()
    from django.contrib.auth import get_user_model
    from django.db import connections

    call_command("migrate", verbosity=0, interactive=False)
    accounts: Any = get_user_model().objects
    user = REVIEWER
    if accounts.filter(username=user).exists():  # a database of somebody else
        user = f"{REVIEWER}-{secrets.token_hex(3)}"
    accounts.create_superuser(username=user, email="", password=password)
    said = io.StringIO()
    scopes = [part for scope in SCOPES for part in ("--scope", scope)]
    name = f"demo-{secrets.token_hex(3)}"
    call_command("token", "create", name, *scopes, stdout=said, stderr=io.StringIO())
    connection: Any = connections["default"]
    connection.close()
    connection.close_pool()  # this process needs the database no more
    return user, said.getvalue().strip()
