"""Allow, deny or ask: the verdict on one proposed action, from values that others computed.

Evaluated before the pause and again in the transaction that starts the action. The first rule of
the table that applies decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from agentcore.canonical import canonical_json, sha256_hex
from agentcore.guardrails import Broken, Refused
from agentcore.guardrails import Verdict as GuardVerdict
from agentcore.values import Contract, Effect, NoContract

VerdictKind = Literal["ALLOW", "DENY", "ASK"]

RULES: tuple[tuple[str, VerdictKind, str], ...] = (
    ("not_offered", "DENY", "the agent version does not offer the tool"),
    ("missing_scopes", "DENY", "the run lacks a scope that the tool requires"),
    ("write_without_contract", "DENY", "a write declares no contract"),
    ("guardrail_refused", "DENY", "a guardrail of the agent refuses"),
    ("ungrounded", "DENY", "nothing that was given or observed supports an identifier"),
    ("guardrail_broken", "ASK", "a guardrail of the agent could not be asked"),
    ("read", "ALLOW", "a read asks nobody"),
    ("irreversible", "ASK", "the effect cannot be undone"),
    ("no_contract", "ASK", "the downstream guarantees nothing about a repeat"),
    ("tool_rule", "ASK", "the tool's own approval rule asks"),
    ("default", "ALLOW", "no rule objects"),
)
POLICY_VERSION = sha256_hex(canonical_json([list(rule) for rule in RULES]))[:12]
"""Changes when the table changes; stored with every verdict and bound into every approval."""

_KINDS: dict[str, VerdictKind] = {name: kind for name, kind, _ in RULES}
_REASONS = {name: text for name, _, text in RULES}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rule` names what decided; `role`, `count` and `ttl` say who must approve, for ASK only."""

    kind: VerdictKind
    rule: str
    version: str
    reason: str
    role: str = ""
    count: int = 0
    ttl: timedelta | None = None


def evaluate(
    *,
    tool: str,
    effect: Effect,
    contract: Contract | None,
    offered: bool,
    missing_scopes: Sequence[str],
    asks: bool,
    rule: str,
    role: str,
    count: int,
    ttl: timedelta | None,
    guardrail: GuardVerdict | None = None,
    ungrounded: Sequence[str] = (),
) -> Verdict:
    """The verdict on one action of `tool`.

    `offered`: the frozen agent version lists the tool. `asks`, `rule`, `role`, `count`, `ttl`:
    what the tool's approval rule answered for these arguments. At least one person is asked.
    `guardrail`: what the agent's guardrails said; `ungrounded`: parameters that were guessed.
    """
    name = (
        _barred(effect, contract, offered, missing_scopes)
        or _checked(guardrail, ungrounded)
        or _rule(effect, contract, asks)
    )
    kind = _KINDS[name]
    reason = f"{tool}: {_REASONS[name]}"
    if name == "missing_scopes":
        reason += f" ({', '.join(missing_scopes)})"
    elif name == "ungrounded":
        reason += f" ({', '.join(ungrounded)}): ask for it instead of guessing"
    elif isinstance(guardrail, Refused | Broken) and name.startswith("guardrail"):
        reason += f" ({guardrail.name}: {guardrail.reason})"
    if kind != "ASK":
        return Verdict(kind, name, POLICY_VERSION, reason)
    shown = rule if name == "tool_rule" and rule else name
    return Verdict(kind, shown, POLICY_VERSION, reason, role, max(count, 1), ttl)


def _barred(
    effect: Effect, contract: Contract | None, offered: bool, missing_scopes: Sequence[str]
) -> str:
    if not offered:
        return "not_offered"
    if missing_scopes:
        return "missing_scopes"
    return "write_without_contract" if effect.is_write and contract is None else ""


def _checked(guardrail: GuardVerdict | None, ungrounded: Sequence[str]) -> str:
    if isinstance(guardrail, Refused):
        return "guardrail_refused"
    if ungrounded:
        return "ungrounded"
    return "guardrail_broken" if isinstance(guardrail, Broken) else ""


def _rule(effect: Effect, contract: Contract | None, asks: bool) -> str:
    if not effect.is_write:
        return "read"
    if effect is Effect.WRITE_IRREVERSIBLE:
        return "irreversible"
    if isinstance(contract, NoContract):
        return "no_contract"
    return "tool_rule" if asks else "default"
