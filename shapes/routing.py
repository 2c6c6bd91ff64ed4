"""Which shapes want which rows.

For each table, the shapes stand in a tree of fixed depth:

    table -> index for a set of columns -> keys of these columns -> what is left of the clause -> shapes

so what a change costs depends on the shapes that it reaches and on the kinds of clauses, not on how many shapes there
are. Clauses of which nothing can be looked up are asked of every row, equal ones once.

Invariants:
    `match` says the same as asking each clause of each row
    a shape whose clause could not be evaluated for a row that it was asked of is in `failed`, and has no rows
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shapes.index_columns import BatchColumns
from shapes.index_leaves import Sifted
from shapes.index_numbers import Integers
from shapes.index_table import TableIndex
from shapes.where.tree import Expr


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows that shapes want: pairs, sorted by shape and row, none twice."""

    shapes: Integers
    rows: Integers
    failed: Mapping[int, str]
    """Why a shape's clause could not be evaluated for some row."""


class Router:
    """The shapes of all tables."""

    def __init__(self) -> None:
        self._tables: dict[int, TableIndex] = {}
        self._table_of: dict[int, int] = {}

    def add(self, shape: int, table: int, where: Expr | None) -> None:
        """Let a shape join; without a clause it wants every row. The cost depends on the clause only."""
        if shape in self._table_of:
            raise ValueError(f"shape {shape} is in the router already")
        self._tables.setdefault(table, TableIndex()).add(shape, where)
        self._table_of[shape] = table

    def remove(self, shape: int) -> None:
        """Let a shape leave."""
        table = self._table_of.pop(shape)
        index = self._tables[table]
        index.remove(shape)
        if not len(index):
            del self._tables[table]

    def has_table(self, table: int) -> bool:
        """Whether some shape is of this table."""
        return table in self._tables

    def shapes_of(self, table: int) -> Integers:
        """The shapes of a table, ascending. O(its shapes): for what concerns all of them, such as TRUNCATE."""
        index = self._tables.get(table)
        return np.empty(0, np.int64) if index is None else index.shapes()

    def conditional(self, table: int) -> Integers:
        """Those of a table that have a clause, ascending."""
        index = self._tables.get(table)
        return np.empty(0, np.int64) if index is None else index.conditional()

    def needs_old(self, table: int) -> bool:
        """Whether some shape of the table has a clause, so that the row before an update matters."""
        index = self._tables.get(table)
        return index is not None and index.has_clauses

    def match(self, table: int, rows: pa.StructArray) -> Matches:
        """Which of the table's shapes want which of the rows: whole rows, in columns of text as Postgres sent them."""
        index = self._tables.get(table)
        if index is None or not len(rows):
            return Matches(np.empty(0, np.int64), np.empty(0, np.int64), {})
        sifted = index.match(BatchColumns(rows))
        wanted = _sorted(_numbered(*sifted.wanted.pairs(), len(rows)))
        failed = _failed(sifted, wanted, len(rows)) if sifted.whys else {}
        shapes, numbers = np.divmod(wanted, len(rows))
        if failed:
            kept = ~np.isin(shapes, list(failed))
            shapes, numbers = shapes[kept], numbers[kept]
        return Matches(shapes, numbers, failed)


def _numbered(shapes: Integers, rows: Integers, rows_count: int) -> Integers:
    """A number for each pair, in the order of shape and row."""
    return shapes * rows_count + rows


def _sorted(pairs: Integers) -> Integers:
    """Ascending, each once: a shape whose clause has several branches may have been reached by more than one."""
    pairs.sort(kind="stable")  # of several sorted runs, as groups are: cheap where the shapes are few and the rows many
    return pairs[np.concatenate(([True], pairs[1:] != pairs[:-1]))] if len(pairs) else pairs


def _failed(sifted: Sifted, wanted: Integers, rows_count: int) -> dict[int, str]:
    """Shapes with a branch that failed for a row that no other branch wants: TRUE OR an error is TRUE."""
    shapes, rows = sifted.failed.pairs()
    undecided = set(shapes[~np.isin(_numbered(shapes, rows, rows_count), wanted)].tolist())
    found: dict[int, str] = {}
    for group, why in zip(sifted.failed.shapes, sifted.whys, strict=True):
        for shape in group & undecided:
            found.setdefault(shape, why)
    return found
