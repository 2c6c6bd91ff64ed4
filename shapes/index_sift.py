"""From rows at leaves to matches: what is left of the clauses is asked.

Conditions with a place in a band are asked together; the others, and those of bands of which only a few are reached,
one by one, each once for all rows of a batch that reach it in an index.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from shapes.index_bands import AskedBand, Band, parts_of
from shapes.index_conditions import Condition
from shapes.index_leaves import Groups, Leaf, Reached, Sifted, Standing
from shapes.index_numbers import Integers, Mask, ranges, starts_of
from shapes.index_questions import Questions
from shapes.limits import BAND_CONDITIONS_MIN

_SOME = 8
"""Fewer pairs than one for so many rows of a batch are asked one by one: a band evaluates its expressions for all."""


def sift(reached: Iterable[Reached], questions: Questions) -> Sifted:
    """Ask the conditions of the leaves. O(leaves reached), plus the conditions asked."""
    sift = _Sift(questions)
    for at in reached:
        sift.leaves(at)
        for standing in at.standing:
            sift.standing(standing)
    return sift.found


@dataclass(slots=True)
class _Users:
    """Leaves that have a condition, and its shapes there."""

    numbers: list[int] = field(default_factory=list)
    sets: list[set[int]] = field(default_factory=list)

    def add(self, number: int, shapes: set[int]) -> None:
        self.numbers.append(number)
        self.sets.append(shapes)


@dataclass(slots=True)
class _BandUsers(_Users):
    """The same for all conditions of a band."""

    conditions: list[Condition] = field(default_factory=list)


class _Sift:
    def __init__(self, questions: Questions) -> None:
        self.found = Sifted()
        self._questions = questions
        self._asked: dict[Band, AskedBand] = {}

    def leaves(self, at: Reached) -> None:
        """Rows at leaves."""
        users, banded = _users(at.leaves)
        for band, several in banded.items():
            if self._is_worth_it(at.counts[several.numbers]):
                self._ask_band(at, band, several)
                continue
            for one, number, shapes in zip(several.conditions, several.numbers, several.sets, strict=True):
                users.setdefault(one, _Users()).add(number, shapes)
        starts = starts_of(at.counts)
        for condition, own in users.items():
            counts = at.counts[own.numbers]
            if len(own.numbers) == len(at.leaves):
                rows = at.rows
            elif len(own.numbers) == 1:
                rows = at.rows[starts[own.numbers[0]] :][: counts[0]]
            else:
                rows = at.rows[ranges(starts[own.numbers], counts)]
            if condition is None:
                self.found.wanted.add(own.sets, counts, rows)
            else:
                self._ask_one(condition, own.sets, counts, rows)

    def standing(self, standing: Standing) -> None:
        """Conditions of a band that every row reaches."""
        everything = np.arange(len(self._questions))
        asked = None
        if len(standing.conditions) >= BAND_CONDITIONS_MIN:
            asked = self._band(standing.band)
            for found in asked.match(standing.places):
                sets = [standing.sets[which] for which in found.which.tolist()]
                self.found.wanted.add(sets, found.counts, found.rows)
            everything = np.flatnonzero(asked.is_odd) if asked.is_odd is not None else everything[:0]
        if len(everything):
            counts = np.array([len(everything)])
            for condition, shapes in zip(standing.conditions, standing.sets, strict=True):
                self._ask_one(condition, [shapes], counts, everything)

    def _is_worth_it(self, counts: Integers) -> bool:
        return len(counts) >= BAND_CONDITIONS_MIN and int(counts.sum()) * _SOME >= len(self._questions)

    def _band(self, band: Band) -> AskedBand:
        asked = self._asked.get(band)
        if asked is None:
            asked = self._asked[band] = band.ask(self._questions)
        return asked

    def _ask_band(self, at: Reached, band: Band, users: _BandUsers) -> None:
        asked, starts = self._band(band), starts_of(at.counts)
        numbers = np.array(users.numbers)
        places = np.array([condition.place.number for condition in users.conditions if condition.place is not None])
        for part in parts_of(np.arange(len(numbers)), at.counts[numbers]):
            sets = [users.sets[which] for which in part.tolist()]
            counts = at.counts[numbers[part]]
            rows = at.rows[ranges(starts[numbers[part]], counts)]
            owners = np.repeat(np.arange(len(part)), counts)
            _add_some(self.found.wanted, sets, counts, rows, asked.holds(places[part][owners], rows))
            if asked.is_odd is None:
                continue
            is_odd = asked.is_odd[rows]
            for which in np.unique(owners[is_odd]).tolist():
                own = rows[is_odd & (owners == which)]
                self._ask_one(users.conditions[part[which]], [sets[which]], np.array([len(own)]), own)

    def _ask_one(self, condition: Condition, sets: list[set[int]], counts: Integers, rows: Integers) -> None:
        verdict = self._questions.ask(condition.sides, rows)
        _add_some(self.found.wanted, sets, counts, rows, verdict.is_true)
        if verdict.is_failed is not None:
            groups_count = _add_some(self.found.failed, sets, counts, rows, verdict.is_failed)
            self.found.whys.extend([verdict.why] * groups_count)


def _users(leaves: Iterable[Leaf]) -> tuple[dict[Condition | None, _Users], dict[Band, _BandUsers]]:
    """Who has which condition: those without a place in a band, and those with one."""
    users: dict[Condition | None, _Users] = {}
    banded: dict[Band, _BandUsers] = {}
    for number, leaf in enumerate(leaves):
        for condition, shapes in leaf.items():
            if condition is None or condition.place is None:
                users.setdefault(condition, _Users()).add(number, shapes)
                continue
            band = condition.place.band
            several = banded.get(band)
            if several is None:
                several = banded[band] = _BandUsers()
            several.add(number, shapes)
            several.conditions.append(condition)
    return users, banded


def _add_some(groups: Groups, sets: list[set[int]], counts: Integers, rows: Integers, which: Mask) -> int:
    """Of leaves and the rows at them, those that are flagged; how many groups it makes."""
    some = rows[which]
    if not len(some):
        return 0
    if len(sets) == 1:
        groups.add(sets, np.array([len(some)]), some)
        return 1
    owner = np.repeat(np.arange(len(counts)), counts)
    left = np.bincount(owner[which], minlength=len(counts))
    kept = np.flatnonzero(left)
    groups.add([sets[number] for number in kept.tolist()], left[kept], some)
    return len(kept)
