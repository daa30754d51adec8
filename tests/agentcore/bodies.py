"""The recorded and hand-made reply bodies in `tests/data/responses`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "responses"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def recorded(name: str) -> dict[str, Any]:
    """The whole record: `source`, `expect`, `status`, `headers`, `body`."""
    record: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return record


def body(name: str) -> str:
    """The body text of a record, as it stands on the wire."""
    value = recorded(name)["body"]
    return value if isinstance(value, str) else json.dumps(value)


def reply(*items: dict[str, Any], **fields: Any) -> str:
    """A completed reply with these output items."""
    return json.dumps(
        {"id": "resp_1", "object": "response", "status": "completed", "output": items, **fields}
    )


def call(call_id: str = "call_1", name: str = "desk__read", **fields: Any) -> dict[str, Any]:
    """A complete function call item."""
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}
    return {**item, "status": "completed", **fields}


def message(text: str, **fields: Any) -> dict[str, Any]:
    """An assistant message item."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content, **fields}
