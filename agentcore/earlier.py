"""What was asked and answered: the input of a run, and earlier runs of its session."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agentcore.canonical import clean_text
from agentcore.observed import cap_text
from agentcore.replay import Item
from agentcore.values import Json


@dataclass(frozen=True, slots=True)
class Earlier:
    """A finished run of the same session: what was asked, and the answer; None when it gave none.

    `ended`: its terminal state, in lower case.
    """

    asked: Json
    answered: Json
    ended: str

    def items(self) -> list[Item]:
        """The question in the user's role, the answer in the model's."""
        asked = user_item(self.asked, of="an earlier run of this session")
        if self.answered is None:
            text = f"Message from the runtime:\nThat run ended without an answer: {self.ended}."
            return [asked, {"type": "message", "role": "developer", "content": text}]
        plain = isinstance(self.answered, dict) and set(self.answered) == {"text"}
        said = self.answered["text"] if plain else _pretty(self.answered)
        content = clean_text(cap_text(str(said)))
        return [asked, {"type": "message", "role": "assistant", "content": content}]

    @property
    def size(self) -> int:
        """Characters, about: what it adds to a request."""
        return sum(len(json.dumps(item)) for item in self.items())


def user_item(run_input: Json, *, of: str = "this run") -> Item:
    """An input as one message in the user's role."""
    if isinstance(run_input, str):
        text = f"Input of {of} (text):\n{run_input}"
    else:
        text = f"Input of {of} (JSON):\n{_pretty(run_input)}"
    content = [{"type": "input_text", "text": clean_text(text)}]
    return {"type": "message", "role": "user", "content": content}


def _pretty(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1)
