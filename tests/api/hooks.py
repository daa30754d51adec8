"""What schemathesis cannot know of the API.

A repeated Idempotency-Key gets the first answer again, with the id of an object that may be gone by
now: so every request that is not about the key itself gets one of its own. Nobody has the time
for long polls of half a minute. An agent that was switched off is switched on again. And what is
asked or said about an action is about one whose fate is unknown, else it would never be more than a
404.
"""

from __future__ import annotations

import itertools
import os
import re
import urllib.request
from typing import Any
from uuid import uuid4

import schemathesis

KEY = "Idempotency-Key"
SWITCHED_OFF = re.compile(r"/api/v1/agents/[^/]+/pause$")
ACTION = re.compile(r"act_[0-9a-f]{32}")
UNKNOWN = [name for name in os.environ.get("UNKNOWN_ACTIONS", "").split(",") if name]
_next = itertools.cycle(UNKNOWN[1:])
VALID = re.compile(r"[!#-+\--~]{1,255}")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Give a request with a valid key a fresh one."""
    sent = (case.headers or {}).get(KEY)
    if isinstance(sent, str) and VALID.fullmatch(sent):
        case.headers[KEY] = uuid4().hex
    _name_an_unknown_one(case)
    asked = (case.query or {}).get("wait")
    if str(asked).isdigit() and 1 < int(asked) <= 30:
        case.query["wait"] = 1


def _name_an_unknown_one(case: Any) -> None:
    """The first one is only asked about; the others are settled in turn, and then named again."""
    path, names = case.operation.path, case.path_parameters or {}
    if UNKNOWN and path.endswith(("/probe", "/reconciliations")):
        for name, value in names.items():
            if isinstance(value, str) and ACTION.fullmatch(value):
                names[name] = UNKNOWN[0] if path.endswith("/probe") else next(_next)


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Switch an agent on again that a request has switched off: every start after it would be
    answered with 503, which is right and tells nothing."""
    url = str(response.request.url).split("?", maxsplit=1)[0]
    if response.status_code == 200 and SWITCHED_OFF.search(url):
        request = urllib.request.Request(
            f"{url.removesuffix('/pause')}/resume",
            b'{"reason": "the check goes on"}',
            {
                "Authorization": f"Bearer {os.environ['API_TOKEN']}",
                "Content-Type": "application/json",
                KEY: uuid4().hex,
            },
        )
        with urllib.request.urlopen(request, timeout=20) as reply:
            reply.read()
