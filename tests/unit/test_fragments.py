"""Fragments, put together again, are the shop's transactions; and each commit reaches every table it concerns."""

from itertools import islice

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc.demo.fragments import GROUP, PIECE_ROWS, Fragment, fragments
from cdc.demo.shop import ROUND, SMALL, TABLES, round_of, transaction_at

STARTS = st.integers(0, 5 * ROUND)


def taken(start: int, count: int) -> list[Fragment]:
    return list(islice(fragments(start), count))


@given(STARTS, st.integers(1, 60))
def test_fragments_hold_each_row_once_in_order(start: int, count: int) -> None:
    found = taken(start, count)
    last = found[-1].last
    for table in TABLES:
        rows = [part.rows for fragment in found for part in fragment.parts if part.table == table]
        expected = [
            round_of(number)
            .tables[table]
            .slice(begin := round_of(number).rows_below(table, start), None)
            .slice(0, round_of(number).rows_below(table, last + 1) - begin)
            for number in range(start // ROUND, last // ROUND + 1)
        ]
        joined = pa.Table.from_batches(rows, expected[0].schema) if rows else None
        wanted = pa.Table.from_batches(expected)
        if found[-1].ends:
            assert wanted.num_rows == 0 if joined is None else joined.equals(wanted)
        elif joined is not None:
            assert joined.equals(wanted.slice(0, joined.num_rows))


@given(STARTS, st.integers(1, 60))
def test_a_commit_reaches_every_table_that_its_transaction_touched(start: int, count: int) -> None:
    rows_open: dict[str, int] = {}
    for fragment in taken(start, count):
        for part in fragment.parts:
            if part.rows.num_rows:
                rows_open[part.table] = transaction_at(part.rows.column("tx")[-1].as_py())
            if part.aligned is not None:
                transaction = rows_open.pop(part.table)
                assert part.aligned == round_of(transaction // ROUND).end_of(transaction)
        assert fragment.ends != bool(rows_open)
        assert set(rows_open.values()) <= {fragment.last}


@given(STARTS)
def test_fragments_follow_one_another(start: int) -> None:
    expected = start
    for fragment in taken(start, 100):
        assert fragment.first == expected
        assert fragment.last - fragment.first < GROUP
        assert all(part.rows.num_rows <= max(PIECE_ROWS, 6 * GROUP) for part in fragment.parts)
        assert not fragment.begins_large or fragment.last % ROUND == SMALL
        expected = fragment.last + 1 if fragment.ends else fragment.last
