"""The payment service keeps its own promise: one idempotency key, one refund."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.refund_desk.payment_ledger import to_minor
from examples.refund_desk.services import start_payment_service, wait_until
from tests.examples.http import call, fresh_order, refund, refund_body, refunds_of


def test_parallel_posts_with_one_key_make_one_refund(payment: str) -> None:
    order = fresh_order()
    body = refund_body(order, "10.00")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: refund(payment, key=order, body=body), range(48)))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body["id"] for answer in answers}) == 1
    fresh = [a for a in answers if a.headers.get("Idempotent-Replayed") != "true"]
    assert len(fresh) == 1
    assert [row["amount"] for row in refunds_of(payment, order)] == ["10.00"]


def test_a_key_with_another_body_is_refused(payment: str) -> None:
    order = fresh_order()
    assert refund(payment, key=order, body=refund_body(order, "10.00")).status == 201
    answer = refund(payment, key=order, body=refund_body(order, "20.00"))
    assert (answer.status, answer.body["error"]) == (422, "key_reused")
    assert [row["amount"] for row in refunds_of(payment, order)] == ["10.00"]


def test_a_missing_key_is_refused(payment: str) -> None:
    order = fresh_order()
    assert refund(payment, key="", body=refund_body(order)).status == 400
    assert refunds_of(payment, order) == []


def test_more_than_the_order_is_a_business_refusal(payment: str) -> None:
    order = fresh_order()
    assert refund(payment, key=f"{order}-1", body=refund_body(order, "80.00")).status == 201
    answer = refund(payment, key=f"{order}-2", body=refund_body(order, "20.01"))
    assert (answer.status, answer.body["refundable"]) == (409, "20.00")
    assert refund(payment, key=f"{order}-3", body=refund_body(order, "20.00")).status == 201


def test_a_stale_order_version_is_refused_but_a_replay_is_not(payment: str) -> None:
    order = fresh_order()
    version = call("GET", f"{payment}/orders/{order}").body["version"]
    call("POST", f"{payment}/orders/{order}/touch")
    stale = refund_body(order, "10.00", order_version=version)
    assert refund(payment, key=f"{order}-1", body=stale).status == 412
    current = refund_body(order, "10.00", order_version=version + 1)
    assert refund(payment, key=f"{order}-2", body=current).status == 201
    replay = refund(payment, key=f"{order}-2", body=current)
    assert (replay.status, replay.headers["Idempotent-Replayed"]) == (201, "true")


def test_a_lower_fence_than_one_seen_is_refused(payment: str) -> None:
    order = fresh_order()
    body = refund_body(order, "10.00")
    assert refund(payment, key=order, body=body, fence=7).status == 201
    answer = refund(payment, key=order, body=body, fence=6)
    assert (answer.status, answer.body["error"]) == (409, "stale_fence")
    assert refund(payment, key=order, body=body, fence=8).status == 201


def test_a_refund_survives_kill_9(tmp_path: Path) -> None:
    first = start_payment_service(tmp_path)
    made = refund(first.url, key="k", body=refund_body("ORD-1001"))
    first.kill()
    second = start_payment_service(tmp_path)
    try:
        again = refund(second.url, key="k", body=refund_body("ORD-1001"))
        assert again.body["id"] == made.body["id"]
        assert len(refunds_of(second.url, "ORD-1001")) == 1
        assert call("GET", f"{second.url}/orders/ORD-1001").body["refundable"] == "40.00"
    finally:
        second.stop()


@pytest.mark.parametrize(
    ("mode", "status", "refunds"),
    [
        ("drop_before_commit", None, 0),
        ("error_before_commit", 500, 0),
        ("commit_then_drop", None, 1),
        ("error_after_commit", 500, 1),
        ("cut_after_commit", None, 1),
        ("html_after_commit", 201, 1),
    ],
)
def test_each_fault_breaks_one_call_on_its_side_of_the_commit(
    payment: str, mode: str, status: int | None, refunds: int
) -> None:
    order = fresh_order()
    call("POST", f"{payment}/faults", {"mode": mode, "times": 1, "order_id": order})
    other = fresh_order()
    assert refund(payment, key=other, body=refund_body(other)).status == 201
    if status is None:
        with pytest.raises((OSError, http.client.HTTPException)):
            refund(payment, key=order, body=refund_body(order))
    else:
        assert refund(payment, key=order, body=refund_body(order)).status == status
    assert len(refunds_of(payment, order)) == refunds
    again = refund(payment, key=order, body=refund_body(order))
    assert again.status == 201
    assert (again.headers.get("Idempotent-Replayed") == "true") is bool(refunds)
    assert len(refunds_of(payment, order)) == 1


@pytest.mark.parametrize(("mode", "meanwhile"), [("delay", 0), ("delay_after_commit", 1)])
def test_a_delay_is_a_gate_that_ends_with_the_faults(
    payment: str, mode: str, meanwhile: int
) -> None:
    order = fresh_order()
    fault = {"mode": mode, "seconds": 60, "order_id": order}
    call("POST", f"{payment}/faults", fault)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(refund, payment, key=order, body=refund_body(order))
        wait_until(
            lambda: (
                call("GET", f"{payment}/faults").body["data"][0]["fired"] == 1
                and len(refunds_of(payment, order)) == meanwhile
            ),
            timeout=10,
            what="the request is held",
        )
        assert not held.done()
        call("DELETE", f"{payment}/faults")
        assert held.result(timeout=10).status == 201


def test_an_unknown_fault_is_refused(payment: str) -> None:
    assert call("POST", f"{payment}/faults", {"mode": "explode"}).status == 400
    assert call("POST", f"{payment}/faults", {"mode": "delay", "tims": 2}).status == 400


def test_requests_are_counted_by_route(payment: str) -> None:
    before = call("GET", f"{payment}/requests").body["by_route"]
    call("GET", f"{payment}/policy")
    after = call("GET", f"{payment}/requests").body["by_route"]
    assert after["GET /policy"] == before.get("GET /policy", 0) + 1


@pytest.mark.parametrize("amount", [80.0, 80, "80.0", "-1.00", "1e2", "", None, "0.00"])
def test_an_amount_that_is_not_exact_is_refused(payment: str, amount: object) -> None:
    order = fresh_order()
    answer = refund(payment, key=order, body={**refund_body(order), "amount": amount})
    assert answer.status == 400, json.dumps(answer.body)
    assert refunds_of(payment, order) == []


def test_amounts_are_minor_units() -> None:
    assert [to_minor("0.29"), to_minor("80"), to_minor("1234.05")] == [29, 8000, 123405]
