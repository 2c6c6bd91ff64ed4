"""A where clause as branches: what of it can be looked up, and what is left to ask.

A clause is true for a row iff one of its branches is. A branch is true iff each of its columns has one of the keys
named for it, its array, if there is one, has all the elements named, and the rest is true. That is decided when a shape
joins, and never depends on other shapes.

Looked up: a column that equals a constant (either way round), `IN`, `= ANY` of a constant array, a column of type
boolean; `array @> constant`, `constant <@ array`, `constant = ANY (array)`. Of an AND, what can be looked up; the rest
is asked of the rows found. An OR, if each side has something to look up. A conversion of the column that leaves
different values different, such as int4 to int8, does not matter.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod

from shapes.index_keys import Key, KeyedColumn, has_null, keyed_column, keys_of_elements, keys_of_value
from shapes.limits import BRANCH_KEYS_MAX, CLAUSE_BRANCHES_MAX
from shapes.where.spans import spanned
from shapes.where.tree import And, AnyAll, Call, Column, Constant, Expr, IsTruth, Not, Or
from shapes.where.types import BOOL, Type


@dataclass(frozen=True, slots=True)
class Elements:
    """What an array must contain; at least one."""

    column: KeyedColumn
    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class Branch:
    """One way for a clause to be true: with `choices`, or with `elements`, or with neither, if every row is asked."""

    choices: dict[KeyedColumn, frozenset[Key]]
    """For each column, the keys that it may have; without any, the branch is never true."""
    elements: Elements | None = None
    rest: Expr | None = None


def branches_of(where: Expr | None) -> tuple[Branch, ...]:
    """The branches of a clause: at least one, unless it can never be true."""
    found = None if where is None else _looked_up(where)
    if found is None and isinstance(where, Or):
        found = _partly_looked_up(where)
    return (Branch({}, rest=where),) if found is None else tuple(filter(_is_possible, found))


def _partly_looked_up(where: Or) -> tuple[Branch, ...] | None:
    """An OR of which each side has something to look up, or a span: those are asked of every row, many at once."""
    branches: list[Branch] = []
    for side in where.args:
        found = _looked_up(side)
        if found is None:
            if not spanned(side).spans:
                return None
            found = (Branch({}, rest=side),)
        branches += found
    return tuple(branches) if len(branches) <= CLAUSE_BRANCHES_MAX else None


def _is_possible(branch: Branch) -> bool:
    return all(branch.choices.values())


def _looked_up(where: Expr) -> tuple[Branch, ...] | None:
    """None if there is nothing to look up."""
    match where:
        case And(args):
            return _of_all(args)
        case Or(args):
            return _of_any(args)
        case _:
            found = _choice(where) or _elements(where)
            return None if found is None else (found,)


def _of_any(sides: Iterable[Expr]) -> tuple[Branch, ...] | None:
    found = [_looked_up(side) for side in sides]
    known = [branches for branches in found if branches is not None]
    if len(known) < len(found):
        return None
    branches = _joined(chain.from_iterable(known))
    return branches if len(branches) <= CLAUSE_BRANCHES_MAX else None


def _joined(branches: Iterable[Branch]) -> tuple[Branch, ...]:
    """Plain choices of one column in one branch: `a = 1 OR a = 2` is `a IN (1, 2)`."""
    plain: dict[KeyedColumn, frozenset[Key]] = {}
    others: list[Branch] = []
    for branch in branches:
        if len(branch.choices) == 1 and branch.rest is None:
            ((column, keys),) = branch.choices.items()
            plain[column] = plain.get(column, frozenset()) | keys
        else:
            others.append(branch)
    return (*(Branch({column: keys}) for column, keys in plain.items()), *others)


def _of_all(sides: tuple[Expr, ...]) -> tuple[Branch, ...] | None:
    """Values of columns first: they lead to few rows. Else an array; else an OR among the sides."""
    choices = {side: found for side in sides if (found := _choice(side)) is not None}
    if choices:
        return (_with_choices(sides, choices),)
    for side in sides:
        if (found := _elements(side)) is not None:
            return (replace(found, rest=_without(sides, side)),)
    for side in sides:
        if (branches := _looked_up(side)) is not None:
            others = _without(sides, side)
            return tuple(replace(branch, rest=_both(branch.rest, others)) for branch in branches)
    return None


def _with_choices(sides: tuple[Expr, ...], found: dict[Expr, Branch]) -> Branch:
    """As many columns as the bound on combinations allows, those with the fewest values first; the others are asked."""
    by_column: dict[KeyedColumn, frozenset[Key]] = {}
    asked = [side for side in sides if side not in found]
    for side, branch in sorted(found.items(), key=lambda one: _size(one[1])):
        ((column, keys),) = branch.choices.items()
        joined = {**by_column, column: by_column.get(column, keys) & keys}
        if by_column and _combinations(joined) > BRANCH_KEYS_MAX:
            asked.append(side)
        else:
            by_column = joined
    return Branch(by_column, rest=_all(tuple(asked)))


def _size(branch: Branch) -> int:
    return _combinations(branch.choices)


def _combinations(choices: dict[KeyedColumn, frozenset[Key]]) -> int:
    return prod(map(len, choices.values()))


def _choice(side: Expr) -> Branch | None:
    """One column, and the keys that make this side true."""
    match side:
        case Call("=", (Constant() as constant, other)) | Call("=", (other, Constant() as constant)):
            return _chosen(other, lambda kind: keys_of_value(kind, constant))
        case AnyAll("=", other, Constant() as constant, False):
            return _chosen(other, lambda kind: keys_of_elements(kind, constant))
        case Column(type=kind) if kind == BOOL:
            return _truth(side, is_true=True)
        case IsTruth(Column() as other, truth):
            return _truth(other, is_true=truth)
        case Not(Column() as other):
            return _truth(other, is_true=False)
        case _:
            return None


def _truth(column: Column, *, is_true: bool) -> Branch | None:
    return _chosen(column, lambda kind: keys_of_value(kind, Constant(is_true, BOOL)))


def _chosen(node: Expr, keys_for: Callable[[Type], frozenset[Key] | None]) -> Branch | None:
    column = keyed_column(node)
    keys = None if column is None else keys_for(column.type)
    return None if column is None or keys is None else Branch({column: keys})


def _elements(side: Expr) -> Branch | None:
    """An array, and what it must contain. Every array contains `{}`, none contains NULL: both are left to ask."""
    match side:
        case Call("@>", (array, Constant() as constant)) | Call("<@", (Constant() as constant, array)):
            if has_null(constant):
                return None
            keys_for = partial(keys_of_elements, constant=constant)
        case AnyAll("=", Constant() as constant, array, False):
            keys_for = partial(keys_of_value, constant=constant)
        case _:
            return None
    column = keyed_column(array)
    if column is None or column.type.element is None:
        return None
    keys = keys_for(column.type.element)
    return Branch({}, Elements(column, keys)) if keys else None


def _without(sides: tuple[Expr, ...], side: Expr) -> Expr | None:
    return _all(tuple(other for other in sides if other is not side))


def _both(first: Expr | None, second: Expr | None) -> Expr | None:
    return _all(tuple(side for part in (first, second) if part is not None for side in _sides(part)))


def _sides(node: Expr) -> tuple[Expr, ...]:
    return node.args if isinstance(node, And) else (node,)


def _all(sides: tuple[Expr, ...]) -> Expr | None:
    if not sides:
        return None
    return sides[0] if len(sides) == 1 else And(sides)
