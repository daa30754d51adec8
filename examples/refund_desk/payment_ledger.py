"""The payment service's own books: orders, refunds and idempotency keys in one SQLite file.

Amounts are integers in minor units (cents). Every refund is one SQLite transaction that also
claims its idempotency key, synced to disk before it is answered.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CURRENCY = "EUR"
ON_DEMAND_TOTAL = 100_00
ORDER_ID = re.compile(r"ORD-\d{1,12}\Z")
_AMOUNT = re.compile(r"(\d{1,10})(?:\.(\d{2}))?\Z")

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    order_id TEXT PRIMARY KEY, customer TEXT NOT NULL, total INTEGER NOT NULL,
    refunded INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 1,
    CHECK (refunded BETWEEN 0 AND total));
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, body_sha256 TEXT NOT NULL, fence INTEGER NOT NULL, refund_id TEXT);
CREATE TABLE IF NOT EXISTS refunds (
    n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0), reason TEXT NOT NULL,
    idempotency_key TEXT NOT NULL, order_version INTEGER NOT NULL, created_at TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS refunds_by_key ON refunds (idempotency_key);
"""

SEED = (
    ("ORD-1001", "Ada Martin", 120_00),
    ("ORD-1002", "Bilal Haddad", 64_90),
    ("ORD-1003", "Chen Wei", 19_90),
    ("ORD-1004", "Dana Novak", 249_00),
    ("ORD-1005", "Emre Kaya", 75_50),
)


def to_minor(text: object) -> int:
    """Minor units of an amount such as "80.00" or "80". Raises ValueError for anything else."""
    match = _AMOUNT.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError('an amount is a string like "80.00"')
    return int(match[1]) * 100 + int(match[2] or 0)


def from_minor(amount: int) -> str:
    """An amount of minor units as text, such as "80.00"."""
    return f"{amount // 100}.{amount % 100:02d}"


class RefusedError(Exception):
    """The service says no; nothing was changed. `status` is the HTTP status."""

    def __init__(self, status: int, code: str, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"error": code, "detail": detail, **facts}


@dataclass(frozen=True, slots=True)
class RefundOrder:
    """A request to refund. `order_version` None means: whatever the version is."""

    order_id: str
    amount: int
    reason: str
    order_version: int | None
    body_sha256: str


def parse_refund(body: object) -> RefundOrder:
    """Check the body of POST /refunds. Raises RefusedError(400)."""
    if not isinstance(body, dict):
        raise RefusedError(400, "malformed", "the body is a JSON object")
    known = {"order_id", "amount", "currency", "reason", "order_version"}
    if unknown := sorted(set(body) - known):
        raise RefusedError(400, "unknown_fields", f"unknown fields: {', '.join(unknown)}")
    try:
        amount = to_minor(body.get("amount"))
    except ValueError as error:
        raise RefusedError(400, "bad_amount", str(error)) from None
    if body.get("currency") != CURRENCY or amount == 0:
        raise RefusedError(400, "bad_amount", f"a positive amount in {CURRENCY}")
    order_id, version = body.get("order_id"), body.get("order_version")
    if not isinstance(order_id, str) or not (version is None or isinstance(version, int)):
        raise RefusedError(400, "malformed", "order_id is a string, order_version a number")
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return RefundOrder(order_id, amount, str(body.get("reason") or ""), version, digest)


