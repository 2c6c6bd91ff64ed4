"""The leaves of the index: shapes by what is left of their clause, and how rows that reach leaves become matches.

An index leads rows to leaves, by the parts of clauses that can be looked up. A leaf holds its shapes by the condition
that remains; under None are those of which nothing remains. Equal conditions of a table are one object, so that a
condition is asked once for all rows of a batch that reach it, whichever leaves they reach it in
(`shapes.index_sift`).

Invariants:
    a `Reached` has at least one row for each leaf; its rows are grouped by leaf, in the order of `leaves`
    no row reaches the same leaf twice in one `Reached`
    a leaf without shapes does not exist: who takes the last one out removes it
    a shape stands once at a leaf, though two branches of its clause may lead there: adding and removing are idempotent
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np

from shapes.index_bands import Band
from shapes.index_conditions import Condition
from shapes.index_numbers import Integers, ranges, starts_of

Leaf: TypeAlias = dict[Condition | None, set[int]]


def put(leaf: Leaf, condition: Condition | None, shape: int) -> None:
    """Add a shape to a leaf."""
    leaf.setdefault(condition, set()).add(shape)


def take_out(leaf: Leaf, condition: Condition | None, shape: int) -> None:
    """Remove a shape from a leaf, which may be empty then; nothing happens if another branch of its clause did so."""
    shapes = leaf.get(condition, set())
    shapes.discard(shape)
    if not shapes:
        leaf.pop(condition, None)


@dataclass(frozen=True, slots=True)
class Standing:
    """Conditions of one band that every row reaches."""

    band: Band
    conditions: list[Condition]
    places: Integers
    """In the band, of each of them."""
    sets: list[set[int]]
    """The shapes of each of them."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Rows at leaves."""

    leaves: list[Leaf]
    counts: Integers
    """How many rows are at each leaf."""
    rows: Integers
    """Of all leaves, one after the other."""
    standing: Sequence[Standing] = ()
    """What all rows of the batch reach, besides."""


@dataclass(slots=True)
class Groups:
    """Sets of rows, and for each a set of shapes that match all of them: a product for each group, not yet made."""

    shapes: list[set[int]] = field(default_factory=list)
    counts: list[Integers] = field(default_factory=list)
    rows: list[Integers] = field(default_factory=list)

    def add(self, shapes: list[set[int]], counts: Integers, rows: Integers) -> None:
        """Further groups: the rows of each stand one after the other."""
        self.shapes += shapes
        self.counts.append(counts)
        self.rows.append(rows)

    def pairs(self) -> tuple[Integers, Integers]:
        """Shapes and rows of every match, in the order of the groups."""
        if not self.shapes:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows, rows_counts = np.concatenate(self.rows), np.concatenate(self.counts)
        shapes_counts = np.fromiter(map(len, self.shapes), np.int64, len(self.shapes))
        shapes = np.fromiter(chain.from_iterable(self.shapes), np.int64, int(shapes_counts.sum()))
        if len(shapes) == len(self.shapes):  # one for each group, as mostly
            return np.repeat(shapes, rows_counts), rows
        group = np.repeat(np.arange(len(rows_counts)), shapes_counts)
        counts = rows_counts[group]
        return np.repeat(shapes, counts), rows[ranges(starts_of(rows_counts)[group], counts)]


@dataclass(frozen=True, slots=True)
class Sifted:
    """What became of the rows at leaves, with their shapes; those that a condition rules out are in neither."""

    wanted: Groups = field(default_factory=Groups)
    failed: Groups = field(default_factory=Groups)
    """Rows for which a condition could not be evaluated. Another branch of the clause may want them all the same."""
    whys: list[str] = field(default_factory=list)
    """For each group of those, the reason."""
