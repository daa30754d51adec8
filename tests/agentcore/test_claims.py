"""Words that claim an effect, and words that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentcore.claims import Effect, shown_in, statements, unsupported, words_of
from agentcore.grounding import ungrounded
from agentcore.languages import Language, languages_of

REFUND = Effect("desk.refund_order", ("refunded",), made=False)


def claimed(text: str, *effects: Effect) -> tuple[str, ...]:
    return unsupported(text=text, effects=effects or (REFUND,))


@pytest.mark.requirement("R79")
@pytest.mark.parametrize(
    "text",
    [
        "Done! I have refunded order ord_1001 ($25.00). Refund id re_1.",
        "The order was refunded.",
        "REFUNDED",
        "Good news: 80.00 EUR has been refunded to your card",
        "I looked at the order, and I refunded it.",
        "It was not damaged, but I refunded it.",
        "We cannot do more.\nYour order has been refunded.",
    ],
)
def test_a_claim_without_an_effect_is_found(text: str) -> None:
    assert claimed(text) == ("desk.refund_order",)


@pytest.mark.requirement("R79")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "The order was not refunded.",
        "I could not refund it, so nothing was refunded.",
        "It will be refunded when a person approves.",
        "If the parcel is lost, it can be refunded.",
        "The refund was rejected.",
        "Should the order be refunded?",
        "Which order should be refunded?",
        "The order had already been refunded before.",
        "refundedness is no word",
        "A reviewer rejected the refund of order ORD-1; nothing was refunded.",
        "I do not know whether order ORD-1 was refunded; somebody has to check it.",
        "Order ORD-1 had already been refunded; I did not refund it again.",
        "We can\u2019t say that it was refunded.",
        "Refunded so far: 30.00 EUR",
        "The order: total 99.00 EUR, refunded 0.00 EUR",
    ],
)
def test_what_claims_nothing_passes(text: str) -> None:
    assert claimed(text) == ()


@pytest.mark.requirement("R79")
def test_an_effect_in_the_journal_supports_its_words() -> None:
    made = Effect("desk.refund_order", ("refunded",), made=True)
    assert claimed("I refunded it.", made) == ()
    other = Effect("desk.refund_item", ("refunded",), made=False)
    assert claimed("I refunded it.", made, other) == ()
    mail = Effect("desk.send_mail", ("sent",), made=False)
    assert claimed("I refunded it and sent a mail.", made, mail) == ("desk.send_mail",)


@pytest.mark.requirement("R79")
def test_what_a_read_has_shown_may_be_told_but_not_claimed() -> None:
    words = ("refunded", "shipped")
    shown = shown_in({"order": {"refunded": "30.00 EUR", "status": "shipped"}}, words)
    assert shown == ("refunded", "shipped")
    assert shown_in([{"refunded": "0.00 EUR"}, {"is_shipped": False}, {"refunded": 0}], words) == ()
    others = Effect("desk.refund_order", ("refunded",), made=False, seen=shown)
    assert claimed("30.00 EUR of the order was refunded last week.", others) == ()
    assert claimed("I refunded 30.00 EUR.", others) == ("desk.refund_order",)
    assert claimed("Done, it was refunded.", others) == ("desk.refund_order",)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("desk.submit_refund", "refunded"),
        ("desk.submit_refund", "submitted"),
        ("mail.send_message", "sent"),
        ("shop.cancel_order", "cancelled"),
        ("shop.cancel_order", "canceled"),
        ("shop.delete_item", "deleted"),
        ("bank.pay", "paid"),
        ("crm.apply_credit", "applied"),
        ("shop.ship", "shipped"),
    ],
)
def test_words_of_a_tool_that_declares_none(name: str, word: str) -> None:
    assert word in words_of(name)


def test_declared_words_replace_the_others() -> None:
    assert words_of("desk.submit_refund", declared=("Gutschrift",)) == ("gutschrift",)
    assert words_of("desk.get_order") == ()


@pytest.mark.requirement("R79")
def test_a_structured_answer_states_its_true_fields() -> None:
    assert claimed(statements({"refunded": True})) == ("desk.refund_order",)
    assert claimed(statements({"refunded": False})) == ()
    assert claimed(statements({"order": {"text": "it was refunded"}})) == ("desk.refund_order",)
    assert claimed(statements({"was_refunded": True})) == ("desk.refund_order",)


@pytest.mark.requirement("R112")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"order_id": "ORD-77"}, ()),
        ({"order_id": "ord-77"}, ()),
        ({"order_id": "ORD-7"}, ("order_id",)),
        ({"order_id": "77"}, ("order_id",)),
        ({"order_id": ""}, ("order_id",)),
        ({"order_id": None}, ()),
        ({}, ()),
        ({"order_id": ["ORD-77", "ORD-78"]}, ()),
        ({"order_id": ["ORD-77", "ORD-79"]}, ("order_id",)),
        ({"order_id": 4711}, ()),
    ],
)
def test_an_identifier_that_nothing_supports(
    arguments: dict[str, object], found: tuple[str, ...]
) -> None:
    sources = ['{"order": "ORD-77"}', "see ORD-78, invoice 4711."]
    assert ungrounded(names=["order_id"], arguments=arguments, sources=sources) == found


# --- languages ---------------------------------------------------------------------------------

SPOKEN = languages_of(("en", "de", "zh"))
WORDS = Effect("desk.refund_order", ("refunded", "erstattet", "已退款"), made=False)


@pytest.mark.requirement("R79")
@pytest.mark.parametrize(
    "text",
    [
        "Ich habe den Betrag erstattet.",
        "Der Betrag wurde auf Ihre Karte erstattet.",
        "Die Ware war nicht beschädigt, aber ich habe sie erstattet.",
        "您好\uff0c已退款\uff0c请查收。",
        "订单没有取消。我已退款25元。",
        "We refunded it.",
    ],
)
def test_a_claim_is_found_in_each_language_that_is_declared(text: str) -> None:
    assert unsupported(text=text, effects=[WORDS], languages=SPOKEN) == ("desk.refund_order",)


@pytest.mark.parametrize(
    "text",
    [
        "Der Betrag wurde nicht erstattet.",
        "Der Betrag wird erstattet, sobald jemand zustimmt.",
        "Es konnte nichts erstattet werden.",
        "Soll der Betrag erstattet werden?",
        "尚未退款。",
        "如果已退款您会收到通知。",
        "It was not refunded.",
    ],
)
def test_what_claims_nothing_passes_in_each_language(text: str) -> None:
    assert unsupported(text=text, effects=[WORDS], languages=SPOKEN) == ()


def test_what_a_read_has_shown_is_no_claim_unless_it_is_ones_own() -> None:
    seen = Effect("desk.refund_order", ("erstattet",), made=False, seen=("erstattet",))
    german = languages_of(("de",))
    assert unsupported(text="Die Karte zeigt: erstattet.", effects=[seen], languages=german) == ()
    mine = "Ich habe es erstattet."
    assert unsupported(text=mine, effects=[seen], languages=german) == ("desk.refund_order",)


def test_an_agent_can_bring_a_language_of_its_own() -> None:
    dutch = Language("nl", undone=r"\b(?:niet|zodra)\b", own=r"\bik\b")
    paid = Effect("desk.refund_order", ("terugbetaald",), made=False)
    for text, found in {"Het is terugbetaald.": True, "Het is niet terugbetaald.": False}.items():
        claimed = unsupported(text=text, effects=[paid], languages=(dutch,))
        assert bool(claimed) is found
    assert Language(**dutch.stored()) == dutch


@pytest.mark.parametrize(
    "make",
    [
        lambda: languages_of(("tlh",)),
        lambda: languages_of(()),
        lambda: Language("x", undone="(", own=""),
        lambda: Language("x", undone="(a)", own=""),
    ],
)
def test_a_language_that_cannot_be_read_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="language"):
        make()
