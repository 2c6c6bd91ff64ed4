"""Clauses of which nothing can be looked up: every row reaches them.

Those with a place in a band stand by their bands, so that a batch costs what they match and not how many they are.
"""

from dataclasses import dataclass, field

import numpy as np

from shapes.index_bands import Band
from shapes.index_branches import Branch
from shapes.index_columns import BatchColumns
from shapes.index_conditions import Condition
from shapes.index_leaves import Leaf, Reached, Standing, put, take_out


@dataclass(slots=True)
class _Stand:
    """The conditions of one band that every row reaches; the band has others, too."""

    leaf: Leaf = field(default_factory=dict)
    version: int = -1
    """Of the band, when `standing` was made."""
    standing: Standing | None = None


class EveryRow:
    """For branches of which nothing can be looked up."""

    def __init__(self) -> None:
        self._leaf: Leaf = {}
        self._stands: dict[Band, _Stand] = {}

    def __len__(self) -> int:
        return len(self._leaf) + len(self._stands)

    def add(self, _: Branch, condition: Condition | None, shape: int) -> None:
        """Let every row reach the shape."""
        if condition is None or condition.place is None:
            put(self._leaf, condition, shape)
            return
        stand = self._stands.setdefault(condition.place.band, _Stand())
        put(stand.leaf, condition, shape)
        stand.standing = None

    def remove(self, _: Branch, condition: Condition | None, shape: int) -> None:
        """Undo `add`."""
        if condition is None or condition.place is None:
            take_out(self._leaf, condition, shape)
            return
        band = condition.place.band
        stand = self._stands.get(band)
        if stand is not None:  # it may have gone with another branch
            take_out(stand.leaf, condition, shape)
            stand.standing = None
            if not stand.leaf:
                del self._stands[band]

    def reach(self, batch: BatchColumns) -> Reached | None:
        """All rows."""
        leaves = [self._leaf] if self._leaf else []
        counts = np.full(len(leaves), len(batch))
        rows = np.arange(len(batch) if leaves else 0)
        return Reached(leaves, counts, rows, [_standing(band, stand) for band, stand in self._stands.items()])


def _standing(band: Band, stand: _Stand) -> Standing:
    """Made again when the band has moved its places."""
    if stand.standing is None or stand.version != band.version:
        conditions = [condition for condition in stand.leaf if condition is not None]
        numbers = [condition.place.number for condition in conditions if condition.place is not None]
        stand.standing = Standing(band, conditions, np.array(numbers, np.int64), list(stand.leaf.values()))
        stand.version = band.version
    return stand.standing
