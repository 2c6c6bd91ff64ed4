"""Conditions as spans: between which two values an expression must lie for a condition to be true.

    a + 1 = 5               a + 1 from 5 to 5
    a > 5 AND a <= 9        a from 5, without 5, to 9
    name LIKE 'ab%'         name from 'ab' to 'ac', without 'ac'

Clauses that differ in their constants alone are the same expressions with other ends, so one look at an expression's
values answers all of them (`shapes.index_bands`).

Invariants:
    a condition is true iff its expression is in the span; it fails iff the expression does; NULL is in no span
    ends are ordered by their keys, as Postgres orders the values (`sort_key`)
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from shapes.where.operators import COMPARISONS
from shapes.where.tree import And, Call, Constant, Expr
from shapes.where.types import Type
from shapes.where.values.io import sort_key
from shapes.where.values.strings import like_pieces
from shapes.where.values.value import Value

_FLIPPED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}
_TEXTS: Final = frozenset({"text", "varchar", "name"})


class End(NamedTuple):
    """One end of a span."""

    key: Value
    value: Value
    """The constant with this key; None where there is none, as behind a prefix."""
    is_open: bool
    """Whether the span is without the end itself."""


@dataclass(frozen=True, slots=True)
class Span:
    """The values between two ends; None is no end."""

    low: End | None
    high: End | None

    def within(self, other: "Span") -> "Span":
        """What is in both."""
        lows = [end for end in (self.low, other.low) if end is not None]
        highs = [end for end in (self.high, other.high) if end is not None]
        return Span(
            max(lows, key=lambda end: (end.key, end.is_open), default=None),
            min(highs, key=lambda end: (end.key, not end.is_open), default=None),
        )


class Spanned(NamedTuple):
    """An AND: each of the expressions is in its span, and the other sides are true."""

    spans: dict[Expr, Span]
    others: tuple[Expr, ...]


def spanned(node: Expr) -> Spanned:
    """The spans of a condition. Prefixes count only where nothing else does: one LIKE for many clauses is cheaper."""
    sides = node.args if isinstance(node, And) else (node,)
    for read in (_comparison, _prefix):
        spans: dict[Expr, Span] = {}
        others: list[Expr] = []
        for side in sides:
            found = read(side)
            if found is None:
                others.append(side)
            else:
                operand, span = found
                spans[operand] = span.within(spans[operand]) if operand in spans else span
        if spans:
            return Spanned(spans, tuple(others))
    return Spanned({}, sides)


def _comparison(side: Expr) -> tuple[Expr, Span] | None:
    match side:
        case Call(name, (operand, Constant() as constant)):
            return _span(name, operand, constant)
        case Call(name, (Constant() as constant, operand)):
            return _span(_FLIPPED.get(name, ""), operand, constant)
    return None


def _span(name: str, operand: Expr, constant: Constant) -> tuple[Expr, Span] | None:
    if name not in COMPARISONS or name not in _FLIPPED or constant.value is None or not _is_ordered(operand.type):
        return None
    key = sort_key(constant.type)(constant.value)
    closed, beyond = End(key, constant.value, is_open=False), End(key, constant.value, is_open=True)
    spans = {
        "=": Span(closed, closed),
        ">=": Span(closed, None),
        ">": Span(beyond, None),
        "<=": Span(None, closed),
        "<": Span(None, beyond),
    }
    return operand, spans[name]


def _is_ordered(kind: Type) -> bool:
    """Whether it has values, each of them one."""
    return kind.element is None and kind.category not in "?E"


def _prefix(side: Expr) -> tuple[Expr, Span] | None:
    """`LIKE 'ab%'`: by bytes, whatever the collation."""
    match side:
        case Call("~~", (operand, Constant(value=str() as pattern))) if operand.type.name in _TEXTS:
            match like_pieces(pattern):
                case [("text", word), ("%", _)]:
                    key = word.encode()
                    # No byte of UTF-8 is 255.
                    behind = key[:-1] + bytes([key[-1] + 1])
                    return operand, Span(End(key, word, is_open=False), End(behind, None, is_open=True))
    return None
