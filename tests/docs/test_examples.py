"""Everything the pages tell a reader to run, run: tools, agents, commands and requests.

One installation for all of it. Its web server and worker are started by the very commands of
docs/operations.md, and its tool apps are the files that the pages show.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from config.embedded import Stack
from examples.refund_desk import services
from examples.refund_desk.rest_client import is_over
from tests.docs.pages import Block, blocks, tagged
from tests.world import ROOT, World, manage, open_world

CURL = ROOT / "tests" / "docs" / "curl.py"


@dataclass
class Reader:
    """Somebody who follows the pages: a world, and a shell with what they have set so far."""

    world: World
    env: dict[str, str]
    answers: list[Any] = field(default_factory=list)

    def sh(self, block: Block) -> str:
        """Run a block as one script; its output, read as JSON where it is, is kept."""
        script = block.text.replace(".venv/bin/python", shlex.quote(sys.executable))
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{block.where}\n{done.stdout}\n{done.stderr}"
        if done.stdout.startswith("{"):
            answer = json.loads(done.stdout)
            self.answers.append(answer)
            if answer.get("object") == "run":
                self.env["RUN"] = answer["id"]
        return done.stdout


def _command(process: str) -> list[str]:
    """The documented command of a process, with this Python and a free port."""
    (block,) = [block for block in tagged("process") if block.value == process]
    program, *arguments = shlex.split(block.text)
    free = [text.replace("127.0.0.1:8000", "127.0.0.1:0") for text in arguments]
    return [sys.executable, "-m", Path(program).name, *free]


@pytest.fixture(scope="module")
def reader(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    outside = tmp_path_factory.mktemp("outside")
    for block in tagged("file"):
        path = outside / block.value
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(block.text)
    apps = sorted(path.name for path in outside.iterdir())
    both = f"{ROOT}:{outside}"
    with open_world(stack, folder, apps=["examples.refund_desk", *apps], PYTHONPATH=both) as world:
        web = services.spawn(name="web", command=_command("web"), folder=folder, env=world.env)
        world.web = web
        worker = services.spawn(
            name="worker", command=_command("worker"), folder=folder, env=world.env
        )
        world.workers["worker"] = worker
        services.await_web(web)
        services.await_worker(worker)
        yield Reader(world, _reader_env(world, outside))


def _reader_env(world: World, folder: Path) -> dict[str, str]:
    assert world.web is not None
    env = {**world.env, "URL": world.web.url, "TOKEN": world.token}
    if shutil.which("curl") is None:
        shim = folder / "curl"
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {CURL} "$@"\n')
        shim.chmod(0o755)
        env["PATH"] = f"{folder}:{env['PATH']}"
    return env


def _ids(block: Block) -> str:
    return block.where


@pytest.mark.parametrize("block", tagged("run", "python"), ids=_ids)
def test_python_that_is_shown_runs(reader: Reader, block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        env=reader.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{block.where}\n{done.stderr}"


@pytest.mark.parametrize("page", sorted({block.page for block in tagged("run", "sh")}))
def test_commands_that_are_shown_run(reader: Reader, page: str) -> None:
    """In order, as a reader would. A shape shows the last answer; a refusal must be shown."""
    refused: Block | None = None
    for block in blocks(page):
        if block.tag == "run" and block.language == "sh":
            assert refused is None, f"{refused and refused.where} is refused: {reader.answers[-1]}"
            said = reader.sh(block)
            if not said.startswith("{"):
                continue
            refused = block if "request_id" in reader.answers[-1] else None
            _follow(reader, reader.answers[-1])
        elif block.value and block.tag.startswith("shape="):
            assert _has(reader.answers[-1], json.loads(block.text)), block.where
            refused = None
    assert refused is None, f"{refused and refused.where} is refused: {reader.answers[-1]}"


def _follow(reader: Reader, answer: dict[str, Any]) -> None:
    """A run that was started is followed to its end: one refund."""
    if answer.get("status") != "queued":
        return
    done = reader.world.client.follow(answer["id"], until=is_over, seconds=30, every=0.05)
    assert done["status"] == "completed", done
    assert len(reader.world.refunds(done["input"]["order_id"])) == 1


def _has(answer: Any, shown: Any) -> bool:
    """Whether every member that is shown is there; texts with … stand for any text."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            name in answer and _has(answer[name], value) for name, value in shown.items()
        )
    if isinstance(shown, list):
        return len(answer) == len(shown) and all(map(_has, answer, shown))
    if isinstance(shown, str) and "…" in shown:
        return isinstance(answer, str) and answer.startswith(shown.partition("…")[0])
    return type(answer) is type(shown) and (isinstance(shown, int) or answer == shown)


def test_the_tools_that_are_shown_have_no_findings(reader: Reader) -> None:
    assert "no issues" in manage(reader.world, "check", "--fail-level", "WARNING")


def test_the_tool_of_the_readme_waits_for_a_person_and_refunds_once(reader: Reader) -> None:
    """Its agent, its approval rule, its preview, and its probe after a lost reply."""
    world = reader.world
    order = "ORD-3001"
    world.fault(mode="commit_then_drop", times=1, order_id=order)
    call = {"tool": "shop__refund", "arguments": {"order_id": order, "amount": "60.00 EUR"}}
    body = {"script": [[call], ["done"]]}
    run_id = str(world.client.start_run(agent="shop", run_input=body, key=order)["id"])

    world.waiting(run_id)
    assert world.refunds(order) == []
    (approval,) = world.approvals(run_id)
    world.decide(approval, "APPROVE")
    run = world.finish(run_id)

    assert run["status"] == "completed", run
    assert world.states(run_id) == [("shop.refund", "SUCCEEDED")]
    assert len(world.refunds(order)) == 1


def test_the_agent_of_the_guide_refuses_another_input(reader: Reader) -> None:
    said = reader.sh(
        Block("test", 0, "sh", "run", _POST % '{"agent": "shop_desk", "input": {"order": 1}}')
    )
    assert json.loads(said)["code"] == "invalid_input"


_POST = """
curl -s "$URL/api/v1/runs" -H "Authorization: Bearer $TOKEN" \
  -H "Content-Type: application/json" -H "Idempotency-Key: guide" -d '%s'
"""
