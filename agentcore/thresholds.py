"""What an operator adds to the policy: closed comparisons on one argument, which only tighten it.

A threshold turns ALLOW into ASK or DENY and makes an ASK stricter: more people, a further group, a
shorter time. It never makes a verdict milder, and it does not concern reads: a read asks nobody. A
comparison that cannot be made (the argument is missing, of another kind, in another currency)
counts as met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Literal

from agentcore.canonical import canonical_json, sha256_hex
from agentcore.policy import LADDER, POLICY_VERSION, Verdict, is_high_role
from agentcore.values import Effect, Json

OPS = ("always", ">", ">=", "<", "<=", "=", "!=", "in", "not in")
"""What a threshold may compare with; no expression, no code."""


class NotAThreshold(ValueError):  # noqa: N818  (a refusal, with a sentence for the operator)
    """The rule cannot mean anything."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One rule: if `argument` (a name, dots lead into objects) stands in relation `op` to
    `value`, then `verdict`. `role` "" adds no group; `ttl` None leaves the time as it is.
    """

    ref: str
    argument: str = ""
    op: str = "always"
    value: Json = None
    verdict: Literal["ASK", "DENY"] = "ASK"
    role: str = ""
    quorum: int = 1
    ttl: timedelta | None = None
    reason: str = ""


def check(threshold: Threshold) -> None:
    """Raises `NotAThreshold` for a rule that is not whole."""
    if threshold.op not in OPS:
        raise NotAThreshold(f"the operator is one of: {', '.join(OPS)}")
    if threshold.op != "always" and not threshold.argument:
        raise NotAThreshold("name the argument to compare")
    if threshold.op in ("in", "not in") and not isinstance(threshold.value, list):
        raise NotAThreshold("compare with a list of values")
    if threshold.op in (">", ">=", "<", "<=") and _amount(threshold.value) is None:
        raise NotAThreshold('compare with a number or an amount of money such as "50.00 EUR"')
    if threshold.quorum < 1 or (threshold.ttl is not None and threshold.ttl <= timedelta(0)):
        raise NotAThreshold("a quorum is at least 1 and a time is longer than nothing")
    if not threshold.reason:
        raise NotAThreshold("say why: reviewers are shown the reason")


def version_of(thresholds: Sequence[Threshold]) -> str:
    """The version of the policy of the code together with these rules."""
    if not thresholds:
        return POLICY_VERSION
    rows = [
        [t.ref, t.argument, t.op, t.value, t.verdict, t.role, t.quorum, _seconds(t.ttl)]
        for t in sorted(thresholds, key=lambda t: t.ref)
    ]
    return f"{POLICY_VERSION}+{sha256_hex(canonical_json(rows))[:12]}"


def _seconds(ttl: timedelta | None) -> int | None:
    return None if ttl is None else round(ttl.total_seconds())


def tighten(
    verdict: Verdict, *, effect: Effect, thresholds: Sequence[Threshold], arguments: dict[str, Json]
) -> Verdict:
    """`verdict` with every threshold that applies; its version names them all."""
    found = replace(verdict, version=version_of(thresholds))
    if not effect.is_write:
        return found
    for threshold in sorted(thresholds, key=lambda t: t.ref):
        if applies(threshold, arguments):
            found = _stricter(found, threshold)
    return found


def applies(threshold: Threshold, arguments: dict[str, Json]) -> bool:
    """Whether the comparison holds, or cannot be made."""
    if threshold.op == "always":
        return True
    known, given = _lookup(arguments, threshold.argument)
    return not known or holds(threshold.op, given, threshold.value, unsure=True)


def holds(op: str, given: Json, value: Json, *, unsure: bool) -> bool:
    """`given op value`; `unsure` where the two cannot be compared."""
    if op == "=":
        return _same(given, value)
    if op == "!=":
        return not _same(given, value)
    if op in ("in", "not in"):
        inside = any(_same(given, item) for item in value)
        return inside is (op == "in")
    left, right = _amount(given), _amount(value)
    if left is None or right is None or left[1] != right[1]:
        return unsure
    match op:
        case ">":
            return left[0] > right[0]
        case ">=":
            return left[0] >= right[0]
        case "<":
            return left[0] < right[0]
        case "<=":
            return left[0] <= right[0]
    return unsure


def within(conditions: Sequence[Sequence[Json]], arguments: dict[str, Json]) -> bool:
    """Whether every `[argument, op, value]` certainly holds: the bounds of a standing approval."""
    for name, op, value in conditions:
        known, given = _lookup(arguments, name)
        if not known or not holds(op, given, value, unsure=False):
            return False
    return True


def _lookup(arguments: dict[str, Json], path: str) -> tuple[bool, Json]:
    value: Json = arguments
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return False, None
        value = value[name]
    return value is not None, value


def _same(left: Json, right: Json) -> bool:
    numbers = _amount(left), _amount(right)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1]
    return type(left) is type(right) and bool(left == right)


def _amount(value: Json) -> tuple[Decimal, str] | None:
    """A number and its unit: 50, "50.00" or "50.00 EUR"; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    number, _, unit = str(value).strip().partition(" ")
    try:
        amount = Decimal(number)
    except InvalidOperation:
        return None
    return (amount, unit.strip()) if amount.is_finite() else None


def _stricter(verdict: Verdict, threshold: Threshold) -> Verdict:
    why = f"{threshold.reason} (threshold {threshold.ref[:13]})"
    if verdict.kind == "DENY":
        return verdict
    if threshold.verdict == "DENY":
        return Verdict("DENY", f"threshold:{threshold.ref}", verdict.version, why)
    asked = verdict.kind == "ASK"
    role = _roles(verdict.role, threshold.role)
    count = max(verdict.count, threshold.quorum, 1)
    return Verdict(
        kind="ASK",
        rule=verdict.rule if asked else f"threshold:{threshold.ref}",
        version=verdict.version,
        reason=f"{verdict.reason}; {why}" if asked else why,
        role=role,
        count=count,
        ttl=min((t for t in (verdict.ttl, threshold.ttl) if t is not None), default=None),
        high_risk=verdict.high_risk or count > 1 or is_high_role(role),
    )


def _roles(one: str, other: str) -> str:
    """Both groups are needed; of two steps of the ladder the higher one."""
    names = dict.fromkeys(n.strip() for n in f"{one},{other}".split(",") if n.strip())
    steps = [name for name in names if name in LADDER]
    top = max(steps, key=LADDER.index, default="")
    return ",".join(name for name in names if name not in steps or name == top)
