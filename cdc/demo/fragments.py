"""The shop's transactions as a replication stream would bring them: cut into fragments. Pure.

Several small transactions travel together, a large one in pieces. What a fragment commits, it commits in every table
that the transaction touched: in one of them without a row, if its rows came with an earlier piece.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from cdc.demo.shop import ROUND, SMALL, TABLES, Round, round_of, transaction_at
from storage.offset import LogOffset
from storage.rows import TX

GROUP: Final = 8
"""Small transactions in a fragment."""

PIECE_ROWS: Final = 100
"""Rows of a large transaction in a fragment."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a fragment has for one table."""

    table: str
    rows: pa.RecordBatch
    aligned: LogOffset | None
    """The end of the last transaction that is whole with these rows; None while it is open."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of the stream."""

    first: int
    last: int
    """Its transactions; those before the last are whole."""
    parts: list[Part]
    ends: bool
    """Whether the last one is whole too."""
    begins_large: bool = False

    @property
    def aligned(self) -> dict[str, LogOffset]:
        """What each table is whole up to with this fragment."""
        return {part.table: part.aligned for part in self.parts if part.aligned is not None}


def fragments(start: int) -> Iterator[Fragment]:
    """The stream from a transaction on, without an end."""
    for number in itertools.count(start // ROUND):
        one = round_of(number)
        first = number * ROUND
        for group in range(max(start, first), first + SMALL, GROUP):
            yield _group(one, group, min(group + GROUP, first + SMALL))
        yield from _pieces(one, first + SMALL)


def _group(one: Round, first: int, stop: int) -> Fragment:
    """Whole small transactions."""
    parts = []
    for table in TABLES:
        rows = _between(one, table, first, stop)
        if rows.num_rows:
            last = transaction_at(rows.column(TX)[rows.num_rows - 1].as_py())
            parts.append(Part(table, rows, one.end_of(last)))
    return Fragment(first, stop - 1, parts, ends=True)


def _pieces(one: Round, large: int) -> Iterator[Fragment]:
    """The large transaction: its order with the first lines, then lines, the commit with the last of them."""
    order = _between(one, "orders", large, large + 1)
    lines = _between(one, "order_lines", large, large + 1)
    end = one.end_of(large)
    for start in range(0, lines.num_rows, PIECE_ROWS):
        is_last = start + PIECE_ROWS >= lines.num_rows
        aligned = end if is_last else None
        parts = [Part("order_lines", lines.slice(start, PIECE_ROWS), aligned)]
        if start == 0:
            parts.insert(0, Part("orders", order, aligned))
        elif is_last:
            parts.append(Part("orders", order.slice(0, 0), aligned))
        yield Fragment(large, large, parts, ends=is_last, begins_large=start == 0)


def _between(one: Round, table: str, first: int, stop: int) -> pa.RecordBatch:
    begin, end = one.rows_below(table, first), one.rows_below(table, stop)
    return one.tables[table].slice(begin, end - begin)
