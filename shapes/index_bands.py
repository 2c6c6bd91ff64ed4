"""Conditions that differ in their constants alone, asked together: `amount > N` for a thousand N is one sort.

A band holds the conditions of a table that put the same expressions between ends of their own, and have the same other
sides: `amount > 5 AND s LIKE 'x%'` and `amount > 7 AND s LIKE 'x%'`. The expressions are evaluated once a batch, the
other sides too; then a condition is two integers for each expression (`shapes.where.span_keys`).

Where few rows match, the cost is that of what matches: rows are sorted by an expression, and each condition's rows are
neighbours then. Where many do, all rows are compared with all conditions at once, which leaves nothing to sort.

Invariants:
    places in a band are 0, 1, .. without a gap: the last one moves to where one was freed
    rows for which an expression or another side failed are *odd*: what they match, and why not, the conditions say
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from shapes.index_numbers import GrowingPairs, Integers, Mask, ranges
from shapes.index_questions import Questions, Side
from shapes.limits import BAND_PAIRS_MAX
from shapes.where.span_keys import Keys, Ranks, grid_of, within
from shapes.where.spans import Span
from shapes.where.tree import Expr

_DENSE: Final = 16
"""Where more than one pair in so many may match, comparing all pairs is cheaper than sorting those that do: it takes
0.5 ns to compare one, and 30 to sort it."""

Kind: TypeAlias = tuple[frozenset[Expr], frozenset[Expr]]
"""What a band's conditions have in common: the expressions that have spans, and the other sides."""


@dataclass(eq=False, slots=True)
class Place:
    """Where a condition stands."""

    band: "Band"
    number: int


class Found(NamedTuple):
    """The rows for which some conditions are true."""

    which: Integers
    """Conditions with such rows, by their numbers among those asked."""
    counts: Integers
    rows: Integers
    """Of each of them, one after the other."""


class Ends:
    """Between which values an expression must be, for each condition of a band."""

    def __init__(self, operand: Expr) -> None:
        self._operand = operand
        self._grid = grid_of(operand)
        self._spans: list[Span] = []
        self._on_grid = GrowingPairs()
        self._ranks: Ranks | None = None

    def append(self, span: Span) -> None:
        """Those of one more condition."""
        self._spans.append(span)
        if self._grid is not None:
            self._on_grid.append(self._grid.ends(span))
        self._ranks = None

    def remove(self, number: int) -> None:
        """Without those of a condition; the last one's take their place."""
        last = self._spans.pop()
        if number < len(self._spans):
            self._spans[number] = last
        if self._grid is not None:
            self._on_grid.remove(number)
        self._ranks = None

    def of_batch(self, questions: Questions) -> tuple[Keys, Integers, Integers]:
        """The expression's value in each row, and the ends, as numbers that can be compared."""
        if self._grid is not None:
            keys = questions.grid_keys(self._operand, self._grid)
            if keys is not None:
                return keys, *self._on_grid.arrays()
        if self._ranks is None:
            self._ranks = Ranks(self._spans)
        return self._ranks.keys(questions.distinct(self._operand)), self._ranks.lows, self._ranks.highs


