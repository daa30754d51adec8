"""Celery's settings. PostgreSQL decides what is due; the broker only carries hints, and every
wait for it is bounded."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

QUEUES = ("compile", "model", "tools", "observe")
ISOLATE = "isolate"

ROUTES = {
    "runs.compile_context": "compile",
    "runs.call_model": "model",
    "runs.dispatch_tools": "tools",
    "runs.observe": "observe",
}

# What consuming and publishing share.
TRANSPORT: dict[str, Any] = {
    # A message is acknowledged before its run is driven: what a killed worker had read ahead is a
    # lost hint, which the sweep repeats. kombu's book of it in the broker took two transactions of
    # the broker a message, and could deliver a message twice.
    "ack_emulation": False,
    # 0 (runs that have begun) is read before new runs: 3 high, 6 normal, 9 low.
    "priority_steps": [0, 3, 6, 9],
    "socket_timeout": 5,  # above kombu's BRPOP of 1 s
    "socket_connect_timeout": 1,
    "socket_keepalive": True,
    "health_check_interval": 10,
}

# Publishing: a hint may be lost, its sender may not be held. Nothing is retried (`max_retries` is
# kombu's for connecting), and each wait for the server ends after 0.5 s.
PUBLISH: dict[str, Any] = {
    "socket_timeout": 0.5,
    "socket_connect_timeout": 0.5,
    "max_retries": 0,
}


def celery_settings(*, broker_url: str, prefix: str, threads: int) -> dict[str, Any]:
    """Return the CELERY_* values without their prefix, in lower case.

    `prefix` begins every key in the broker, so that two installations may share one server.
    """
    return {
        "broker_url": broker_url,
        "broker_transport_options": {**TRANSPORT, "global_keyprefix": prefix},
        "broker_connection_timeout": 2,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_limit": max(threads, 16) + 4,  # a sender never waits for another's time-out
        "broker_pool_acquire_timeout": 0.5,
        "result_backend": None,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "task_queues": [_queue(name) for name in (*QUEUES, ISOLATE)],
        "task_routes": {name: {"queue": queue} for name, queue in ROUTES.items()},
        "task_default_queue": "compile",
        "task_create_missing_queues": False,
        "task_acks_late": False,
        "task_reject_on_worker_lost": False,
        "task_publish_retry": False,
        "task_always_eager": False,
        "task_send_sent_event": False,
        "worker_send_task_events": False,
        "worker_enable_remote_control": False,
        "worker_pool": "threads",
        "worker_concurrency": threads,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_soft_shutdown_timeout": 0,  # it crashes the thread pool; TERM is a warm shutdown
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
    }


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(name, type="direct"), routing_key=name)
