"""Named points at which a test may make the process fail. A no-op unless the environment arms it.

`AGENTCORE_FAILPOINTS=name=mode,…` arms points for the life of the process. With
`AGENTCORE_FAILPOINTS_DIR` a point is armed by a file of its name that holds the mode: the first
process to reach it renames the file to `name.fired` and fails, so it fires once for all processes
that share the folder, and the file's time of change tells when. Modes: `kill` (SIGKILL of this
process), `exit`, `raise`. `FAILPOINTS` lists every name, so that a test can try them all.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

FAILPOINTS = (
    "start_run.before_commit",
    "start_run.after_commit",
    "hint.before_publish",
    "hint.after_publish",
    "claim.before_commit",
    "claim.after_commit",
    "model.intent.before_commit",
    "model.intent.after_commit",
    "model.before_call",
    "model.after_call",
    "model.result.before_commit",
    "model.result.after_commit",
    "precheck.intent.before_commit",
    "precheck.intent.after_commit",
    "precheck.before_call",
    "precheck.after_call",
    "precheck.result.before_commit",
    "precheck.result.after_commit",
    "tool.intent.before_commit",
    "tool.intent.after_commit",
    "tool.before_call",
    "tool.after_call",
    "tool.result.before_commit",
    "tool.result.after_commit",
    "probe.intent.before_commit",
    "probe.intent.after_commit",
    "probe.before_call",
    "probe.after_call",
    "probe.result.before_commit",
    "probe.result.after_commit",
    "postcondition.intent.before_commit",
    "postcondition.intent.after_commit",
    "postcondition.before_call",
    "postcondition.after_call",
    "postcondition.result.before_commit",
    "postcondition.result.after_commit",
    "step.before_commit",
    "step.after_commit",
    "decide.before_commit",
    "decide.after_commit",
    "cancel.before_commit",
    "cancel.after_commit",
    "pause.before_commit",
    "pause.after_commit",
    "resume.before_commit",
    "resume.after_commit",
    "verdict.before_commit",
    "verdict.after_commit",
    "ask_probe.before_commit",
    "ask_probe.after_commit",
    "callback.store.before_commit",
    "callback.store.after_commit",
    "callback.settle.before_commit",
    "callback.settle.after_commit",
    "sweep.before_commit",
    "sweep.after_commit",
    "sweep.before_publish",
    "sweep.after_publish",
)


class FailpointError(RuntimeError):
    """Raised at a point armed with `raise`."""


def _parse(text: str) -> dict[str, str]:
    armed = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, mode = part.partition("=")
        if name not in FAILPOINTS:
            raise ValueError(f"unknown failpoint {name!r}; see agentcore/failpoints.py")
        armed[name] = mode or "kill"
    return armed


_ARMED = _parse(os.environ.get("AGENTCORE_FAILPOINTS", ""))
_DIRECTORY = os.environ.get("AGENTCORE_FAILPOINTS_DIR", "")


def hit(name: str) -> None:
    """Fail here when `name` is armed."""
    if not _ARMED and not _DIRECTORY:
        return
    mode = _ARMED.get(name) or _taken(name)
    if mode == "raise":
        raise FailpointError(name)
    if mode == "exit":
        os._exit(70)
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def _taken(name: str) -> str:
    """The mode in the folder's file, for the one process that takes it; else ""."""
    if not _DIRECTORY:
        return ""
    fired = Path(_DIRECTORY, f"{name}.fired")
    try:
        Path(_DIRECTORY, name).rename(fired)
    except FileNotFoundError:
        return ""
    return fired.read_text(encoding="ascii").strip() or "kill"
