"""The demo's source of truth tells a story that could have happened, and tells it the same way each time."""

from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.shop import (
    KEYS,
    ROUND,
    TABLES,
    Round,
    confirmed_by,
    first_above,
    round_of,
    transaction_at,
    tx_of,
)
from storage.rows import Kind, are_ordered

NUMBERS = st.integers(0, 1_000_000)


@given(NUMBERS.map(lambda number: number // ROUND))
def test_a_round_is_a_function_of_its_number(number: int) -> None:
    again: Round = round_of.__wrapped__(number)
    assert again == round_of(number)


@given(NUMBERS)
def test_what_is_confirmed_is_not_sent_again_and_what_follows_is(number: int) -> None:
    assert first_above(confirmed_by(number)) == number + 1
    assert first_above(tx_of(number)) == number
    assert confirmed_by(number) < tx_of(number + 1)
    assert transaction_at(tx_of(number)) == number


def test_at_the_start_everything_is_sent() -> None:
    assert first_above(0) == 0


@given(st.integers(0, 50))
def test_offsets_grow_and_leave_nothing_out(number: int) -> None:
    one = round_of(number)
    ops: dict[int, list[int]] = {}
    for rows in one.tables.values():
        tx, op = rows.column("tx").to_numpy(), rows.column("op").to_numpy()
        assert are_ordered(tx, op)
        for of_tx, of_op in zip(tx.tolist(), op.tolist(), strict=True):
            ops.setdefault(transaction_at(of_tx), []).append(of_op)
    assert sorted(ops) == list(range(number * ROUND, (number + 1) * ROUND))
    for transaction, found in ops.items():
        assert sorted(found) == list(range(0, 2 * len(found), 2))
        assert one.end_of(transaction) == (tx_of(transaction), 2 * len(found) - 1)


@given(st.integers(0, 20), st.integers(0, ROUND))
def test_rows_below_a_transaction_are_counted(number: int, index: int) -> None:
    one, transaction = round_of(number), number * ROUND + index
    for table, rows in one.tables.items():
        below = [tx for tx in rows.column("tx").to_pylist() if tx < tx_of(transaction)]
        assert one.rows_below(table, transaction) == len(below)


def test_the_story_could_have_happened() -> None:
    shop: dict[str, dict[tuple[str, ...], dict[str, Any]]] = {table: {} for table in TABLES}
    for transaction in transactions(rounds=8):
        touched = set()
        for table, change in transaction:
            key = tuple(change["new"][name] for name in KEYS[table])
            if change["kind"] == Kind.INSERT:
                assert key not in shop[table]
                shop[table][key] = change["new"]
            elif change["kind"] == Kind.UPDATE:
                assert shop[table][key]["status"] == "placed"
                shop[table][key] = change["new"]
            else:
                assert shop[table].pop(key)
                assert change["absent"] is not None
            touched.add(key[0] if table != "customers" else None)
        for order in touched - {None}:
            assert order is not None
            consistent(shop, order)
    assert all(shop.values())


def consistent(shop: dict[str, dict[tuple[str, ...], dict[str, Any]]], order: str) -> None:
    """An order has its customer, and its total is that of its lines; one that was cancelled has left nothing."""
    lines = [line for (of_order, _), line in shop["order_lines"].items() if of_order == order]
    found = shop["orders"].get((order,))
    if found is None:
        assert not lines
        return
    assert (found["customer_id"],) in shop["customers"]
    assert Decimal(found["total"]) == sum(int(line["quantity"]) * Decimal(line["price"]) for line in lines)


def transactions(rounds: int) -> list[list[tuple[str, dict[str, Any]]]]:
    """The changes of each transaction, in order."""
    found: dict[int, list[tuple[int, str, dict[str, Any]]]] = {}
    for number in range(rounds):
        for table, rows in round_of(number).tables.items():
            for row in rows.to_pylist():
                found.setdefault(row["tx"], []).append((row["op"], table, row))
    ordered = (sorted(found[tx], key=lambda change: change[0]) for tx in sorted(found))
    return [[(table, row) for _, table, row in changes] for changes in ordered]


def test_most_of_a_round_is_one_large_transaction() -> None:
    one = round_of(3)
    assert int(np.argmax(one.changes)) == ROUND - 1
    assert one.changes[-1] > sum(one.changes[:-1])