class PaymentLedger:
    """Orders and refunds in one SQLite file. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # fsync before every answer
        self._db.executescript(SCHEMA)
        self._db.executemany(
            "INSERT OR IGNORE INTO orders (order_id, customer, total) VALUES (?, ?, ?)", SEED
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except RefusedError:
                self._db.execute("COMMIT")  # a refusal keeps only the key and its fence
                raise
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _query(self, sql: str, *args: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(sql, args).fetchall()

    def order(self, order_id: str) -> dict[str, Any] | None:
        """The order as JSON, or None. Any `ORD-<n>` exists; only a refund stores it."""
        if not ORDER_ID.match(order_id):
            return None
        rows = self._query("SELECT * FROM orders WHERE order_id = ?", order_id)
        return _order_json(rows[0] if rows else _fresh_order(order_id))

    def refund(self, *, key: str, fence: int, ask: RefundOrder) -> tuple[dict[str, Any], bool]:
        """Refund once for this key. Returns the refund and whether it is a stored reply.

        Raises RefusedError: 404 no such order, 409 stale fence or over the refundable amount, 412
        another order version, 422 the key was used with another body.
        """
        with self._transaction() as db:
            known = db.execute("SELECT * FROM keys WHERE key = ?", (key,)).fetchone()
            if known is None:
                db.execute(
                    "INSERT INTO keys (key, body_sha256, fence) VALUES (?, ?, ?)",
                    (key, ask.body_sha256, fence),
                )
            else:
                _check_key(known, fence=fence, body_sha256=ask.body_sha256)
                db.execute("UPDATE keys SET fence = ? WHERE key = ?", (fence, key))
                if known["refund_id"]:
                    return _refund_json(_refund_row(db, known["refund_id"])), True
            return _book(db, key=key, ask=ask), False

    def refunds(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """All refunds in the order they were made, or those of one idempotency key."""
        if key is None:
            rows = self._query("SELECT * FROM refunds ORDER BY n")
        else:
            rows = self._query("SELECT * FROM refunds WHERE idempotency_key = ?", key)
        return [_refund_json(row) for row in rows]

    def refund_by_id(self, refund_id: str) -> dict[str, Any] | None:
        rows = self._query("SELECT * FROM refunds WHERE id = ?", refund_id)
        return _refund_json(rows[0]) if rows else None

    def touch(self, order_id: str) -> dict[str, Any] | None:
        """Somebody else changed the order: its version grows by one."""
        if not ORDER_ID.match(order_id):
            return None
        with self._transaction() as db:
            _store_order(db, order_id)
            db.execute("UPDATE orders SET version = version + 1 WHERE order_id = ?", (order_id,))
        return self.order(order_id)


def _check_key(known: sqlite3.Row, *, fence: int, body_sha256: str) -> None:
    if known["body_sha256"] != body_sha256:
        raise RefusedError(422, "key_reused", "this Idempotency-Key was used with another body")
    if fence < known["fence"]:
        raise RefusedError(409, "stale_fence", f"fence {fence} is older than {known['fence']}")


def _book(db: sqlite3.Connection, *, key: str, ask: RefundOrder) -> dict[str, Any]:
    if not ORDER_ID.match(ask.order_id):
        raise RefusedError(404, "no_such_order", f"no order {ask.order_id}")
    order = _store_order(db, ask.order_id)
    if ask.order_version is not None and ask.order_version != order["version"]:
        detail = f"the order is at version {order['version']}, not {ask.order_version}"
        raise RefusedError(412, "order_changed", detail, version=order["version"])
    left = order["total"] - order["refunded"]
    if ask.amount > left:
        detail = f"only {from_minor(left)} {CURRENCY} can be refunded"
        raise RefusedError(409, "over_refundable", detail, refundable=from_minor(left))
    refund_id = f"ref_{uuid.uuid4().hex[:20]}"
    version = order["version"] + 1
    db.execute(
        "UPDATE orders SET refunded = refunded + ?, version = ? WHERE order_id = ?",
        (ask.amount, version, ask.order_id),
    )
    created_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    db.execute(
        "INSERT INTO refunds (id, order_id, amount, reason, idempotency_key, order_version,"
        " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (refund_id, ask.order_id, ask.amount, ask.reason, key, version, created_at),
    )
    db.execute("UPDATE keys SET refund_id = ? WHERE key = ?", (refund_id, key))
    return _refund_json(_refund_row(db, refund_id))


def _refund_row(db: sqlite3.Connection, refund_id: str) -> sqlite3.Row:
    row: sqlite3.Row = db.execute("SELECT * FROM refunds WHERE id = ?", (refund_id,)).fetchone()
    return row


def _fresh_order(order_id: str) -> dict[str, Any]:
    customer = f"Customer {order_id[4:]}"
    return {
        "order_id": order_id,
        "customer": customer,
        "total": ON_DEMAND_TOTAL,
        "refunded": 0,
        "version": 1,
    }


def _store_order(db: sqlite3.Connection, order_id: str) -> sqlite3.Row:
    fresh = _fresh_order(order_id)
    db.execute(
        "INSERT OR IGNORE INTO orders (order_id, customer, total) VALUES (?, ?, ?)",
        (order_id, fresh["customer"], fresh["total"]),
    )
    query = "SELECT * FROM orders WHERE order_id = ?"
    row: sqlite3.Row = db.execute(query, (order_id,)).fetchone()
    return row


def _order_json(row: sqlite3.Row | dict[str, Any]) -> dict[str, Any]:
    return {
        "order_id": row["order_id"],
        "customer": row["customer"],
        "currency": CURRENCY,
        "total": from_minor(row["total"]),
        "refunded": from_minor(row["refunded"]),
        "refundable": from_minor(row["total"] - row["refunded"]),
        "version": row["version"],
    }


def _refund_json(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "status": "succeeded",
        "order_id": row["order_id"],
        "amount": from_minor(row["amount"]),
        "currency": CURRENCY,
        "reason": row["reason"],
        "idempotency_key": row["idempotency_key"],
        "order_version": row["order_version"],
        "created_at": row["created_at"],
    }
