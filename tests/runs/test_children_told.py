"""What is said of a child to others: to readers of events, to its model, to the runs above it."""

from __future__ import annotations

import io
import json
import threading
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from pydantic import BaseModel

from agentcore.budgets import Budget
from agentcore.values import Effect
from runs import outcomes
from runs.agents import AgentTool, agent, effect_of
from runs.api.catalog import tool_json
from runs.api.hub import read_pages
from runs.models import ActionJournal, Event, Run
from runs.services import receive_callback
from runs.webhooks import endpoints, sending
from tests.runs.acting import Downstream, action, state_of
from tests.runs.api_support import Api, caller, make_token
from tests.runs.callback_support import body_of, sources
from tests.runs.families import ASK, SCOPE, Family, child_of, drive_to, family, pays, says
from tests.runs.rows import unguarded
from tools import registry
from tools.guarantees import guarantee
from tools.types import REDACTED, Secret


def _three(made: Family) -> tuple[UUID, UUID, UUID]:
    """A chief, whose boss asked its helper: the ids from the top down."""
    made.boss = agent(
        name="chief", version="1", model="m", instructions="x",
        tools=[AgentTool(agent="boss", effect=Effect.WRITE, scopes=(SCOPE,))],
        budget=Budget(turns=20, actions=40),
    )  # fmt: skip
    top = made.run()
    says(top, ("agents__boss", {"task": "x"}))
    drive_to(top)
    middle = child_of(top).id
    says(middle, ASK)
    drive_to(middle)
    return top, middle, child_of(middle).id


# --- events and webhooks -------------------------------------------------------------------


def _name(run_id: UUID) -> str:
    return f"run_{run_id.hex}"


def test_the_events_of_a_child_name_its_parent_and_root(shop: Downstream) -> None:
    with family(shop) as made:
        top, middle, lowest = _three(made)
    api = Api(make_token(tenant="acme"))
    wanted = {
        _name(top): (None, None),
        _name(middle): (_name(top), _name(top)),
        _name(lowest): (_name(middle), _name(top)),
    }
    feed = api.get("/events", limit="100").json()["data"]
    assert {event["run"] for event in feed} == set(wanted)
    assert {event["run"]: (event["parent"], event["root"]) for event in feed} == wanted
    for run, kin in wanted.items():
        for event in api.get(f"/runs/{run}/events").json()["data"]:
            assert (event["parent"], event["root"]) == kin
    pages = read_pages([(run_id, 0) for run_id in (top, middle, lowest)])
    for (run_id, _), page in pages.items():
        lines = [line[6:] for line in page.chunk.split(b"\n") if line.startswith(b"data: ")]
        told = {(event["parent"], event["root"]) for event in map(json.loads, lines)}
        assert told == {wanted[_name(run_id)]}


def test_a_webhook_of_a_child_names_its_parent_and_root(shop: Downstream) -> None:
    asks = caller(tenant="acme")
    endpoint = endpoints.create_endpoint(caller=asks, url="https://hooks.example.com/a")
    with family(shop) as made:
        top, middle, lowest = _three(made)
    told = {
        row.payload["data"]["run"]: (row.payload["data"]["parent"], row.payload["data"]["root"])
        for row in sending.claim_due(limit=50)
        if row.endpoint == endpoint
    }
    assert told == {
        _name(top): (None, None),
        _name(middle): (_name(top), _name(top)),
        _name(lowest): (_name(middle), _name(top)),
    }


# --- the tool that a call of an agent is ---------------------------------------------------


def test_a_call_of_an_agent_is_shown_with_what_that_agent_may_do(shop: Downstream) -> None:
    with family(shop) as made:
        _three(made)
        agent(name="reader", version="1", model="m", instructions="x", tools=[])
        asks = [AgentTool(agent="reader")]
        agent(name="asker", version="1", model="m", instructions="x", tools=asks)
        shown = {spec.name: tool_json(spec) for spec in registry.all_tools() if spec.agent}
        hints = {
            name: (tool["effect"], tool["annotations"]["readOnlyHint"])
            for name, tool in shown.items()
        }
        assert hints == {
            "agents.helper": ("write", False),
            "agents.boss": ("write", False),
            "agents.reader": ("read", True),
        }
        helper = registry.get("agents.helper")
        assert helper is not None
        assert (helper.effect, effect_of(helper)) == (Effect.READ, Effect.WRITE), "the journal's"
        assert "run of another agent" in shown["agents.helper"]["guarantee"]["text"]
        assert guarantee(helper) == "run of an agent"
        said = io.StringIO()
        call_command("tools", "list", stdout=said)
        lines = {line.split()[0]: line for line in said.getvalue().splitlines() if line}
        assert lines["agents.helper"].split()[2] == "WRITE"
        people = Client()
        people.force_login(User.objects.create_superuser("olga"))
        row = people.get("/admin/tools/").content.decode().split('data-row="agents.helper"')[1]
        assert "version 1, write<" in row.split("</td>")[0]


# --- secrets -------------------------------------------------------------------------------


class Login(BaseModel):
    """What the clerk is asked with."""

    account: str
    password: Secret[str]


def test_a_secret_does_not_reach_the_child(shop: Downstream) -> None:
    """As it does not reach a run that somebody asks for."""
    with family(shop) as made:
        agent(name="clerk", version="1", model="m", instructions="x", tools=[], input=Login)
        made.boss = agent(
            name="asker", version="1", model="m", instructions="x",
            tools=[AgentTool(agent="clerk")],
        )  # fmt: skip
        run_id = made.run()
        says(run_id, ("agents__clerk", {"account": "ada", "password": "opensesame"}))
        assert drive_to(run_id) == "WAITING_CHILD"
        child, call = child_of(run_id), action(run_id)
    assert child.input == {"account": "ada", "password": REDACTED}
    assert (call.arguments or {})["password"] == "opensesame", "what was judged and hashed"


