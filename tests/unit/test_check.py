"""The demo's check takes what the shop sent, however it is cut, and nothing else."""

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc.demo.check import Mismatch, TableCheck
from cdc.demo.shop import ROUND, TABLES, round_of

NAMES = st.sampled_from(list(TABLES))


def rows_of(table: str, rounds: int = 2) -> pa.RecordBatch:
    batches = [round_of(number).tables[table] for number in range(rounds)]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


@given(NAMES, st.lists(st.integers(1, 500), max_size=30))
def test_rows_may_come_in_any_portions(table: str, sizes: list[int]) -> None:
    check, rows = TableCheck(table), rows_of(table)
    for size in [*sizes, rows.num_rows]:
        check.feed(rows.slice(0, size))
        rows = rows.slice(min(size, rows.num_rows))
    assert check.rows == rows_of(table).num_rows
    assert check.has_all_upto(2 * ROUND - 1)
    check.must_be_whole()


@given(NAMES, st.data())
def test_a_row_that_lacks_or_comes_twice_is_found(table: str, data: st.DataObject) -> None:
    rows = rows_of(table)
    at = data.draw(st.integers(0, rows.num_rows - 2))
    check = TableCheck(table)
    check.feed(rows.slice(0, at))
    with pytest.raises(Mismatch, match=f"^{table}: found .*, expected "):
        check.feed(rows.slice(at + 1, 1))
    if at:
        with pytest.raises(Mismatch):
            check.feed(rows.slice(at - 1, 1))


@given(NAMES, st.data())
def test_a_changed_value_is_found(table: str, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, rows_of(table).num_rows - 1))
    values = rows_of(table).slice(row, 1).to_pylist()
    column = data.draw(st.sampled_from(TABLES[table]))
    values[0]["new"][column] = (values[0]["new"][column] or "") + "x"
    check = TableCheck(table)
    check.feed(rows_of(table).slice(0, row))
    with pytest.raises(Mismatch):
        check.feed(pa.RecordBatch.from_pylist(values, schema=rows_of(table).schema))


@given(st.integers(1, 1_000))
def test_half_a_transaction_is_not_whole(count: int) -> None:
    rows = rows_of("order_lines", 1)
    check = TableCheck("order_lines")
    check.feed(rows.slice(0, rows.num_rows - count))
    assume(check.last == ROUND - 1)
    with pytest.raises(Mismatch, match="only in part"):
        check.must_be_whole()
    assert not check.has_all_upto(ROUND - 1)


def test_a_row_above_the_last_commit_is_found() -> None:
    check = TableCheck("orders")
    check.feed(rows_of("orders", 1))
    with pytest.raises(Mismatch, match="only 3 committed"):
        check.has_all_upto(3)
