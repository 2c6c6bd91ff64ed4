"""A clause asked of many rows at once: true, false or NULL for each, and where it cannot be said.

Everyday conditions (`a = 5`, `b LIKE 'x%'`, `c IN (..)`, AND and OR of them) run in Arrow's kernels over whole columns;
`Rows` reads each column once for all clauses that are asked of it. Anything else, and all of it for a handful of rows,
runs row by row (`scalar`), once for each distinct combination of the texts that it reads.

Where Postgres would stop with an error (a division by zero, a number out of range, a text that is no date), a row has
*failed*: its result is NULL, and `Outcome.failed` says so. FALSE AND an error is FALSE, TRUE OR an error is TRUE.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shapes.limits import SHARED_VERDICTS_BYTES_MAX, WHERE_PREDICATES_KEPT, WHERE_SCALAR_ROWS_MAX
from shapes.where.kernels import leaf_kernel
from shapes.where.natives import native
from shapes.where.scalar import Scalar, compile_scalar
from shapes.where.tree import And, Column, Expr, IsNull, IsTruth, Not, Or, columns_of
from shapes.where.types import Type

Flags: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a clause says of each row."""

    result: pa.BooleanArray
    """NULL for unknown, and where it failed."""
    failed: Flags | None = None
    """Rows that Postgres would not have answered for; None if there are none."""
    why: str = ""
    """Of the first of them."""

    @property
    def is_true(self) -> Flags:
        """The rows that the clause lets through."""
        flags: Flags = pc.fill_null(self.result, False).to_numpy(zero_copy_only=False)
        return flags


class Rows:
    """Some rows as columns of text, each column read at most once for each type."""

    def __init__(self, rows: pa.RecordBatch | pa.StructArray) -> None:
        self._rows = rows
        self._natives: dict[tuple[str, str], pa.Array | pa.ArrowInvalid] = {}
        self._lists: dict[str, list[str | None]] = {}
        self._outcomes: dict[Predicate, Outcome] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def texts(self, name: str) -> pa.StringArray:
        """A column as Postgres sent it."""
        return self._rows.column(name) if isinstance(self._rows, pa.RecordBatch) else self._rows.field(name)

    def native(self, name: str, kind: Type) -> pa.Array:
        """A column as values; `pa.ArrowInvalid` where it has one that no kernel reads."""
        key = name, kind.name
        if key not in self._natives:
            try:
                self._natives[key] = native(kind, self.texts(name))
            except pa.ArrowInvalid as error:
                self._natives[key] = error  # each clause would try in vain
        found = self._natives[key]
        if isinstance(found, pa.ArrowInvalid):
            raise found
        return found

    def once(self, part: "Predicate") -> Outcome:
        """What a part of clauses says of the rows, for all clauses that have it."""
        outcome = self._outcomes.get(part)
        if outcome is None:
            outcome = part(self)
            if len(self._outcomes) * len(self) < SHARED_VERDICTS_BYTES_MAX:
                self._outcomes[part] = outcome
        return outcome

    def listed(self, name: str) -> list[str | None]:
        """A column's texts in Python."""
        if name not in self._lists:
            self._lists[name] = self.texts(name).to_pylist()
        return self._lists[name]


Predicate: TypeAlias = Callable[[Rows], Outcome]


def evaluate(node: Expr, rows: Rows | pa.RecordBatch | pa.StructArray) -> Outcome:
    """What a boolean expression says of each row."""
    rows = rows if isinstance(rows, Rows) else Rows(rows)
    whole, by_columns = compile_predicate(node)
    return whole(rows) if len(rows) <= WHERE_SCALAR_ROWS_MAX else by_columns(rows)


@lru_cache(WHERE_PREDICATES_KEPT)
def compile_predicate(node: Expr) -> tuple[Predicate, Predicate]:
    """Two functions that say the same: row by row, and by columns."""
    return _by_rows(node), _by_columns(node)


@lru_cache(WHERE_PREDICATES_KEPT)
def _part(node: Expr) -> Predicate:
    """A part of a clause: equal parts are one function, and asked once."""
    whole = _by_columns(node)
    return lambda rows: rows.once(whole)


