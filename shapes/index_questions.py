"""Asking what is left of clauses: sides of conditions, and the rows of a batch that they are asked of.

A side is asked once a batch, whichever clauses it comes from, and a column is read once. Of a few rows of a large batch
only these are asked.

Invariants:
    a row for which some side is false or NULL has not failed: it is ruled out, whether that side was looked up or asked
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shapes.index_numbers import Integers, Mask
from shapes.limits import SHARED_VERDICTS_BYTES_MAX, WHERE_SCALAR_ROWS_MAX
from shapes.where.evaluate import Predicate, Rows
from shapes.where.span_keys import Distinct, Grid, Keys, distinct_values
from shapes.where.tree import Expr
from shapes.where.types import Type


@dataclass(eq=False, slots=True)
class Side:
    """One side of an AND, ready to be asked."""

    expr: Expr
    by_rows: Predicate
    by_columns: Predicate
    uses: int = 0


class Verdict(NamedTuple):
    """What a condition, or a side of it, says of the rows that it was asked of."""

    is_true: Mask
    is_failed: Mask | None
    """Where it could not be evaluated; it is not true there. None: nowhere."""
    why: str
    """Of one such row."""


class Questions:
    """The rows of one batch, and what was asked of all of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._verdicts: dict[Side, Verdict] = {}
        self._kept_bytes = 0
        self._grid_keys: dict[Expr, Keys | None] = {}
        self._distinct: dict[Expr, Distinct] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def ask(self, sides: Sequence[Side], numbers: Integers) -> Verdict:
        """Whether all sides are true for these rows, each of them named once, in any order."""
        if len(numbers) == len(self._rows):
            is_true, is_failed, why = self.of_all_rows(sides)
            return Verdict(is_true[numbers], None if is_failed is None else is_failed[numbers], why)
        rows = SomeRows(self._rows, numbers)
        return _all_of([_ask(side, rows) for side in sides])

    def of_all_rows(self, sides: Sequence[Side]) -> Verdict:
        """The same of every row, in order; with no side, all are true."""
        if not sides:
            return Verdict(np.ones(len(self._rows), np.bool_), None, "")
        return _all_of([self._of_all_rows(side) for side in sides])

    def grid_keys(self, operand: Expr, grid: Grid) -> Keys | None:
        """A column's values on its grid; None if some have no place there."""
        if operand not in self._grid_keys:
            self._grid_keys[operand] = grid.keys(self._rows)
        return self._grid_keys[operand]

    def distinct(self, operand: Expr) -> Distinct:
        """An expression's distinct values."""
        found = self._distinct.get(operand)
        if found is None:
            found = self._distinct[operand] = distinct_values(operand, self._rows)
        return found

    def _of_all_rows(self, side: Side) -> Verdict:
        verdict = self._verdicts.get(side)
        if verdict is None:
            verdict = _ask(side, self._rows)
            if side.uses > 1 and self._kept_bytes < SHARED_VERDICTS_BYTES_MAX:
                self._verdicts[side] = verdict
                self._kept_bytes += len(self._rows)
        return verdict


class SomeRows(Rows):
    """Some rows of others, by their numbers. Columns are read for all rows, once: other conditions want other rows."""

    def __init__(self, whole: Rows, numbers: Integers) -> None:
        self._outcomes = {}
        self._whole = whole
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def texts(self, name: str) -> pa.StringArray:
        """A column as Postgres sent it."""
        return self._whole.texts(name).take(pa.array(self._numbers))

    def native(self, name: str, kind: Type) -> pa.Array:
        """A column as values."""
        return self._whole.native(name, kind).take(pa.array(self._numbers))

    def listed(self, name: str) -> list[str | None]:
        """A column's texts in Python."""
        texts = self._whole.listed(name)
        return [texts[number] for number in self._numbers.tolist()]


def _ask(side: Side, rows: Rows) -> Verdict:
    outcome = (side.by_rows if len(rows) <= WHERE_SCALAR_ROWS_MAX else side.by_columns)(rows)
    result = pc.fill_null(outcome.result, False) if outcome.result.null_count else outcome.result
    return Verdict(result.to_numpy(zero_copy_only=False), outcome.failed, outcome.why)


def _all_of(verdicts: list[Verdict]) -> Verdict:
    """AND of the sides; it failed where it may be true, but for a side that failed."""
    if len(verdicts) == 1:
        return verdicts[0]
    is_true: Mask = np.logical_and.reduce([verdict.is_true for verdict in verdicts])
    if all(verdict.is_failed is None for verdict in verdicts):
        return Verdict(is_true, None, "")
    may_be_true: Mask = np.logical_and.reduce([_may_be_true(verdict) for verdict in verdicts])
    is_failed = may_be_true & ~is_true
    why = next(verdict.why for verdict in verdicts if verdict.is_failed is not None)
    return Verdict(is_true, is_failed if is_failed.any() else None, why)


def _may_be_true(verdict: Verdict) -> Mask:
    return verdict.is_true if verdict.is_failed is None else verdict.is_true | verdict.is_failed
