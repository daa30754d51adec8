"""The agent of the lookup desk."""

from __future__ import annotations

from runs.agents import agent

agent(name="lookup_desk", version="1", instructions="Transfer.", tools=["lookup_desk.transfer"])