def _by_columns(node: Expr) -> Predicate:
    match node:
        case And() | Or():
            return _junction([_part(arg) for arg in node.args], decisive=isinstance(node, Or))
        case Not():
            return _mapped(_part(node.arg), pc.invert)
        case IsTruth(truth=truth):
            return _mapped(_part(node.arg), lambda values: pc.fill_null(pc.equal(values, truth), False))
        case IsNull(arg=Column(name=name)):
            return lambda rows: Outcome(pc.is_null(rows.texts(name)))
        case IsNull() if node.arg.type.name == "bool":
            return _mapped(_part(node.arg), pc.is_null)
    kernel, slow = leaf_kernel(node), _by_rows(node)
    if kernel is None:
        return slow

    def fast(rows: Rows) -> Outcome:
        try:
            return Outcome(kernel(rows))
        except pa.ArrowInvalid:  # some value that the kernels do not have, such as a numeric NaN
            return slow(rows)

    return fast


def _junction(args: list[Predicate], *, decisive: bool) -> Predicate:
    """AND (decided by false) or OR (by true). A failed argument is unknown, and matters where nothing else decides."""
    combine = pc.or_kleene if decisive else pc.and_kleene

    def run(rows: Rows) -> Outcome:
        outcomes = [arg(rows) for arg in args]
        result = outcomes[0].result
        for outcome in outcomes[1:]:
            result = combine(result, outcome.result)
        masks = [outcome.failed for outcome in outcomes if outcome.failed is not None]
        if not masks:
            return Outcome(result)
        undecided = pc.is_null(result).to_numpy(zero_copy_only=False)
        failed = np.logical_or.reduce(masks) & undecided
        why = next(outcome.why for outcome in outcomes if outcome.failed is not None)
        return Outcome(result, failed, why) if failed.any() else Outcome(result)

    return run


def _mapped(arg: Predicate, change: Callable[[pa.BooleanArray], pa.BooleanArray]) -> Predicate:
    def run(rows: Rows) -> Outcome:
        outcome = arg(rows)
        result = change(outcome.result)
        if outcome.failed is None:
            return Outcome(result)
        return Outcome(pc.if_else(pa.array(outcome.failed), None, result), outcome.failed, outcome.why)

    return run


def _by_rows(node: Expr) -> Predicate:
    names = columns_of(node)
    function = compile_scalar(node, names)

    def run(rows: Rows) -> Outcome:
        if not names:
            outcome = _answers(function, [()])
            return _taken(outcome, np.zeros(len(rows), np.int64))
        if len(rows) <= WHERE_SCALAR_ROWS_MAX:
            return _answers(function, list(zip(*(rows.listed(name) for name in names), strict=True)))
        codes, distinct = distinct_rows([rows.texts(name) for name in names])
        return _taken(_answers(function, distinct), codes)

    return run


def _answers(function: Scalar, texts: Sequence[tuple[str | None, ...]]) -> Outcome:
    results: list[bool | None] = []
    failed: list[int] = []
    why = ""
    for row in texts:
        try:
            results.append(function(row))
        except (ValueError, ArithmeticError) as error:
            why = why or str(error)
            failed.append(len(results))
            results.append(None)
    mask = None
    if failed:
        mask = np.zeros(len(results), np.bool_)
        mask[failed] = True
    return Outcome(pa.array(results, pa.bool_()), mask, why)


def _taken(outcome: Outcome, codes: Codes) -> Outcome:
    failed = None if outcome.failed is None else outcome.failed[codes]
    return Outcome(outcome.result.take(pa.array(codes)), failed, outcome.why)


def distinct_rows(columns: Sequence[pa.StringArray]) -> tuple[Codes, list[tuple[str | None, ...]]]:
    """Which of the distinct rows each row is, and those."""
    if len(columns) == 1:
        encoded = columns[0].dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        if encoded.indices.null_count:
            texts.append(None)
        codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        return codes.astype(np.int64), [(text,) for text in texts]
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        own = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        # Numbered anew at each column, so that products of the counts cannot overflow.
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)[1]
    first = np.unique(codes, return_index=True)[1]
    return codes, list(zip(*(column.take(pa.array(first)).to_pylist() for column in columns), strict=True))
