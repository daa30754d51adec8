"""What schemathesis cannot know of the API.

A repeated Idempotency-Key gets the first answer again, with the id of an object that may be gone by
now: so every request that is not about the key itself gets one of its own. And nobody has the time
for long polls of half a minute.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import schemathesis

KEY = "Idempotency-Key"
VALID = re.compile(r"[!#-+\--~]{1,255}")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Give a request with a valid key a fresh one."""
    sent = (case.headers or {}).get(KEY)
    if isinstance(sent, str) and VALID.fullmatch(sent):
        case.headers[KEY] = uuid4().hex
    asked = (case.query or {}).get("wait")
    if str(asked).isdigit() and 1 < int(asked) <= 30:
        case.query["wait"] = 1
