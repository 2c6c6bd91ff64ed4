"""An expression as a Python function of one row's texts: the plain meaning of every node.

Slow, and complete. Constants are folded with it; what has no kernel for whole columns is evaluated with it. An error is
`Invalid`; AND and OR raise it only where nothing else decides.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from shapes.where.coercion import conversion
from shapes.where.polymorphic import is_strict, signature_for
from shapes.where.tree import (
    And,
    AnyAll,
    Call,
    Cast,
    Coalesce,
    Collate,
    Column,
    Constant,
    Expr,
    Extreme,
    IsNull,
    IsTruth,
    MakeArray,
    Not,
    Or,
    Slice,
    Subscript,
)  # fmt: skip
from shapes.where.types import TEXT
from shapes.where.values import arrays
from shapes.where.values.io import reader, sort_key
from shapes.where.values.value import Invalid, Value

Row: TypeAlias = Sequence[str | None]
Scalar: TypeAlias = Callable[[Row], Value]


def compile_scalar(node: Expr, columns: Sequence[str]) -> Scalar:
    """The function of the texts of these columns, in this order. It may raise `Invalid`."""

    def compiled(below: Expr) -> Scalar:
        return compile_scalar(below, columns)

    match node:
        case Column():
            return _column(node, columns.index(node.name))
        case Constant():
            value = node.value
            return lambda _: value
        case Collate():
            return compiled(node.arg)
        case Cast():
            return _cast(node, columns)
        case Call():
            return _call(node, [compiled(arg) for arg in node.args])
        case AnyAll() | Slice() | Subscript():
            return _of_array(node, columns)
        case Coalesce() | Extreme() | MakeArray():
            return _several(node, [compiled(arg) for arg in node.args])
        case _:
            return _logic(node, columns)


def _column(node: Column, place: int) -> Scalar:
    if node.type.category in "?E":
        return lambda row: row[place]
    read = reader(node.type)
    return lambda row: None if (text := row[place]) is None else read(text)


def _cast(node: Cast, columns: Sequence[str]) -> Scalar:
    arg, source = node.arg, node.arg.type
    if isinstance(arg, Column) and node.type.category == "S" and source.category not in "SB":
        # Postgres has already written the value; no need to read it.
        place, convert = columns.index(arg.name), conversion(TEXT, node.type, node.typmod)
        return lambda row: None if (text := row[place]) is None else convert(text)
    inner, convert = compile_scalar(arg, columns), conversion(source, node.type, node.typmod)
    return lambda row: None if (value := inner(row)) is None else convert(value)


def _call(node: Call, args: list[Scalar]) -> Scalar:
    kinds = tuple(arg.type for arg in node.args)
    run = signature_for(node.name, kinds).run
    strict = is_strict(node.name, kinds)

    def call(row: Row) -> Value:
        values = [arg(row) for arg in args]
        return None if strict and None in values else run(*values)

    return call


def _logic(node: Expr, columns: Sequence[str]) -> Scalar:
    match node:
        case And() | Or():
            return _all_or_any([compile_scalar(arg, columns) for arg in node.args], decisive=isinstance(node, Or))
        case Not():
            inner = compile_scalar(node.arg, columns)
            return lambda row: None if (value := inner(row)) is None else not value
        case IsNull(arg=Column(name=name)):
            place = columns.index(name)
            return lambda row: row[place] is None
        case IsNull():
            inner = compile_scalar(node.arg, columns)
            return lambda row: inner(row) is None
        case IsTruth():
            inner, truth = compile_scalar(node.arg, columns), node.truth
            return lambda row: inner(row) is truth
    raise AssertionError(node)


def _all_or_any(args: list[Scalar], *, decisive: bool) -> Scalar:
    """The decisive value in any argument decides, whatever the others are, errors included."""

    def run(row: Row) -> bool | None:
        is_null, error = False, None
        for arg in args:
            try:
                value: bool | None = arg(row)
            except Invalid as invalid:
                error = invalid
                continue
            if value is decisive:
                return decisive
            is_null |= value is None
        if error is not None:
            raise error
        return None if is_null else not decisive

    return run


def _of_array(node: AnyAll | Slice | Subscript, columns: Sequence[str]) -> Scalar:
    array = compile_scalar(node.array, columns)
    if isinstance(node, AnyAll):
        return _any_all(node, compile_scalar(node.left, columns), array)
    if isinstance(node, Subscript):
        return _subscript(array, [compile_scalar(index, columns) for index in node.indices])
    bounds = [tuple(None if end is None else compile_scalar(end, columns) for end in pair) for pair in node.bounds]
    return _slice(array, bounds)


def _any_all(node: AnyAll, left: Scalar, array: Scalar) -> Scalar:
    element = node.array.type.element
    assert element is not None
    run: Callable[[Value, Value], bool] = signature_for(node.operator, (node.left.type, element)).run
    decisive = not node.all_

    def any_all(row: Row) -> bool | None:
        value, items = left(row), array(row)
        if items is None:
            return None
        if not items.items:
            return not decisive
        if value is None:
            return None
        is_null = False
        for item in items.items:
            if item is None:
                is_null = True
            elif run(value, item) is decisive:
                return decisive
        return None if is_null else not decisive

    return any_all


def _several(node: Coalesce | Extreme | MakeArray, args: list[Scalar]) -> Scalar:
    if isinstance(node, Coalesce):
        return lambda row: next((value for arg in args if (value := arg(row)) is not None), None)
    if isinstance(node, Extreme):
        key, choose = sort_key(node.type), max if node.greatest else min

        def extreme(row: Row) -> Value:
            values = [value for arg in args if (value := arg(row)) is not None]
            return choose(values, key=key) if values else None

        return extreme
    if all(arg.type.element is not None for arg in node.args):
        return lambda row: arrays.stack([arg(row) for arg in args])
    return lambda row: arrays.one_dimension(tuple(arg(row) for arg in args))


def _subscript(array: Scalar, indices: list[Scalar]) -> Scalar:
    def subscript(row: Row) -> Value:
        value = array(row)
        if value is None:
            return None  # without a look at the indices, which may fail
        places = [index(row) for index in indices]
        return None if None in places else arrays.element_at(value, places)

    return subscript


def _slice(array: Scalar, bounds: Sequence[tuple[Scalar | None, ...]]) -> Scalar:
    def part(row: Row) -> Value:
        value = array(row)
        if value is None:
            return None
        ends: list[Value] = [tuple(None if end is None else end(row) for end in pair) for pair in bounds]
        is_null = any(
            end is not None and found is None
            for pair, values in zip(bounds, ends, strict=True)
            for end, found in zip(pair, values, strict=True)
        )
        return None if is_null else arrays.slice_of(value, ends)

    return part
