"""A where clause after typing: what each node is, and what its value may be. Everything else here walks such trees.

Typing leaves few kinds of nodes. These forms of SQL arrive as others:

    a BETWEEN 1 AND 2            And(a >= 1, a <= 2)
    a IN (1, 2)                  AnyAll("=", a, '{1,2}', all_=False); NOT IN: ("<>", .., all_=True)
    a IN (b, c)                  Or(a = b, a = c)
    (a, b) = (1, 2)              And(a = 1, b = 2); other comparisons of rows likewise
    a IS NOT DISTINCT FROM b     Or(IsTruth(a = b, True), And(IsNull(a), IsNull(b))); IS DISTINCT FROM: Not(..)
    a LIKE 'x%'                  Call("~~", (a, 'x%')); NOT LIKE "!~~", ILIKE "~~*", NOT ILIKE "!~~*"
    mood = 'sad' (an enum)       Call("=", (Cast(mood, text), 'sad'))

Invariants:
    every node has a type; that of the whole clause is bool
    arguments have exactly the types that the operator takes: where Postgres would convert, there is a `Cast`
    parameters are bound, and what is constant is one `Constant`: `Call`s have at least one column below
    And and Or have two arguments or more, none of them of the same kind; so a clause `a AND (b AND c)` is And(a, b, c)
    nodes are values: equal trees are equal, and may be keys of a dict
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from shapes.where.types import BOOL, Collation, Type


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    type: Type
    collation: Collation = Collation.LANGUAGE


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, or NULL (None).

    By type: bool bool; int2, int4, int8 int; float4, float8 float; numeric Decimal (its exponent is the scale shown);
    text, varchar, bpchar, name, uuid str (uuid in small letters with hyphens; bpchar with its padding); date days since
    2000-01-01; time microseconds; timestamp, timestamptz microseconds since 2000-01-01 UTC; interval `Interval`; arrays
    `Array`. Infinite dates are the outermost integers, see `shapes.where.values.datetimes`.
    """

    value: Any
    type: Type

    def __eq__(self, other: object) -> bool:
        # NaN equals itself and 1.0 is not 1.00 here: the same constant is one that is written alike.
        return isinstance(other, Constant) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str]:
        return self.type.name, repr(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator (`=`, `+`, `~~`, ..; one argument: a prefix) or a function (`lower`, ..) on arguments.

    NULL for any NULL argument, except for `concat`, `array_cat`, `array_append`, `array_prepend` and `||` of arrays.
    """

    name: str
    args: tuple["Expr", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion, written or implied."""

    arg: "Expr"
    type: Type
    typmod: int = -1


@dataclass(frozen=True, slots=True)
class And:
    """False if any argument is; else NULL if any argument is; else true."""

    args: tuple["Expr", ...]
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Or:
    """True if any argument is; else NULL if any argument is; else false."""

    args: tuple["Expr", ...]
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Not:
    """NULL stays NULL."""

    arg: "Expr"
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class IsNull:
    """`arg IS NULL`, never NULL itself."""

    arg: "Expr"
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class IsTruth:
    """`arg IS TRUE` or `IS FALSE`, never NULL itself; `IS UNKNOWN` is `IsNull`."""

    arg: "Expr"
    truth: bool
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class AnyAll:
    """`left operator ANY (array)`, or ALL: like Or, or And, over the elements of an array expression."""

    operator: str
    left: "Expr"
    array: "Expr"
    all_: bool
    type: Type = BOOL


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first argument that is not NULL; those behind it are not looked at."""

    args: tuple["Expr", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Extreme:
    """GREATEST or LEAST: NULLs do not count."""

    args: tuple["Expr", ...]
    greatest: bool
    type: Type


@dataclass(frozen=True, slots=True)
class MakeArray:
    """`ARRAY[..]`; of arrays, where the arguments are."""

    args: tuple["Expr", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Subscript:
    """An element, such as `array[2]` or `array[1][2]`; NULL outside."""

    array: "Expr"
    indices: tuple["Expr", ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Slice:
    """`array[1:2]`, `array[:2][3:]`: lower and upper bound for each dimension, None where not written."""

    array: "Expr"
    bounds: tuple[tuple["Expr | None", "Expr | None"], ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Collate:
    """An expression with `COLLATE "C"` behind it; no other collation can be written."""

    arg: "Expr"
    type: Type


Expr: TypeAlias = (
    Column | Constant | Call | Cast | And | Or | Not | IsNull | IsTruth | AnyAll | Coalesce | Extreme
    | MakeArray | Subscript | Slice | Collate
)  # fmt: skip


def children(node: Expr) -> tuple[Expr, ...]:
    """The nodes directly below."""
    match node:
        case Column() | Constant():
            return ()
        case Cast() | Not() | IsNull() | IsTruth() | Collate():
            return (node.arg,)
        case AnyAll():
            return (node.left, node.array)
        case Subscript():
            return (node.array, *node.indices)
        case Slice():
            return (node.array, *(bound for pair in node.bounds for bound in pair if bound is not None))
        case _:
            return node.args


def walk(node: Expr) -> Iterator[Expr]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def columns_of(node: Expr) -> tuple[str, ...]:
    """Names of the columns that the expression reads, in order, each once."""
    return tuple(sorted({below.name for below in walk(node) if isinstance(below, Column)}))
