"""Shapes of a run on Celery: a chain of four tasks a turn, a task a step, a turn, or a run.

Messages carry ids only. In the chain all four stages of a turn are stored, in the other shapes only
the decision and the result. `SHAPE_STORE` says how a worker stores them.
"""

from __future__ import annotations

import os
from typing import Any

from celery import chain

from bench.floor_app import announce, app
from bench.shape_stores import STORES, Write
from bench.stub.texts import decision, result
from config.broker import QUEUES

CHAIN, STEP, TURN, RUN = "chain", "step", "turn", "run"
NOTHING = "nothing"
FOUR = ("compile", "decision", "result", "observe")
TWO = ("decision", "result")
QUEUE = QUEUES[0]


def start_turn(shape: str, run: str, turn: int, turns: int) -> None:
    """Publish what begins a turn of the run, or say that it has ended."""
    if turn == turns:
        announce(run)
    elif shape == CHAIN:
        chain(*(stage.si(run, turn, turns, kind) for kind in FOUR)).apply_async()
    elif shape == STEP:
        step.apply_async((run, turn, turns, TWO[0]))
    elif shape == TURN:
        whole_turn.apply_async((run, turn, turns))
    else:
        whole_run.apply_async((run, turns))


@app.task(name="shape.stage", queue=QUEUE)
def stage(run: str, turn: int, turns: int, kind: str) -> None:
    """A task of a chain; the last one starts the next turn."""
    _store(run, turn, turns, kind, FOUR)
    if kind == FOUR[-1]:
        start_turn(CHAIN, run, turn + 1, turns)


@app.task(name="shape.step", queue=QUEUE)
def step(run: str, turn: int, turns: int, kind: str) -> None:
    """A decision, which sends for its result if it has one, or a result."""
    _store(run, turn, turns, kind, TWO)
    if kind == TWO[0] and turn + 1 < turns:
        step.apply_async((run, turn, turns, TWO[1]))
    else:
        start_turn(STEP, run, turn + 1, turns)


@app.task(name="shape.turn", queue=QUEUE)
def whole_turn(run: str, turn: int, turns: int) -> None:
    """A decision and its result."""
    for kind in TWO:
        _store(run, turn, turns, kind, TWO)
    start_turn(TURN, run, turn + 1, turns)


@app.task(name="shape.run", queue=QUEUE)
def whole_run(run: str, turns: int) -> None:
    """Every decision and every result."""
    for turn in range(turns):
        for kind in TWO:
            _store(run, turn, turns, kind, TWO)
    announce(run)


def _store(run: str, turn: int, turns: int, kind: str, stages: tuple[str, ...]) -> None:
    store = STORES.get(os.environ["SHAPE_STORE"])
    if store is None:
        return
    payload = _payload(run, turn, turns, kind)
    if payload is not None or stages is FOUR:
        revision = len(stages) * turn + stages.index(kind)
        store(Write(run, revision, turn, kind, payload or {}))


def _payload(run: str, turn: int, turns: int, kind: str) -> dict[str, Any] | None:
    """What a stage has to store. None for the result of the last turn, which calls no tool."""
    if kind not in TWO:
        return {"turn": turn}
    decided = decision(run=run, turn=turn, turns=turns)
    if kind == TWO[0]:
        return decided
    return result(decided) if decided["tool"] else None
