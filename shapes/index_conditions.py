"""What is left of clauses after the lookup: the conditions of a table.

Conditions that are equal are one object, and so are equal sides of their ANDs (`shapes.index_questions` asks them).
Conditions that differ in constants alone stand in one band (`shapes.index_bands`).

Invariants:
    conditions are compared by identity: hashing a tree at each leaf of each batch would cost too much
"""

from dataclasses import dataclass

from shapes.index_bands import Band, Kind, Place
from shapes.index_questions import Side
from shapes.where.evaluate import compile_predicate
from shapes.where.spans import spanned
from shapes.where.tree import And, Expr


@dataclass(eq=False, slots=True)
class Condition:
    """True iff all of its sides are."""

    expr: Expr
    sides: tuple[Side, ...]
    place: Place | None = None
    """Its place in a band; None if it has nothing that a band could ask."""
    uses: int = 0


class Conditions:
    """The conditions of a table, each once, as long as it is used."""

    def __init__(self) -> None:
        self._conditions: dict[Expr, Condition] = {}
        self._sides: dict[Expr, Side] = {}
        self._bands: dict[Kind, Band] = {}

    def __len__(self) -> int:
        return len(self._conditions)

    def take(self, expr: Expr | None) -> Condition | None:
        """The condition of this expression, with one more user; None for an expression that is not there."""
        if expr is None:
            return None
        condition = self._conditions.get(expr)
        if condition is None:
            sides = expr.args if isinstance(expr, And) else (expr,)
            condition = Condition(expr, tuple(map(self._take_side, sides)), self._place(expr))
            self._conditions[expr] = condition
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
                self._release_side(side)
            if condition.place is not None:
                self._leave(condition.place)

    def _place(self, expr: Expr) -> Place | None:
        spans, others = spanned(expr)
        if not spans:
            return None
        kind = frozenset(spans), frozenset(others)
        band = self._bands.get(kind)
        if band is None:
            band = self._bands[kind] = Band(tuple(spans), tuple(map(self._take_side, others)), kind)
        return band.add(spans)

    def _leave(self, place: Place) -> None:
        band = place.band
        band.remove(place)
        if not len(band):
            del self._bands[band.kind]
            for side in band.others:
                self._release_side(side)

    def _take_side(self, expr: Expr) -> Side:
        side = self._sides.get(expr)
        if side is None:
            side = self._sides[expr] = Side(expr, *compile_predicate(expr))
        side.uses += 1
        return side

    def _release_side(self, side: Side) -> None:
        side.uses -= 1
        if not side.uses:
            del self._sides[side.expr]
