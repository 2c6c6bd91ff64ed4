"""Which conditions run in Arrow's kernels, and how: comparisons, lists of constants, LIKE with a constant pattern.

A kernel takes the rows and gives true, false or NULL for each, or raises `pa.ArrowInvalid` where a column has a value
that it does not know; then the caller goes row by row. It never fails for a row.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from shapes.where.natives import direct_column, native_constant, native_type
from shapes.where.operators import COMPARISONS, LIKES
from shapes.where.tree import AnyAll, Call, Cast, Column, Constant, Expr
from shapes.where.types import FLOATS, INTEGERS, Type
from shapes.where.values.strings import ascii_lower, like_pieces


class Columns(Protocol):
    """Where kernels get columns from."""

    def native(self, name: str, kind: Type) -> pa.Array:
        """A column as values."""

    def texts(self, name: str) -> pa.StringArray:
        """A column as text."""


Kernel = Callable[[Columns], pa.BooleanArray]
Operand: TypeAlias = Any
"""An Arrow array or scalar, of which there are no types."""
Side = Callable[[Columns], Operand]


def leaf_kernel(node: Expr) -> Kernel | None:
    """The kernel for a condition; None where there is none."""
    match node:
        case Column() if node.type.name == "bool":
            return _column(node, node.type)
        case Call(name=name, args=(left, right)) if name in COMPARISONS:
            return _comparison(name, left, right)
        case Call(name=name, args=(text, Constant() as pattern)) if name in LIKES:
            return _like(name, text, pattern.value)
        case AnyAll(array=Constant() as array) if (node.operator, node.all_) in (("=", False), ("<>", True)):
            return _member(node, array)
    return None


def _column(column: Column, kind: Type) -> Side:
    return lambda rows: rows.native(column.name, kind)


def _side(node: Expr) -> Side | None:
    if isinstance(node, Constant) and native_type(node.type) is not None:
        try:
            scalar = native_constant(node)
        except pa.ArrowInvalid:
            return None
        return lambda _: scalar
    found = direct_column(node)
    return None if found is None else _column(*found)


def _comparison(name: str, left: Expr, right: Expr) -> Kernel | None:
    first, second = _side(left), _side(right)
    if first is None or second is None:
        return None
    compare = (_FLOATS if left.type.name in FLOATS else _COMPARE)[name]
    return lambda rows: compare(first(rows), second(rows))


def _float_equal(left: Operand, right: Operand) -> pa.BooleanArray:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _float_less(left: Operand, right: Operand) -> pa.BooleanArray:
    """NaN is above all others."""
    return pc.or_(pc.less(left, right), pc.and_not(pc.is_nan(right), pc.is_nan(left)))


_COMPARE: Final[dict[str, Callable[[Operand, Operand], pa.BooleanArray]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    ">": pc.greater,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
}
_FLOATS: Final[dict[str, Callable[[Operand, Operand], pa.BooleanArray]]] = {
    "=": _float_equal,
    "<>": lambda left, right: pc.invert(_float_equal(left, right)),
    "<": _float_less,
    ">": lambda left, right: _float_less(right, left),
    "<=": lambda left, right: pc.invert(_float_less(right, left)),
    ">=": lambda left, right: pc.invert(_float_less(left, right)),
}


def _member(node: AnyAll, array: Constant) -> Kernel | None:
    """`= ANY` and `<> ALL` of constants: whether the value is among them."""
    found, element = direct_column(node.left), array.type.element
    if found is None or element is None or array.value is None or not array.value.items:
        return None
    is_alike = element == node.left.type or {element.name, node.left.type.name} <= INTEGERS
    if not is_alike or element.name in FLOATS:  # of which NaN and the two zeros are no members like others
        return None
    items = [item for item in array.value.items if item is not None]
    try:
        constants = [native_constant(Constant(item, element)).as_py() for item in items]
    except pa.ArrowInvalid:
        return None
    values, has_null = pa.array(constants, native_type(element)), len(items) < len(array.value.items)
    column = _column(*found)

    def member(rows: Columns) -> pa.BooleanArray:
        present = column(rows)
        is_in = pc.is_in(present, value_set=values)
        # Of a list that has NULL nothing is known, unless the value was found.
        is_unknown = pc.invert(is_in) if has_null else pc.is_null(present)
        result = pc.if_else(is_unknown, None, is_in)
        return pc.invert(result) if node.all_ else result

    return member


def _like(name: str, text: Expr, pattern: str) -> Kernel | None:
    column = text.arg if isinstance(text, Cast) and text.typmod < 0 and text.type.name == "text" else text
    found = direct_column(column)
    if found is None or found[0].type.category not in "SE?":
        return None
    if isinstance(text, Cast) and found[0].type.name == "bpchar":
        return None  # without padding there, with padding here
    source = found[0].name
    is_ilike, is_not = name.endswith("*"), name.startswith("!")
    match = _matcher(ascii_lower(pattern) if is_ilike else pattern)

    def like(rows: Columns) -> pa.BooleanArray:
        texts = rows.texts(source)
        matches = match(pc.ascii_lower(texts) if is_ilike else texts)
        return pc.invert(matches) if is_not else matches

    return like


def _matcher(pattern: str) -> Callable[[pa.StringArray], pa.BooleanArray]:
    """The cheapest kernel that a pattern lets us use."""
    pieces = like_pieces(pattern)
    kinds = "".join({"text": "t"}.get(kind, kind) for kind, _ in pieces)
    word = "".join(text for _, text in pieces)
    match kinds:
        case "" | "t":
            return lambda texts: pc.equal(texts, word)
        case "t%":
            return lambda texts: pc.starts_with(texts, word)
        case "%t":
            return lambda texts: pc.ends_with(texts, word)
        case "%t%":
            return lambda texts: pc.match_substring(texts, word)
    expression = "".join(re.escape(text) if kind == "text" else ".*" if kind == "%" else "." for kind, text in pieces)
    return lambda texts: pc.match_substring_regex(texts, rf"(?s)\A{expression}\z")
