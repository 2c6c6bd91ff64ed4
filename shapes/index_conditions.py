"""What is left of clauses after the lookup, and asking it.

Conditions of a table that are equal are one object, and so are equal sides of their ANDs: a side is asked once a batch,
whichever clauses it comes from, and a column is read once. Of a few rows of a large batch only these are asked.

Invariants:
    conditions are compared by identity: hashing a tree at each leaf of each batch would cost too much
    a row for which some side is false or NULL has not failed: it is ruled out, whether that side was looked up or asked
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shapes.limits import SHARED_VERDICTS_BYTES_MAX, WHERE_SCALAR_ROWS_MAX
from shapes.where.evaluate import Predicate, Rows, compile_predicate
from shapes.where.tree import And, Expr
from shapes.where.types import Type

Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(eq=False, slots=True)
class Side:
    """One side of an AND, ready to be asked."""

    expr: Expr
    by_rows: Predicate
    by_columns: Predicate
    uses: int = 0


@dataclass(eq=False, slots=True)
class Condition:
    """True iff all of its sides are."""

    expr: Expr
    sides: tuple[Side, ...]
    uses: int = 0


class Conditions:
    """The conditions of a table, each once, as long as it is used."""

    def __init__(self) -> None:
        self._conditions: dict[Expr, Condition] = {}
        self._sides: dict[Expr, Side] = {}

    def __len__(self) -> int:
        return len(self._conditions)

    def take(self, expr: Expr | None) -> Condition | None:
        """The condition of this expression, with one more user; None for an expression that is not there."""
        if expr is None:
            return None
        condition = self._conditions.get(expr)
        if condition is None:
            sides = expr.args if isinstance(expr, And) else (expr,)
            condition = self._conditions[expr] = Condition(expr, tuple(map(self._take_side, sides)))
        condition.uses += 1
        return condition

    def release(self, condition: Condition | None) -> None:
        """One user less."""
        if condition is None:
            return
        condition.uses -= 1
        if not condition.uses:
            del self._conditions[condition.expr]
            for side in condition.sides:
                side.uses -= 1
                if not side.uses:
                    del self._sides[side.expr]

    def _take_side(self, expr: Expr) -> Side:
        side = self._sides.get(expr)
        if side is None:
            side = self._sides[expr] = Side(expr, *compile_predicate(expr))
        side.uses += 1
        return side


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

    def ask(self, condition: Condition, numbers: Integers) -> Verdict:
        """Whether the condition is true for these rows, each of them named once, in any order."""
        if len(numbers) == len(self._rows):
            is_true, is_failed, why = _all_of([self._of_all_rows(side) for side in condition.sides])
            return Verdict(is_true[numbers], None if is_failed is None else is_failed[numbers], why)
        rows = SomeRows(self._rows, numbers)
        return _all_of([_ask(side, rows) for side in condition.sides])

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
