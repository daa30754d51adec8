"""A launcher in a process of its own: starts a stack, says so, and waits to be killed.

Run as `python launcher.py FOLDER`. The first line of its output is JSON with pids and addresses.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from config.embedded import embedded_stack


def main() -> None:
    """Start the stack of the folder named on the command line and stay."""
    with embedded_stack(folder=Path(sys.argv[1]), use_environment=False) as stack:
        assert stack.postgres is not None
        assert stack.valkey is not None
        pids = {"postgres": stack.postgres.pid, "valkey": stack.valkey.pid}
        sys.stdout.write(json.dumps({**pids, **stack.env()}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
