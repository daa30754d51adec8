"""What the model is shown, from rows: compiled for the next turn, and rebuilt for any past one.

Whatever is decided for a request (what is left of the budget, how far the history is compacted)
is part of the turn's manifest, and everything else stands in rows that do not change any more. So
the same rows give the same bytes at any time; nothing keeps a second copy of the history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter
from typing import Any
from uuid import UUID

from agentcore.canonical import sha256_hex
from agentcore.compaction import CHARS_A_TOKEN, ContextPolicy, Past
from agentcore.context import (
    ContextError,
    ContextPack,
    Earlier,
    Exchange,
    Frame,
    compile_context,
    request_bytes,
)
from agentcore.knowledge import Fact, PlannedAction
from agentcore.lifecycle import ActionState
from agentcore.observed import unfold
from runs import secrets
from runs.account_models import Evidence
from runs.models import ActionJournal, Run, Turn
from runs.view import View, load_view

NO_DECISION = "DROPPED"
"""The decision of a turn whose call gave none and is not asked again: no part of the history."""
SESSION_RUNS = 20
"""Earlier runs of a session that are shown at most, the newest."""
SESSION_SHARE = 4
"""Together they take at most this part of a context, so that the run itself has room."""
HEAD = 200
"""Characters that a summary keeps of arguments, observations and the model's words."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The input of a past turn. `sha256` is of `data`; `stored` is what the turn's row says."""

    turn: Turn
    data: bytes
    sha256: str
    stored: str

    @property
    def matches(self) -> bool:
        return self.sha256 == self.stored


def policy_of(spec: Mapping[str, Any]) -> ContextPolicy:
    """The context policy of a frozen agent version."""
    stored = spec.get("context") or {}
    return ContextPolicy(**stored)


def exchanges_of(view: View, *, before: int, since: int = 0) -> list[Exchange]:
    """The finished turns from `since` to before `before` as they are shown whole, oldest first."""
    known = view.history.exchanges
    turns = _finished(view, before=before, since=since)
    unknown = [turn.number for turn in turns if turn.number not in known]
    if not unknown:
        return [known[turn.number] for turn in turns]
    actions = _by_turn(view.actions, unknown[0])
    return [known.get(turn.number) or _whole(view, turn, actions[turn.number]) for turn in turns]


def past_of(view: View, *, before: int) -> Past | None:
    """What stands for the finished turns before turn `before`; None when there are none.

    Kept, as it only changes when the boundary moves: all facts of these turns are there by then.
    """
    known = view.history.past
    if known is not None and known[0] == before:
        return known[1]
    turns = _finished(view, before=before)
    if not turns:
        return None
    actions, facts = _by_turn(view.actions), _facts(view, before)
    exchanges = [
        _summarised(turn, actions[turn.number], facts.get(turn.number, [])) for turn in turns
    ]
    past = Past.of(exchanges, policy_of(view.agent.spec))
    if past is not None and before <= view.history.through + 1:
        view.history.compact(before, past)
    return past


def _finished(view: View, *, before: int, since: int = 0) -> list[Turn]:
    """Turns with a decision, from `since` to before `before`."""
    first = bisect_left(view.turns, since, key=attrgetter("number"))
    return [
        turn
        for turn in view.turns[first:]
        if turn.number < before and turn.decision not in ("", NO_DECISION)
    ]


def _whole(view: View, turn: Turn, actions: list[ActionJournal]) -> Exchange:
    """An exchange to be shown whole; kept once its rows are settled."""
    made = Exchange(
        turn=turn.number,
        output=turn.output,
        observations=_observations(actions),
        note=turn.problem,
        invalid=turn.decision == "INVALID",
    )
    if turn.number <= view.history.through:
        view.history.show(made)
    return made


def _summarised(turn: Turn, actions: list[ActionJournal], facts: list[Fact]) -> Exchange:
    """What a summary needs of an exchange."""
    return Exchange(
        turn=turn.number,
        output="",
        note=turn.problem,
        invalid=turn.decision == "INVALID",
        said=turn.said[:HEAD],
        actions=tuple(_planned(action) for action in actions),
        facts=tuple(facts),
    )


def _observations(actions: list[ActionJournal]) -> tuple[tuple[str, str], ...]:
    return tuple((action.call_id, observation_of(action)) for action in actions)


def _by_turn(
    actions: Sequence[ActionJournal], since: int = 0
) -> defaultdict[int, list[ActionJournal]]:
    """The actions by turn in call order, from turn `since` on; of an edited call the last edit,
    which answers it.
    """
    last: dict[tuple[int, int], ActionJournal] = {}
    for action in takewhile(lambda row: row.turn >= since, reversed(actions)):
        known = last.get((action.turn, action.ordinal))
        if known is None or action.edit > known.edit:
            last[action.turn, action.ordinal] = action
    found: defaultdict[int, list[ActionJournal]] = defaultdict(list)
    for (turn, _), action in sorted(last.items()):
        found[turn].append(action)
    return found


def observation_of(action: ActionJournal) -> str:
    """What the model was told about a call. The row keeps it without a second copy of the result.

    Raises `ContextError` when the result is not the one that was shown.
    """
    try:
        return unfold(action.observation or "", action.result)
    except ValueError as error:
        raise ContextError(f"action {action.id}: {error}") from None


def _planned(action: ActionJournal) -> PlannedAction:
    seen = observation_of(action)
    return PlannedAction(
        turn=action.turn,
        tool=action.tool,
        arguments=secrets.shown_arguments(action)[:HEAD],
        status=action.state.lower(),
        observed=seen[:HEAD],
        sha256=sha256_hex(seen),
        effect_known=action.state != ActionState.ABANDONED,
    )


def _facts(view: View, before: int) -> dict[int, list[Fact]]:
    rows = Evidence.objects.filter(run_id=view.run.id, turn__lt=before).order_by("turn", "id")
    found: defaultdict[int, list[Fact]] = defaultdict(list)
    for row in rows:
        found[row.turn].append(fact_of(row))
    return found


def fact_of(row: Evidence) -> Fact:
    """A row of evidence as the value that a context shows."""
    return Fact(
        ref=f"ev_{row.id.hex}",
        turn=row.turn,
        source=row.source,
        about=row.about,
        version=row.version,
        observed_at=row.observed_at.isoformat(),
        verified=row.verified,
        sha256=row.sha256,
    )


def choose_earlier(view: View) -> tuple[tuple[str, ...], int]:
    """The runs of the session that this run is shown, oldest first, and how many are left out.

    Chosen for the first turn and kept: finished ones of the same agent, since who may start this
    agent may perhaps not see what others said. Their rows do not change any more.
    """
    run = view.run
    if view.turns:
        frame = Frame.read(view.turns[-1].manifest)
        return frame.earlier, frame.earlier_left_out
    if run.session_id is None:
        return (), 0
    rows = Run.objects.filter(
        tenant=run.tenant,
        session_id=run.session_id,
        agent_version__name=view.agent.name,
        ended_at__isnull=False,
        created_at__lt=run.created_at,
    )
    room = policy_of(view.agent.spec).limit * CHARS_A_TOKEN // SESSION_SHARE
    chosen: list[str] = []
    for row in rows.order_by("-created_at", "-id")[:SESSION_RUNS]:
        room -= _earlier(row).size
        if room < 0:
            break
        chosen.append(row.id.hex)
    return tuple(reversed(chosen)), rows.count() - len(chosen)


def earlier_of(ids: Sequence[str]) -> list[Earlier]:
    """The earlier runs that a frame names, in its order."""
    rows = {row.id.hex: row for row in Run.objects.filter(id__in=ids)} if ids else {}
    return [_earlier(rows[item]) for item in ids]


def _earlier(run: Run) -> Earlier:
    return Earlier(asked=run.input, answered=run.output, ended=run.state.lower())


def compile_turn(view: View, *, number: int, frame: Frame) -> ContextPack:
    """The request of turn `number`: the same rows and the same frame give the same bytes."""
    spec = view.agent.spec
    return compile_context(
        instructions=spec["instructions"],
        model=spec["model"],
        settings=spec["settings"],
        tools=[tool["function"] for tool in spec["tools"]],
        run_input=view.run.input,
        exchanges=exchanges_of(view, before=number, since=frame.compacted_before),
        frame=frame,
        past=past_of(view, before=frame.compacted_before) if frame.compacted_before else None,
        earlier=earlier_of(frame.earlier),
        secrets=secrets.of_the_runtime(),
    )


def rebuild(*, run_id: UUID, turn: int) -> Rebuilt:
    """The exact input of a turn, built again from rows. Raises `Turn.DoesNotExist`, and
    `ContextError` for a manifest of another version.
    """
    view = load_view(run_id)
    row = next((item for item in view.turns if item.number == turn), None)
    if row is None:
        raise Turn.DoesNotExist(f"run {run_id} has no turn {turn}")
    pack = compile_turn(view, number=turn, frame=Frame.read(row.manifest))
    data = request_bytes(pack.request)
    return Rebuilt(row, data, sha256_hex(data), row.request_sha256)
