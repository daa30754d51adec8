"""Who may import whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import BESIDE, PRODUCT, ROOT, imported, name_of, nodes, place

OPENAI_MODULE = "agentcore/llm/openai_responses.py"


def test_the_layers_hold() -> None:
    """The contracts of pyproject.toml: config -> runs -> (approvals | tools) -> agentcore."""
    program = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [program, "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("package", ["agentcore", "tools"])
def test_the_rules_and_the_tools_know_no_framework(package: str) -> None:
    frameworks = {"django", "celery", "kombu", "rest_framework", "redis", "psycopg"}
    found = [
        f"{place(path, node)} {name}"
        for path, node in nodes(package)
        for name in imported(node)
        if name.split(".")[0] in frameworks
    ]
    assert found == [], f"{package} runs, and is tested, without Django, Celery and a database"


def test_one_module_knows_the_model_client() -> None:
    importers = {
        name_of(path)
        for path, node in nodes(*PRODUCT, *BESIDE)
        if any(name.split(".")[0] == "openai" for name in imported(node))
    }
    assert importers == {OPENAI_MODULE}, "one layer owns the client and its retries"


def test_the_product_does_not_know_its_examples_and_tests() -> None:
    found = [
        f"{place(path, node)} {name}"
        for path, node in nodes(*PRODUCT)
        for name in imported(node)
        if name.split(".")[0] in {"examples", "bench", "tests"}
    ]
    assert found == [], "an application is found by AGENTCORE_APPS, never by an import of ours"
