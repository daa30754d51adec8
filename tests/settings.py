"""The project's settings for tests: the example app is installed, passwords hash fast, and nothing
of a stack that runs in this checkout is found."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("AGENTCORE_APPS", "examples.refund_desk")
os.environ.setdefault("AGENTCORE_LOG_STYLE", "console")
os.environ["AGENTCORE_RUN_DIR"] = str(Path(__file__).resolve().parent.parent / ".run" / "tests")

from config.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
