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
from pathlib import Path

from config.embedded import embedded_stack
from config.embedded.stack import remove_stack
from tests.world import ROOT, World, open_world

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


def seed(world: World) -> None:
    """Some runs, one of which waits for a person."""
    world.refund("ORD-1001")
    world.waiting(world.refund("ORD-3003", "70.00 EUR"))


def main(arguments: Sequence[str]) -> int:
    """Start an installation, check it, stop it."""
    folder = Path(tempfile.mkdtemp(prefix="api-check-", dir=_runtime_folder()))
    limits = {"AGENTCORE_API_READS_A_MINUTE": "0", "AGENTCORE_API_WRITES_A_MINUTE": "0"}
    try:
        with (
            embedded_stack(folder=folder) as stack,
            open_world(stack, folder / "world", scopes=SCOPES, **limits) as world,
        ):
            world.start_web()
            world.start_worker()
            seed(world)
            assert world.web is not None
            env = {
                **os.environ,
                "SCHEMATHESIS_HOOKS": "tests.api.hooks",
                "PYTHONPATH": str(ROOT),
                "API_TOKEN": world.token,
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
