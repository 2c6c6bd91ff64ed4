"""The values of an expression in a batch as integers that are ordered as the values are, and spans as two of them.

Two ways. Columns of numbers and dates go by a *grid*, one kernel for a column:

    integers, dates, timestamps      themselves
    float4, float8                   their bits, mended so that integers order them
    numeric                          in millionths, if all of them in the batch are that

All else goes by *ranks* among the ends of the spans: each distinct value is read once, and looked up in a sorted list.

Invariants:
    a value is in a span iff low <= key <= high, both ends included; in no span with low > high is anything
    a row has a key, or is NULL, or is odd: its expression failed
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shapes.where.evaluate import Codes, Flags, Rows, distinct_rows
from shapes.where.natives import direct_column
from shapes.where.scalar import compile_scalar
from shapes.where.spans import End, Span
from shapes.where.tree import Expr, columns_of
from shapes.where.types import FLOATS, INTEGERS
from shapes.where.values.io import sort_key
from shapes.where.values.value import Value

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
_NOTHING: Final = (GREATEST, LEAST)

_MILLIONTHS: Final = 10**6
_DECIMAL: Final = pa.decimal64(18, 6)
_NAN_BITS: Final = 0x7FF8 << 48


@dataclass(frozen=True, slots=True)
class Keys:
    """A key for each row."""

    numbers: Codes
    is_known: Flags | None
    """Rows that have a key; None: all."""
    is_odd: Flags | None = None
    """Rows for which the expression failed; None: none."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """An expression by its distinct values, which are keys of `sort_key`; None for NULL."""

    codes: Codes
    values: list[Value]
    is_odd: Flags | None


class Grid:
    """How a column's values, and ends among them, are put as integers without a look at other values."""

    def __init__(self, name: str, read: Callable[[Rows], pa.Array], place: Callable[[Value], tuple[int, int]]) -> None:
        self.name = name
        self._read = read
        self._place = place

    def keys(self, rows: Rows) -> Keys | None:
        """None where some value of the batch has no place."""
        try:
            values = self._read(rows)
        except pa.ArrowInvalid:
            return None
        is_known = pc.is_valid(values).to_numpy(zero_copy_only=False) if values.null_count else None
        return Keys(_integers(values), is_known)

    def ends(self, span: Span) -> tuple[int, int]:
        """A span as keys."""
        low = LEAST if span.low is None else self._low(span.low)
        high = GREATEST if span.high is None else self._high(span.high)
        return (low, high) if low <= GREATEST and high >= LEAST else _NOTHING

    def _low(self, end: End) -> int:
        floor, ceiling = self._place(end.value)
        return max(floor + 1 if end.is_open else ceiling, LEAST)

    def _high(self, end: End) -> int:
        floor, ceiling = self._place(end.value)
        return min(ceiling - 1 if end.is_open else floor, GREATEST)


def grid_of(operand: Expr) -> Grid | None:
    """The grid of an expression that is a column of numbers or dates."""
    found = direct_column(operand)
    if found is None:
        return None
    column, kind = found
    if kind.name in INTEGERS or kind.name in {"date", "timestamp", "timestamptz"}:
        return Grid(kind.name, lambda rows: rows.native(column.name, kind), lambda value: (value, value))
    if kind.name in FLOATS:
        return Grid(kind.name, lambda rows: rows.native(column.name, kind), _float_place)
    if kind.name == "numeric":
        return Grid(kind.name, lambda rows: pc.cast(rows.texts(column.name), _DECIMAL), _decimal_place)
    return None


def _integers(values: pa.Array) -> Codes:
    if pa.types.is_decimal(values.type):
        values = values.view(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, 0)
    numbers = values.to_numpy(zero_copy_only=False)
    return _float_keys(numbers) if numbers.dtype == np.float64 else numbers


def _float_keys(values: np.typing.NDArray[np.float64]) -> Codes:
    """NaN above all, one zero."""
    bits = np.where(np.isnan(values), _NAN_BITS, (values + 0.0).view(np.int64))
    keys: Codes = np.where(bits < 0, bits ^ GREATEST, bits)
    return keys


def _float_place(value: float) -> tuple[int, int]:
    key = int(_float_keys(np.array([value]))[0])
    return key, key


def _decimal_place(value: Decimal) -> tuple[int, int]:
    """The grid's neighbours below and above, which are one if it is on the grid; those outside are beyond all."""
    if not value.is_finite():
        return (LEAST, LEAST) if value == Decimal("-Infinity") else (GREATEST, GREATEST)
    numerator, denominator = value.as_integer_ratio()
    floor, rest = divmod(numerator * _MILLIONTHS, denominator)
    return floor, floor + bool(rest)


def distinct_values(operand: Expr, rows: Rows) -> Distinct:
    """The expression's values, each distinct combination of the texts that it reads evaluated once."""
    names = columns_of(operand)
    function, key = compile_scalar(operand, names), sort_key(operand.type)
    codes, texts = distinct_rows([rows.texts(name) for name in names])
    values: list[Value] = []
    odd: list[int] = []
    for row in texts:
        try:
            value = function(row)
            values.append(None if value is None else key(value))
        except (ValueError, ArithmeticError):
            odd.append(len(values))
            values.append(None)
    if not odd:
        return Distinct(codes, values, None)
    is_odd = np.zeros(len(values), np.bool_)
    is_odd[odd] = True
    return Distinct(codes, values, is_odd[codes])


class Ranks:
    """The ends of some spans, in order: one has an odd number, what lies between two an even one."""

    def __init__(self, spans: Iterable[Span]) -> None:
        spans = list(spans)
        self._marks = sorted({end.key for span in spans for end in (span.low, span.high) if end is not None})
        pairs = [self._ends(span) for span in spans]
        self.lows, self.highs = (np.array(ends, np.int64) for ends in zip(*pairs, strict=True))

    def keys(self, distinct: Distinct) -> Keys:
        """Values by their place among the ends."""
        numbers = np.array([self._rank(value) for value in distinct.values], np.int64)
        is_known = np.array([value is not None for value in distinct.values], np.bool_)
        return Keys(numbers[distinct.codes], None if is_known.all() else is_known[distinct.codes], distinct.is_odd)

    def _rank(self, value: Value) -> int:
        if value is None:
            return LEAST
        place = bisect_left(self._marks, value)
        return 2 * place + (place < len(self._marks) and self._marks[place] == value)

    def _ends(self, span: Span) -> tuple[int, int]:
        low = LEAST if span.low is None else self._rank(span.low.key) + span.low.is_open
        high = GREATEST if span.high is None else self._rank(span.high.key) - span.high.is_open
        return low, high


def within(keys: Sequence[Codes], ends: Sequence[tuple[Codes, Codes]]) -> Flags:
    """Where each key is between its ends, all of them compared as their shapes say."""
    found: Flags | None = None
    for numbers, (lows, highs) in zip(keys, ends, strict=True):
        for bound, is_open, compare in ((lows, LEAST, np.greater_equal), (highs, GREATEST, np.less_equal)):
            if found is None or not (bound == is_open).all():
                holds = compare(numbers, bound)
                found = holds if found is None else np.logical_and(found, holds, out=found)
    assert found is not None, "there is at least one key"
    return found
