"""The refund desk as a Django app: `AGENTCORE_APPS=examples.refund_desk`."""

from __future__ import annotations

from django.apps import AppConfig


class RefundDeskConfig(AppConfig):
    """No tables; the runtime finds `agent_tools` and `agents`."""

    name = "examples.refund_desk"
    label = "refund_desk"
