"""The demo's shop tells a story that could have happened: each statement fits what was committed before it."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.shop import LARGE_EVERY, LARGE_LINES, Shop, Transaction
from cdc.demo.tables import CUSTOMERS_AT_FIRST, TABLES, Statement
from cdc.demo.tally import Tally

Rows = dict[str, dict[tuple[Any, ...], Any]]


def story(seed: int, count: int) -> list[Transaction]:
    shop = Shop(Random(seed))
    return [shop.next() for _ in range(count)]


def empty_shop() -> Rows:
    return {table: {} for table in TABLES} | {"customers": {(n + 1,): () for n in range(CUSTOMERS_AT_FIRST)}}


def run(rows: Rows, one: Statement) -> int:
    """A statement on plain dictionaries; how many rows it touched."""
    table, values, sql = rows[one.table], one.values, one.sql
    if sql.startswith("INSERT INTO order_lines"):
        order, _, _, count = values
        assert (order,) in rows["orders"], "its foreign key"
        new: list[tuple[Any, ...]] = [(order, n) for n in range(1, count + 1)]
    elif sql.startswith("INSERT INTO"):
        new = [(values[0],)]
    elif sql.startswith("UPDATE orders SET status"):
        status, key = values[0], (values[1],)
        assert table[key] != status, "an update that changes nothing"
        table[key] = status
        return 1
    elif sql.startswith("UPDATE order_lines SET line"):
        line, order, old = values
        assert (order, line) not in table
        table[order, line] = table.pop((order, old))
        return 1
    else:
        assert sql.startswith("DELETE FROM")
        gone = [key for key in table if key[0] == values[0]]
        for key in gone:
            del table[key]
        return len(gone)
    for key in new:
        assert key not in table, "a key that is taken"
        table[key] = "placed"
    return len(new)


@given(st.integers(0, 2**32), st.integers(1, 400))
def test_every_statement_touches_as_many_rows_as_it_says(seed: int, count: int) -> None:
    rows, tally, changes = empty_shop(), Tally(), dict.fromkeys(TABLES, 0)
    tally.rows["customers"] = CUSTOMERS_AT_FIRST
    for transaction in story(seed, count):
        before = {table: dict(found) for table, found in rows.items()} if transaction.is_rolled_back else rows
        for one in transaction.statements:
            kept = set(rows[one.table])
            assert run(rows, one) == one.rows
            assert len(set(rows[one.table]) - kept) == one.inserted
            assert len(kept - set(rows[one.table])) == one.deleted
            if not transaction.is_rolled_back:
                changes[one.table] += one.inserted + one.updated + one.deleted
        rows = before
        if not transaction.is_rolled_back:
            tally.committed(transaction.statements, is_large=transaction.is_large)
    assert {table: len(found) for table, found in rows.items()} == {table: tally.rows[table] for table in TABLES}
    assert changes == {table: tally.changes[table] for table in TABLES}


def test_the_story_has_everything_in_it() -> None:
    found = story(1, 20 * LARGE_EVERY)
    assert sum(one.is_large for one in found) == 20
    kinds = {
        (one.table, bool(one.inserted), bool(one.updated), bool(one.deleted)) for t in found for one in t.statements
    }
    assert {kind[0] for kind in kinds} == set(TABLES)
    assert ("order_lines", True, False, True) in kinds, "a key that changes"
    assert ("order_lines", False, False, True) in kinds
    assert ("orders", False, True, False) in kinds
    assert any(one.is_rolled_back and one.is_large for one in found)
    assert all(
        one.statements[-1].rows >= LARGE_LINES[0] for one in found if one.is_large and one.statements[-1].inserted
    )


def test_chance_alone_decides() -> None:
    assert story(7, 50) == story(7, 50)
    assert story(7, 50) != story(8, 50)
