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
    ("switched_off", "DENY", "the tool is switched off"),
    ("missing_scopes", "DENY", "the run lacks a scope that the tool requires"),
    ("write_without_contract", "DENY", "a write declares no contract"),
    ("guardrail_refused", "DENY", "a guardrail of the agent refuses"),
    ("ungrounded", "DENY", "nothing that was given or observed supports an identifier"),
    ("guardrail_broken", "ASK", "a guardrail of the agent could not be asked"),
    ("read", "ALLOW", "a read asks nobody"),
    ("edited", "ASK", "a person changed the arguments, and another one has to look at them"),
    ("irreversible", "ASK", "the effect cannot be undone"),
    ("no_contract", "ASK", "the downstream guarantees nothing about a repeat"),
    ("tool_rule", "ASK", "the tool's own approval rule asks"),
    ("untrusted_content", "ASK", "the run has read what strangers wrote"),
    ("default", "ALLOW", "no rule objects"),
)
POLICY_VERSION = sha256_hex(canonical_json([list(rule) for rule in RULES]))[:12]
"""Changes when the table changes; stored with every verdict and bound into every approval."""

_KINDS: dict[str, VerdictKind] = {name: kind for name, kind, _ in RULES}
_REASONS = {name: text for name, _, text in RULES}


LADDER = ("agent_approver", "agent_senior_approver", "agent_admin")
"""The groups of the console that may decide, the higher the later."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rule` names what decided; `role`, `count` and `ttl` say who must approve, for ASK only.

    `role` may name several groups with commas: one person must be in each. `high_risk` asks for
    the permission to decide such, and for a look of its own at each action.
    """

    kind: VerdictKind
    rule: str
    version: str
    reason: str
    role: str = ""
    count: int = 0
    ttl: timedelta | None = None
    high_risk: bool = False


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
    switched_off: str = "",
    edited: bool = False,
    untrusted: bool = False,
) -> Verdict:
    """The verdict on one action of `tool`.

    `offered`: the frozen agent version lists the tool. `asks`, `rule`, `role`, `count`, `ttl`:
    what the tool's approval rule answered for these arguments. At least one person is asked.
    `guardrail`: what the agent's guardrails said; `ungrounded`: parameters that were guessed.
    `switched_off`: why an operator switched the tool off, "" while it is on; `edited`: a person
    changed the arguments; `untrusted`: the run has read what strangers wrote.
    """
    name = (
        _barred(effect, contract, offered, missing_scopes, switched_off)
        or _checked(guardrail, ungrounded)
        or _rule(effect, contract, asks, edited=edited, untrusted=untrusted)
    )
    kind = _KINDS[name]
    reason = f"{tool}: {_REASONS[name]}"
    if name == "missing_scopes":
        reason += f" ({', '.join(missing_scopes)})"
    elif name == "switched_off":
        reason += f" ({switched_off})"
    elif name == "ungrounded":
        reason += f" ({', '.join(ungrounded)}): ask for it instead of guessing"
    elif isinstance(guardrail, Refused | Broken) and name.startswith("guardrail"):
        reason += f" ({guardrail.name}: {guardrail.reason})"
    if kind != "ASK":
        return Verdict(kind, name, POLICY_VERSION, reason)
    shown = rule if name == "tool_rule" and rule else name
    risk = untrusted or count > 1 or is_high_role(role) or _cannot_be_mended(effect, contract)
    return Verdict(kind, shown, POLICY_VERSION, reason, role, max(count, 1), ttl, risk)


def is_high_role(role: str) -> bool:
    """Whether a role (or one of several) stands above the first step of the ladder."""
    return any(name.strip() in LADDER[1:] for name in role.split(","))


def _cannot_be_mended(effect: Effect, contract: Contract | None) -> bool:
    """It can neither be undone nor be found out afterwards."""
    return effect is Effect.WRITE_IRREVERSIBLE and isinstance(contract, NoContract)


def _barred(
    effect: Effect,
    contract: Contract | None,
    offered: bool,
    missing_scopes: Sequence[str],
    switched_off: str,
) -> str:
    if not offered:
        return "not_offered"
    if switched_off:
        return "switched_off"
    if missing_scopes:
        return "missing_scopes"
    return "write_without_contract" if effect.is_write and contract is None else ""


def _checked(guardrail: GuardVerdict | None, ungrounded: Sequence[str]) -> str:
    if isinstance(guardrail, Refused):
        return "guardrail_refused"
    if ungrounded:
        return "ungrounded"
    return "guardrail_broken" if isinstance(guardrail, Broken) else ""


def _rule(
    effect: Effect, contract: Contract | None, asks: bool, *, edited: bool, untrusted: bool
) -> str:
    if not effect.is_write:
        return "read"
    if edited:
        return "edited"
    if effect is Effect.WRITE_IRREVERSIBLE:
        return "irreversible"
    if isinstance(contract, NoContract):
        return "no_contract"
    if asks:
        return "tool_rule"
    return "untrusted_content" if untrusted else "default"
