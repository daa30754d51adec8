"""Workers with another pool than threads, and tool apps that live outside the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.refund_desk import services
from examples.refund_desk.services import Service
from tests.world import World


def start_pool_worker(
    world: World, name: str, *, queues: str, pool: str, slots: int, wait: bool = True
) -> Service:
    """A Celery worker with `pool`; `world.stop` ends it. Its log says when it is ready.

    Prefork is called `processes`: `-P prefork` would mean the pool of the settings.
    """
    command = [
        sys.executable, "-m", "celery", "-A", "config.celery_app", "worker",
        "-P", pool, "-c", str(slots), "-Q", queues,
        "--without-gossip", "--without-mingle", "--loglevel", "INFO", "-n", f"{name}@%h",
    ]  # fmt: skip
    service = services.spawn(name=name, command=command, folder=world.folder, env=world.env)
    world.workers[name] = service
    return services.await_worker(service) if wait else service


def start_isolate_worker(world: World, name: str = "isolate") -> Service:
    """The one-slot worker for runs that are driven alone."""
    return start_pool_worker(world, name, queues="isolate", pool="processes", slots=1)


def write_app(folder: Path, name: str, *, tools: str, agents: str) -> Path:
    """A tool app in a folder of its own; the folder goes on PYTHONPATH."""
    app = folder / name
    app.mkdir(parents=True)
    (app / "__init__.py").write_text("")
    (app / "agent_tools.py").write_text(tools)
    (app / "agents.py").write_text(agents)
    return folder
