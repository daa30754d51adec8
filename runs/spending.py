"""The account of a run: reserved before a model call, settled once after it, all in its rows.

Reservation and settlement are lines of the Ledger written in the transactions that hold the intent
and the outcome of the call; the sums stand on the run, under whose lock both happen. So a crash
loses neither, and two calls cannot both see the last of the money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from django.conf import settings

from agentcore.budgets import Limits
from agentcore.decisions import ParsedReply, ReplyFailure
from agentcore.ledger import Account, Entry, Price, Spend, price_of, spend_of
from agentcore.llm.base import ModelFailure
from agentcore.llm.errors import Cause, explain
from agentcore.values import Usage
from runs import sql
from runs.account_models import Ledger
from runs.models import Attempt, Run
from runs.transitions import Draft

_NOT_BILLED = frozenset(Cause) - {Cause.NETWORK, Cause.UNREADABLE, Cause.OTHER}
"""The provider answered and said that it did nothing; else the call may have been paid."""


def limits_of(run: Run, spec: Mapping[str, Any]) -> Limits:
    """Tokens and money that the run may use: its own limits, else those of its agent version."""
    budget = spec.get("budget") or {}
    return Limits(
        tokens=run.max_tokens if run.max_tokens is not None else budget.get("tokens"),
        cost=run.max_cost if run.max_cost is not None else budget.get("cost"),
    )


def account_of(run: Run) -> Account:
    return Account(run.tokens_used, run.tokens_held, run.cost_used, run.cost_held)


def price_for(model: str, on: date) -> Price | None:
    """The price of a model on a day, from the configured table."""
    return price_of(model=model, on=on, prices=settings.AGENTCORE_OPTIONS.prices)


def can_be_priced(run: Run, spec: Mapping[str, Any], on: date) -> bool:
    """Whether the run's money limit can be kept: its model needs a price."""
    return limits_of(run, spec).cost is None or price_for(spec["model"], on) is not None


def reserve(
    draft: Draft, *, attempt: Attempt, model: str, spend: Spend, price: Price | None
) -> Ledger:
    """Draft the reservation of one call, beside its attempt."""
    _book(draft, account_of(draft.run).reserve(spend), note="reserved")
    line = _line(draft, attempt, Entry.RESERVE, model, spend, price=price, estimated=True)
    draft.add(line)
    return line


def settle(
    draft: Draft,
    *,
    attempt: Attempt,
    reply: ParsedReply | ReplyFailure | ModelFailure | None,
    known: Ledger | None = None,
) -> None:
    """Draft what one call came to, once: after its reply, whoever brings it.

    A call that was given up before, and settled by its reservation, is corrected. `known` is that
    reservation where nobody else can have settled it.
    """
    rows = [known] if known else Ledger.objects.filter(attempt_id=attempt.id)
    lines = {line.entry: line for line in rows}
    reserved = lines.get(Entry.RESERVE)
    if reserved is None or Entry.CORRECT in lines:
        return
    price = price_for(reserved.model, attempt.started_at.date())
    actual = _actual(reply, price)
    earlier = lines.get(Entry.SETTLE)
    if earlier is not None:
        if actual is not None and earlier.estimated:
            _correct(draft, attempt, earlier, actual, price)
        return
    _settle(draft, attempt, reserved, actual, price)


def lend(draft: Draft, *, tokens: int, cost: int) -> None:
    """Draft that a child run gets a slice: held in the sums of its parent, as a call would be."""
    held = Spend(input=tokens, cost=cost)
    _book(draft, account_of(draft.run).reserve(held), note="lent")


def take_back(draft: Draft, *, lent: tuple[int, int], used: tuple[int, int]) -> None:
    """Draft what a child's slice came to, once. Both as (tokens, micros)."""
    reserved, actual = (Spend(input=tokens, cost=cost) for tokens, cost in (lent, used))
    account = account_of(draft.run).settle(reserved=reserved, actual=actual)
    _book(draft, account, note="returned")


def settle_lost(draft: Draft, *, attempts: Sequence[Attempt]) -> None:
    """Draft the settlement of calls whose process is gone: they may have been paid."""
    ids = [attempt.id for attempt in attempts]
    lines = Ledger.objects.filter(attempt_id__in=ids) if ids else []
    settled = {line.attempt_id for line in lines if line.entry == Entry.SETTLE}
    reserved = {line.attempt_id: line for line in lines if line.entry == Entry.RESERVE}
    for attempt in attempts:
        line = reserved.get(attempt.id)
        if line is not None and attempt.id not in settled:
            price = price_for(line.model, attempt.started_at.date())
            _settle(draft, attempt, line, None, price)


def _settle(
    draft: Draft, attempt: Attempt, reserved: Ledger, actual: Spend | None, price: Price | None
) -> None:
    held = spend_in(reserved)
    spend = held if actual is None else actual
    _book(draft, account_of(draft.run).settle(reserved=held, actual=spend), note="settled")
    estimated = actual is None
    model = reserved.model
    line = _line(draft, attempt, Entry.SETTLE, model, spend, price=price, estimated=estimated)
    draft.add(line)


def _correct(
    draft: Draft, attempt: Attempt, earlier: Ledger, actual: Spend, price: Price | None
) -> None:
    difference = actual - spend_in(earlier)
    _book(draft, account_of(draft.run).correct(difference), note="corrected")
    model = earlier.model
    line = _line(draft, attempt, Entry.CORRECT, model, difference, price=price, estimated=False)
    draft.add(line)


def _actual(
    reply: ParsedReply | ReplyFailure | ModelFailure | None, price: Price | None
) -> Spend | None:
    """What the provider said the call used; None when it may have used something unknown."""
    usage = getattr(reply, "usage", None)
    if isinstance(usage, Usage) and usage.input_tokens + usage.output_tokens > 0:
        return spend_of(usage=usage, price=price)
    if isinstance(reply, ModelFailure | ReplyFailure) and explain(reply.code).cause in _NOT_BILLED:
        return Spend()
    return None


def spend_in(line: Ledger) -> Spend:
    """The amounts of a line."""
    return Spend(line.input_tokens, line.cached_tokens, line.output_tokens, line.cost)


def _line(
    draft: Draft,
    attempt: Attempt,
    entry: Entry,
    model: str,
    spend: Spend,
    *,
    price: Price | None,
    estimated: bool,
) -> Ledger:
    return sql.new(
        Ledger,
        run_id=draft.run.id,
        attempt_id=attempt.id,
        turn=attempt.turn,
        entry=entry,
        model=model,
        input_tokens=spend.input,
        cached_tokens=spend.cached,
        output_tokens=spend.output,
        cost=spend.cost,
        price_from=price.since if price else None,
        estimated=estimated,
        created_at=draft.now,
    )


def _book(draft: Draft, account: Account, *, note: str) -> None:
    """Set the sums; the event tells each one that changed as [before, after]."""
    after = {
        "tokens_used": account.tokens_used,
        "tokens_held": account.tokens_held,
        "cost_used": account.cost_used,
        "cost_held": account.cost_held,
    }
    before = {name: getattr(draft.run, name) for name in after}
    changed = {name: [before[name], after[name]] for name in after if before[name] != after[name]}
    earlier = draft.notes.get(note) or {}  # several calls were lost at once
    pairs = {name: [earlier.get(name, pair)[0], pair[1]] for name, pair in changed.items()}
    draft.note(**{note: {**earlier, **pairs}})
    draft.set_run(**after)