class Band:
    """Conditions with the same expressions and the same other sides."""

    def __init__(self, operands: tuple[Expr, ...], others: tuple[Side, ...], kind: Kind) -> None:
        self.kind = kind
        self.others = others
        self._operands = operands
        self._ends = tuple(map(Ends, operands))
        self._places: list[Place] = []
        self.version = 0
        """Grows with every change of places."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, spans: dict[Expr, Span]) -> Place:
        """A place for a condition."""
        self.version += 1
        place = Place(self, len(self._places))
        self._places.append(place)
        for operand, ends in zip(self._operands, self._ends, strict=True):
            ends.append(spans[operand])
        return place

    def remove(self, place: Place) -> None:
        """Free a place."""
        self.version += 1
        last = self._places.pop()
        if last is not place:
            self._places[place.number] = last
        for ends in self._ends:
            ends.remove(place.number)
        last.number = place.number

    def ask(self, questions: Questions) -> "AskedBand":
        """Evaluate the expressions and the other sides for all rows of a batch."""
        verdict = questions.of_all_rows(self.others)
        is_possible, is_odd = verdict.is_true, verdict.is_failed
        if is_odd is not None:
            is_possible = is_possible | is_odd
        keys: list[Integers] = []
        bounds: list[tuple[Integers, Integers]] = []
        for ends in self._ends:
            found, lows, highs = ends.of_batch(questions)
            keys.append(found.numbers)
            bounds.append((lows, highs))
            if found.is_odd is not None:
                is_odd = found.is_odd if is_odd is None else is_odd | found.is_odd
            if found.is_known is not None:
                is_possible = is_possible & (found.is_known if found.is_odd is None else found.is_known | found.is_odd)
        if is_odd is None:
            return AskedBand(keys, bounds, is_possible, None)
        return AskedBand(keys, bounds, is_possible & ~is_odd, is_possible & is_odd)


@dataclass(frozen=True, slots=True)
class AskedBand:
    """A batch as a band sees it."""

    keys: list[Integers]
    """For each expression, its value in each row."""
    ends: list[tuple[Integers, Integers]]
    """For each expression, those of the condition at each place."""
    is_plain: Mask
    """Rows of which keys and ends decide; the rest matches nothing, but for those that are odd."""
    is_odd: Mask | None

    def holds(self, places: Integers, rows: Integers) -> Mask:
        """Whether the condition at each place is true for the row beside it; odd rows are not told."""
        ends = [(lows[places], highs[places]) for lows, highs in self.ends]
        return self.is_plain[rows] & within([keys[rows] for keys in self.keys], ends)

    def match(self, places: Integers) -> Iterator[Found]:
        """The plain rows for which the conditions at these places are true, some conditions at a time."""
        live = np.flatnonzero(self.is_plain)
        keys = [numbers[live] for numbers in self.keys]
        ends = [(lows[places], highs[places]) for lows, highs in self.ends]
        runs = [_Runs.of(numbers, *pair) for numbers, pair in zip(keys, ends, strict=True)]
        best = min(range(len(runs)), key=lambda number: runs[number].total)
        run = runs[best]
        which = np.flatnonzero(run.counts)
        is_dense = run.total * _DENSE > len(which) * len(live)
        costs = np.full(len(which), len(live)) if is_dense else run.counts[which]
        for part in parts_of(which, costs):
            own = [(lows[part], highs[part]) for lows, highs in ends]
            counts, numbers = _all_pairs(keys, own) if is_dense else _near_pairs(run, part, best, keys, own)
            some = np.flatnonzero(counts)
            yield Found(part[some], counts[some], live[numbers])


class _Runs(NamedTuple):
    """Rows sorted by an expression: those of each condition are neighbours."""

    order: Integers
    first: Integers
    counts: Integers
    total: int

    @staticmethod
    def of(keys: Integers, lows: Integers, highs: Integers) -> "_Runs":
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        first = np.searchsorted(ordered, lows, "left")
        counts = np.maximum(np.searchsorted(ordered, highs, "right") - first, 0)
        return _Runs(order, first, counts, int(counts.sum()))

    def pairs(self, which: Integers) -> tuple[Integers, Integers]:
        """Conditions, by their place in `which`, and their rows, ascending by both."""
        counts = self.counts[which]
        owners = np.repeat(np.arange(len(which)), counts)
        both = np.sort(owners * len(self.order) + self.order[ranges(self.first[which], counts)])
        return np.divmod(both, max(len(self.order), 1))


def _all_pairs(keys: list[Integers], ends: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    """All rows compared with all conditions: how many are true for each condition, and which."""
    holds = within(keys, [(lows[:, np.newaxis], highs[:, np.newaxis]) for lows, highs in ends])
    counts = np.count_nonzero(holds, axis=1)
    flat = np.flatnonzero(holds)  # ten times as fast as finding pairs
    return counts, flat - np.repeat(np.arange(len(counts)) * len(keys[0]), counts)


def _near_pairs(
    run: _Runs, which: Integers, sorted_by: int, keys: list[Integers], ends: list[tuple[Integers, Integers]]
) -> tuple[Integers, Integers]:
    """The same of neighbours in a sorted run alone."""
    owners, numbers = run.pairs(which)
    others = [number for number in range(len(keys)) if number != sorted_by]
    if others:
        own = [(lows[owners], highs[owners]) for lows, highs in (ends[number] for number in others)]
        is_match = within([keys[number][numbers] for number in others], own)
        owners, numbers = owners[is_match], numbers[is_match]
    return np.bincount(owners, minlength=len(which)), numbers


def parts_of(which: Integers, costs: Integers) -> Iterator[Integers]:
    """Conditions, so many at a time that their pairs fit into memory."""
    parts = (np.cumsum(costs) - costs) // BAND_PAIRS_MAX
    return iter(np.split(which, np.flatnonzero(np.diff(parts)) + 1)) if len(which) else iter(())