# --- the later word of a downstream --------------------------------------------------------

EVENT = outcomes.EVENT


def _accepted(shop: Downstream, run_id: UUID, *whats: str) -> list[ActionJournal]:
    """The run's model pays, which is only accepted."""
    shop.behaves = ["accepted"] * len(whats)
    says(run_id, *[pays(what) for what in whats])
    drive_to(run_id)
    return list(ActionJournal.objects.filter(run_id=run_id, tool="shop.pay").order_by("ordinal"))


def _end(*run_ids: UUID) -> None:
    for run_id in run_ids:
        says(run_id, text="It is on its way.")
        assert drive_to(run_id) == "COMPLETED"
        parent = Run.objects.get(pk=run_id).parent_id
        if parent is not None:
            drive_to(parent)


def _hears(row: ActionJournal, word: str) -> None:
    receive_callback(**body_of(None, word, idempotency_key=row.idempotency_key))


def _outcomes(*run_ids: UUID) -> list[str]:
    return [Run.objects.get(pk=run_id).business_outcome for run_id in run_ids]


@pytest.mark.requirement("R78", "R114")
@pytest.mark.parametrize(("word", "after"), [("succeeded", "settled"), ("failed", "not_done")])
def test_a_later_word_about_a_childs_write_reaches_the_runs_above(
    shop: Downstream, word: str, after: str
) -> None:
    with family(shop, accepted_is_done=True) as made:
        runs = top, middle, lowest = _three(made)
        (paid,) = _accepted(shop, lowest, "a")
        _end(lowest, middle, top)
        assert _outcomes(*runs) == ["in_progress"] * 3
        once = body_of(None, word, idempotency_key=paid.idempotency_key)
        for repeated in (False, True):
            assert receive_callback(**once).repeated is repeated
        assert _outcomes(*runs) == [after] * 3
        for run_id, child in ((top, middle), (middle, lowest)):
            event = Event.objects.get(run_id=run_id, type=EVENT)
            assert event.actor == "callback:payments"
            told = {name: event.data[name] for name in ("before", "after", "child")}
            assert told == {"before": "in_progress", "after": after, "child": str(child)}
        _hears(paid, word)
        assert Event.objects.filter(run_id=top, type=EVENT).count() == 1, "it is the same word"


@pytest.mark.requirement("R114")
def test_a_parent_is_settled_when_all_below_it_is(shop: Downstream) -> None:
    with family(shop, accepted_is_done=True) as made:
        top, middle, lowest = _three(made)
        (below,) = _accepted(shop, lowest, "a")
        _end(lowest)
        (own,) = _accepted(shop, middle, "b")
        _end(middle, top)
        _hears(below, "succeeded")
        assert _outcomes(top, middle, lowest) == ["in_progress", "in_progress", "settled"]
        _hears(own, "succeeded")
        assert _outcomes(top, middle, lowest) == ["settled"] * 3


def test_a_parent_with_a_write_of_unknown_fate_stays_uncertain(shop: Downstream) -> None:
    with family(shop, accepted_is_done=True) as made:
        top, middle, lowest = _three(made)
        (paid,) = _accepted(shop, lowest, "a")
        _end(lowest, middle, top)
        with unguarded():
            Run.objects.filter(pk=middle).update(business_outcome="uncertain")
        _hears(paid, "failed")
        assert _outcomes(top, middle, lowest) == ["not_done", "uncertain", "not_done"]


def test_what_an_agent_or_a_person_said_of_a_run_stands(shop: Downstream) -> None:
    with family(shop, accepted_is_done=True) as made:
        runs = top, middle, lowest = _three(made)
        (paid,) = _accepted(shop, lowest, "a")
        _end(lowest, middle, top)
        words = ("complaint_closed", "in_progress", "paid_in_cash")
        for run_id, word in zip(runs, words, strict=True):
            if word != "in_progress":
                outcomes.record_business_result(
                    run_id=run_id, outcome=word, source="desk", detail="", actor="user:olga"
                )
        _hears(paid, "succeeded")
        assert _outcomes(*runs) == ["complaint_closed", "settled", "paid_in_cash"]


def test_a_parent_that_has_not_ended_looks_again(
    shop: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word comes when the end of the parent is planned and not yet written."""
    with family(shop, accepted_is_done=True) as made:
        run_id = made.run()
        says(run_id, ASK)
        drive_to(run_id)
        child = child_of(run_id).id
        (paid,) = _accepted(shop, child, "a")
        _end(child)
        known, heard = outcomes.business_outcome, list[threading.Thread]()

        def planned(*args: Any, **options: Any) -> str:
            said = known(*args, **options)
            if not heard:
                heard.append(threading.Thread(target=_beside, args=(paid,)))
                heard[0].start()
                heard[0].join(20)
            return said

        monkeypatch.setattr(outcomes, "business_outcome", planned)
        says(run_id, text="It is on its way.")
        assert drive_to(run_id) == "COMPLETED"
        assert heard, "else nothing came in between"
        assert (state_of(child), _outcomes(run_id, child)) == ("COMPLETED", ["settled"] * 2)


def _beside(paid: ActionJournal) -> None:
    try:
        _hears(paid, "succeeded")
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def _payments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source may call back, in every thread."""
    with sources():
        known = settings.AGENTCORE_OPTIONS
    monkeypatch.setattr(settings, "AGENTCORE_OPTIONS", known)
