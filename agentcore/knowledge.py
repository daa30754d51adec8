"""What a run knows, supposes and intends: three types, so that none can be taken for another.

A fact was observed and has a row of its own (Evidence); a hypothesis is the model's word (the
text of a turn); a planned action is a row of the journal, whether or not it was ever carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentcore.values import Json


@dataclass(frozen=True, slots=True)
class Fact:
    """Something observed. `ref` names its row; `verified` says that the source vouches for it."""

    ref: str
    turn: int
    source: str
    about: str
    version: str
    observed_at: str
    verified: bool
    sha256: str

    def shown(self) -> dict[str, Json]:
        return {
            "ref": self.ref,
            "turn": self.turn,
            "source": self.source,
            "about": self.about,
            "version": self.version,
            "observed_at": self.observed_at,
            "verified": self.verified,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Something the model said beside its calls. Nobody has checked it."""

    turn: int
    text: str

    def shown(self) -> dict[str, Json]:
        return {"turn": self.turn, "text": self.text}


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """A call that the model proposed and what became of it; `arguments` as people may see them.

    `effect_known` is False where nobody could find out whether it had an effect.
    """

    turn: int
    tool: str
    arguments: str
    status: str
    observed: str
    sha256: str
    effect_known: bool = True

    def shown(self) -> dict[str, Json]:
        return {
            "turn": self.turn,
            "tool": self.tool,
            "arguments": self.arguments,
            "status": self.status,
            "observed": self.observed,
            "sha256": self.sha256,
            "effect_known": self.effect_known,
        }
