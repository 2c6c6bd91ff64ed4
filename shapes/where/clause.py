"""A where clause, from its text to the rows that it is true for.

clause = Clause.of("price > $1", {"price": ColumnType(1700)}, {1: "10.50"})
clause.text       canonical; part of SQL as it stands, and what a shape is known by
clause.tree       for the index
clause.columns    what it reads
clause.evaluate(rows)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa

from shapes.errors import InvalidWhere
from shapes.limits import WHERE_BYTES_MAX, WHERE_DEPTH_MAX, WHERE_STORED_DEPTH_MAX, WHERE_TEXT_BYTES_MAX
from shapes.where.check import check
from shapes.where.evaluate import Outcome, Rows, evaluate
from shapes.where.parse import parse_clause, position_of_text
from shapes.where.sql import write_sql
from shapes.where.tree import Expr, columns_of
from shapes.where.types import ColumnType


@dataclass(frozen=True, slots=True)
class Clause:
    """A where clause that fits its table."""

    tree: Expr
    text: str
    columns: tuple[str, ...]
    """That it reads, by name."""

    @classmethod
    def of(
        cls, sql: str, columns: Mapping[str, ColumnType], parameters: Mapping[int, str | None] | None = None
    ) -> Self:
        """What somebody wrote; `InvalidWhere` if it cannot be."""
        return cls._read(sql, columns, parameters or {}, WHERE_BYTES_MAX, WHERE_DEPTH_MAX)

    @classmethod
    def stored(cls, text: str, columns: Mapping[str, ColumnType]) -> Self:
        """The same again from its canonical text."""
        return cls._read(text, columns, {}, WHERE_TEXT_BYTES_MAX, WHERE_STORED_DEPTH_MAX)

    @classmethod
    def _read(
        cls,
        sql: str,
        columns: Mapping[str, ColumnType],
        parameters: Mapping[int, str | None],
        bytes_max: int,
        depth: int,
    ) -> Self:
        try:
            tree = check(parse_clause(sql, bytes_max), columns, parameters, partial(position_of_text, sql), depth)
            text = write_sql(tree)
        except RecursionError:
            raise InvalidWhere("the where clause is nested too deeply") from None
        return cls(tree, text, columns_of(tree))

    def evaluate(self, rows: Rows | pa.RecordBatch | pa.StructArray) -> Outcome:
        """For each row: true, false or NULL, and whether it could not be decided."""
        return evaluate(self.tree, rows)
