"""The tables of the demo's shop, and what a statement does to them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, LiteralString

TABLES: Final[tuple[LiteralString, ...]] = ("customers", "orders", "order_lines", "payments")

SCHEMA: Final[LiteralString] = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text NOT NULL, since timestamptz NOT NULL);
CREATE TABLE orders (
    id int PRIMARY KEY,
    customer_id int NOT NULL REFERENCES customers,
    status text NOT NULL,
    total numeric(12, 2) NOT NULL
);
CREATE TABLE order_lines (
    order_id int NOT NULL REFERENCES orders,
    line int NOT NULL,
    product text NOT NULL,
    quantity int NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE TABLE payments (id int PRIMARY KEY, order_id int NOT NULL REFERENCES orders, amount numeric(12, 2) NOT NULL);
INSERT INTO customers
    SELECT n, 'Customer ' || n, 'Lyon', '2026-03-02 08:00:00+00' FROM generate_series(1, 500) n;
"""
CUSTOMERS_AT_FIRST: Final = 500
"""Rows that are there before anybody follows the shop, so that a snapshot has something to copy."""

KEYS: Final = {"customers": ("id",), "orders": ("id",), "order_lines": ("order_id", "line"), "payments": ("id",)}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, and what it does to how many rows of which table."""

    table: str
    inserted: int
    updated: int
    deleted: int
    sql: LiteralString
    values: Sequence[Any]

    @property
    def rows(self) -> int:
        """What Postgres will say; a row with a new key is one row, though it is deleted and inserted."""
        return max(self.inserted, self.updated, self.deleted)
