"""A worker of threads keeps to one processor, leaves it when it is crowded, and confines no tool.

On a machine with one processor there is nothing to keep to, and that is what is checked there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.embedded import Stack
from runs.processor import Busy, where
from tests.workers import start_pool_worker, write_app
from tests.world import ROOT, World, open_world, wait_for

HERE = frozenset(os.sched_getaffinity(0))

TOOLS = '''
import subprocess, sys
from pydantic import BaseModel
from tools import Effect, ToolContext, tool

ASK = "import os; print(len(os.sched_getaffinity(0)))"


class Seen(BaseModel):
    processors: int


@tool(effect=Effect.READ)
def look(ctx: ToolContext) -> Seen:
    """Ask a process of its own how many processors it may use."""
    said = subprocess.run([sys.executable, "-c", ASK], capture_output=True, check=True)
    return Seen(processors=int(said.stdout))
'''
AGENTS = """
from runs.agents import agent

agent(name="looker", version="1", instructions="Look.", tools=["looking.look"])
"""


def test_others_in_the_way_make_it_move_to_a_processor_with_room() -> None:
    assert where({0: 0.9, 1: 0.2}, here=0, mine=0.4) == 1
    assert where({0: 0.9, 1: 0.2}, here=0, mine=0.7) == 0  # almost alone
    assert where({0: 1.0, 1: 0.9}, here=0, mine=0.6) == 0  # no room there either
    assert where({0: 0.4, 1: 0.5}, here=0, mine=0.0) == 0  # this is the idlest


def test_without_room_anywhere_it_wanders_until_it_is_calm() -> None:
    assert where({0: 1.0, 1: 1.0}, here=0, mine=0.4) is None
    assert where({0: 1.0, 1: 0.9}, here=None, mine=0.6) is None
    assert where({0: 0.7, 1: 0.6}, here=None, mine=0.6) == 1
    assert where({1: 0.9, 2: 0.3}, here=0, mine=0.2) == 2  # ours is gone
    assert where({1: 0.9, 2: 0.8}, here=0, mine=0.2) is None
    assert where({}, here=0, mine=0.0) is None


def test_the_share_of_a_processor_is_what_it_was_busy_between_two_looks() -> None:
    before = Busy({0: (10.0, 100.0), 1: (5.0, 100.0)})
    now = Busy({0: (13.0, 104.0), 1: (5.0, 104.0), 7: (0.0, 0.0)})
    assert now.since(before) == {0: 0.75, 1: 0.0, 7: 0.0}


MOVING = """
import os, resource, sys, threading, time
from pathlib import Path
from runs import processor

processor.STAT = Path(sys.argv[1])
FREE = [sorted(os.sched_getaffinity(0))]

def went_by(seconds, busy):
    processor.STAT.write_text("".join(
        f"cpu{number} {int(100 * busy[number] * seconds)} 0 0"
        f" {int(100 * (1 - busy[number]) * seconds)} 0 0 0 0 0 0\\n" for number in FREE[0]))

def kept():
    return [sorted(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")]

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
first, second = FREE[0][:2]
idle = dict.fromkeys(FREE[0], 0.0)
went_by(100, idle)
assert processor.keep(order=0) == first
assert kept() == [[first]] * 2, kept()
went_by(200, idle)
processor.look()
assert kept() == [[first]] * 2, "nobody was in the way"
crowded, looks = {**dict.fromkeys(FREE[0], 0.5), first: 1.0, second: 0.0}, 200
while kept() == [[first]] * 2:
    looks += 100
    went_by(looks, crowded)
    processor.look()
assert kept() == [[second]] * 2, kept()
full = dict.fromkeys(FREE[0], 1.0)
while kept() == [[second]] * 2:
    looks += 100
    went_by(looks, full)
    processor.look()
assert kept() == FREE * 2, "there was no room anywhere"
while kept() == FREE * 2:
    looks += 100
    went_by(looks, crowded)
    processor.look()
assert kept() == [[second]] * 2, kept()
with processor.anywhere():
    assert sorted(kept()) == sorted([*FREE, [second]]), kept()
assert kept() == [[second]] * 2, kept()
processor.free()
assert kept() == FREE * 2, kept()
assert processor.keep(order=1) == second
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
files = []
try:
    while True:
        files.append(open(os.devnull))
except OSError:
    processor.look()  # it cannot read the kernel's figures, and the beat goes on
files.clear()
assert kept() == FREE * 2, "without the kernel's figures it is left alone"
"""


def test_every_thread_stays_on_one_moves_with_it_and_may_leave_for_a_call(tmp_path: Path) -> None:
    if len(HERE) < 2:
        assert _said("from runs import processor; print(processor.keep(order=3))") == "None"
        return
    assert _said(MOVING, str(tmp_path / "stat")) == ""


def _said(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("processor")
    write_app(folder, "looking", tools=TOOLS, agents=AGENTS)
    path = os.pathsep.join([str(ROOT), str(folder)])
    # No beat falls into these tests, so that they do not ask how busy the machine is.
    beat = {"AGENTCORE_BEAT_PERIOD": "300", "AGENTCORE_WORKER_DEAD_AFTER": "600"}
    with open_world(stack, folder, apps=("looking",), PYTHONPATH=path, **beat) as made:
        yield made


def test_workers_of_threads_keep_to_different_processors_and_their_tools_to_none(
    world: World,
) -> None:
    world.start_web()
    first = world.start_worker("w1", queues="compile")
    second = world.start_worker("w2")
    third = world.start_worker("w3", queues="compile")
    found = [_kept(service.process.pid) for service in (first, second, third)]

    assert all(len(kept) == 1 for kept in found)
    assert len(set(found[0] + found[1])) == min(2, len(HERE))

    script = [[{"tool": "looking__look", "arguments": {}}], ["seen"]]
    run_id = str(
        world.client.start_run(agent="looker", run_input={"script": script}, key="1")["id"]
    )
    world.finish(run_id)
    ((result,),) = world.query("SELECT result FROM runs_actionjournal")
    assert result["processors"] == len(HERE), json.dumps(result)


def test_what_is_switched_off_or_forks_is_left_alone(world: World) -> None:
    forking = start_pool_worker(world, "w4", queues="compile", pool="processes", slots=2)
    world.env["AGENTCORE_ONE_PROCESSOR"] = "0"
    off = world.start_worker("w5", queues="compile")
    assert [_kept(service.process.pid) for service in (forking, off)] == [tuple(sorted(HERE))] * 2


def _kept(pid: int) -> tuple[int, ...]:
    """The processors of all threads of a worker, once they are the same for all of them."""

    def of_threads() -> set[tuple[int, ...]]:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        return {tuple(sorted(os.sched_getaffinity(thread))) for thread in threads}

    wait_for(lambda: len(of_threads()) == 1, seconds=10, what="threads that agree")
    return of_threads().pop()
