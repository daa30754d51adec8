"""Switching an agent off and on again."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from runs import switches
from runs.api import docs
from runs.api.asking import body_of, no_parameters
from runs.api.auth import user_of
from runs.api.base import ApiView
from runs.api.catalog import AGENT_NAME, Agent, agent_or_404, agents_json
from runs.api.schemas import Question, example
from runs.controls import AGENT


class SwitchReason(Question):
    """Why; operators are shown it."""

    model_config = example(reason="It refunds the wrong orders.")

    reason: Annotated[str, StringConstraints(min_length=1, max_length=500)]


class AgentPauseView(ApiView):
    """`/agents/{name}/pause`"""

    scopes = {"POST": "agents:operate"}

    @docs.operation(
        "pause_agent",
        summary="Switch an agent off",
        description="For every tenant, until it is switched on again: no run of it begins "
        "(`agent_paused`), and live runs are suspended before their next call. The same again "
        "changes the reason.",
        tag="agents",
        request=SwitchReason,
        params=[AGENT_NAME],
        ok={200: (Agent, "The agent, off.")},
        problems={404: "`not_found`"},
    )
    def post(self, request: Request, name: str) -> Response:
        return _switched(request, name, off=True)


class AgentResumeView(ApiView):
    """`/agents/{name}/resume`"""

    scopes = {"POST": "agents:operate"}

    @docs.operation(
        "resume_agent",
        summary="Switch an agent on again",
        description="Its runs that were suspended by the switch go on by themselves.",
        tag="agents",
        request=SwitchReason,
        params=[AGENT_NAME],
        ok={200: (Agent, "The agent, on.")},
        problems={404: "`not_found`"},
    )
    def post(self, request: Request, name: str) -> Response:
        return _switched(request, name, off=False)


def _switched(request: Request, name: str, *, off: bool) -> Response:
    no_parameters(request)
    asked = body_of(request, SwitchReason)
    agent, person = agent_or_404(request, name), user_of(request).decider
    switch = switches.switch_off if off else switches.switch_on
    switch(kind=AGENT, name=agent.name, by=person, reason=asked.reason)
    return Response(agents_json([agent])[0])
