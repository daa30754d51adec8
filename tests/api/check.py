"""`make api-check`: schemathesis against a real installation of the product.

Every phase (examples, coverage, fuzzing, stateful) and every check. Arguments are handed on, for
example `--max-examples 200`. Exits with schemathesis' code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from config.embedded import embedded_stack
from config.embedded.stack import remove_stack
from tests.world import ROOT, World, manage, open_world, wait_for

FOLDER = Path(__file__).resolve().parent
ARGUMENTS = ("--max-examples", "12", "--max-time", "150", "--workers", "1", "--seed", "1")
"""Bounds that keep it below four minutes; later ones on the command line win."""


SCOPES = (
    "runs:read", "runs:write", "runs:operate", "events:read", "actions:read", "approvals:read",
    "approvals:decide", "approvals:edit", "approvals:decide_high_risk", "reconciliations:write",
    "reconciliations:decide", "agents:read", "agents:operate", "tools:read", "sessions:read",
    "sessions:write", "webhooks:read", "webhooks:write", "bulk:write", "refunds.write",
)  # fmt: skip


def command(url: str, more: Sequence[str]) -> list[str]:
    """The call of schemathesis for a server at `url`."""
    program = str(Path(sys.executable).with_name("schemathesis"))
    return [
        program, "--config-file", str(FOLDER / "schemathesis.toml"), "run",
        f"{url}/api/v1/openapi.json",
        "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful",
        "--request-timeout", "20", "--suppress-health-check", "all", "--exclude-path-regex",
        "^/api/v1/callbacks/", *ARGUMENTS, *more,
    ]  # fmt: skip


UNKNOWN = 6
"""Refunds whose fate is open while the check goes on; a verdict settles one."""


def seed(world: World) -> list[str]:
    """Some runs, one of which waits for a person; the ids of actions whose fate is unknown.

    Those are of another caller: who has asked for a write gives no verdict on it.
    """
    world.refund("ORD-1001")
    world.waiting(world.refund("ORD-3003", "70.00 EUR"))
    scopes = [word for scope in ("runs:write", "refunds.write") for word in ("--scope", scope)]
    clerk = replace(world, token=manage(world, "token", "create", "clerk", *scopes).strip())
    world.fault(mode="error_before_commit", target="GET /refunds", times=1_000_000)
    for number in range(UNKNOWN):
        order = f"ORD-81{number:02}"
        world.fault(mode="commit_then_drop", order_id=order)
        clerk.refund(order)
    return wait_for(lambda: _unknown(world), seconds=60, what="the refunds are UNKNOWN")


def _unknown(world: World) -> list[str]:
    rows = world.query("SELECT id FROM runs_actionjournal WHERE state = 'UNKNOWN' ORDER BY id")
    return [f"act_{row[0].hex}" for row in rows] if len(rows) == UNKNOWN else []


def main(arguments: Sequence[str]) -> int:
    """Start an installation, check it, stop it."""
    if {"-h", "--help"} & {*arguments}:
        sys.stdout.write(f"{(__doc__ or '').strip()}\n\nThe usual: {' '.join(ARGUMENTS)}\n")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="api-check-", dir=_runtime_folder()))
    limits = {"AGENTCORE_API_READS_A_MINUTE": "0", "AGENTCORE_API_WRITES_A_MINUTE": "0"}
    try:
        with (
            embedded_stack(folder=folder) as stack,
            open_world(stack, folder / "world", scopes=SCOPES, **limits) as world,
        ):
            world.start_web()
            world.start_worker()
            unknown = seed(world)
            assert world.web is not None
            env = {
                **os.environ,
                "SCHEMATHESIS_HOOKS": "tests.api.hooks",
                "PYTHONPATH": str(ROOT),
                "API_TOKEN": world.token,
                "UNKNOWN_ACTIONS": ",".join(unknown),
            }
            call = command(world.web.url, arguments)
            return subprocess.run(call, cwd=folder, env=env, check=False).returncode
    finally:
        remove_stack(folder)


def _runtime_folder() -> Path:
    folder = ROOT / ".run"
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
