"""Comparisons, of values and of rows: a row is compared column by column, and becomes AND and OR."""

from shapes.where import build
from shapes.where.build import Builder, Operand, refused
from shapes.where.operators import COMPARISONS
from shapes.where.tree import Expr

Side = Operand | list[Operand]

_DISTINCT = "IS DISTINCT FROM"
_NOT_DISTINCT = "IS NOT DISTINCT FROM"


def compare_rows(builder: Builder, name: str, left: Side, right: Side, position: int) -> Expr:
    """An operator on two sides, of which either both are rows or none is."""
    if not isinstance(left, list) and not isinstance(right, list):
        return _compare(builder, name, left, right, position)
    if not isinstance(left, list) or not isinstance(right, list):
        raise refused("a row can only be compared with a row", position)
    if len(left) != len(right) or not left:
        raise refused("unequal number of entries in row expressions", position)
    if name not in (*COMPARISONS, _DISTINCT, _NOT_DISTINCT):
        raise refused(f"operator {name} is not supported for rows", position)
    pairs = list(zip(left, right, strict=True))
    if name in ("<", "<=", ">", ">="):
        return _ordered(builder, name, pairs, position)
    tests = [_compare(builder, name, *pair, position) for pair in pairs]
    return build.conjunction(tests) if name in ("=", _NOT_DISTINCT) else build.disjunction(tests)


def _compare(builder: Builder, name: str, left: Operand, right: Operand, position: int) -> Expr:
    if name not in (_DISTINCT, _NOT_DISTINCT):
        return builder.operator(name, [left, right], position)
    equal = builder.operator("=", [left, right], position)
    nulls = [_is_null(operand, position) for operand in (left, right)]
    same = build.disjunction([build.is_truth(equal, True, position), build.conjunction(nulls)])
    return same if name == _NOT_DISTINCT else build.negation(same, position)


def _is_null(operand: Operand, position: int) -> Expr:
    if isinstance(operand, build.Unknown):
        return build.FALSE if operand.text is not None else build.TRUE
    return build.is_null(operand, position)


def _ordered(builder: Builder, name: str, pairs: list[tuple[Operand, Operand]], position: int) -> Expr:
    """The first columns that are not equal decide; NULL before them decides, too."""
    *first, last = pairs
    result = builder.operator(name, last, position)
    for pair in reversed(first):
        strictly = builder.operator(name[0], pair, position)
        result = build.disjunction([strictly, build.conjunction([builder.operator("=", pair, position), result])])
    return result
