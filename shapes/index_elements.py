"""Clauses by what an array must contain: `tags @> '{a, b}'`, `'a' = ANY (tags)`.

A clause stands under one of its elements, at its anchor: the one with the fewest clauses when the clause came. So an
element that everybody names does not become a list that everybody walks. A row looks up its own elements, and compares
what stands there with all of them.

Invariants:
    a clause stands under exactly one of its elements
    the elements of a row are a set: how often, in what order and in which dimension does not matter to `@>`
"""

import numpy as np

from shapes.index_branches import Branch
from shapes.index_columns import BatchColumns
from shapes.index_conditions import Condition
from shapes.index_keys import Key, KeyedColumn
from shapes.index_leaves import Leaf, Reached, put, take_out
from shapes.index_numbers import Integers, ranges, starts_of

Wanted = frozenset[Key]


class ElementIndex:
    """From the elements of its column to leaves."""

    def __init__(self, column: KeyedColumn) -> None:
        self.column = column
        self._anchors: dict[Key, dict[Wanted, Leaf]] = {}
        self._anchor_of: dict[Wanted, Key] = {}

    def __len__(self) -> int:
        return len(self._anchor_of)

    def add(self, branch: Branch, condition: Condition | None, shape: int) -> None:
        """Let rows that contain all of the branch's elements reach the shape. O(elements)."""
        wanted = self._wanted(branch)
        anchor = self._anchor_of.get(wanted)
        if anchor is None:
            anchor = min(wanted, key=lambda key: len(self._anchors.get(key, ())))
            self._anchor_of[wanted] = anchor
        put(self._anchors.setdefault(anchor, {}).setdefault(wanted, {}), condition, shape)

    def remove(self, branch: Branch, condition: Condition | None, shape: int) -> None:
        """Undo `add`. O(elements)."""
        wanted = self._wanted(branch)
        anchor = self._anchor_of.get(wanted)
        if anchor is None:
            return  # another branch of the same clause stood here
        leaves = self._anchors[anchor]
        take_out(leaves[wanted], condition, shape)
        if not leaves[wanted]:
            del leaves[wanted], self._anchor_of[wanted]
        if not leaves:
            del self._anchors[anchor]

    @staticmethod
    def _wanted(branch: Branch) -> Wanted:
        assert branch.elements is not None, "a branch of another index"
        return branch.elements.keys

    def reach(self, batch: BatchColumns) -> Reached | None:
        """The leaves that rows of the batch reach. One comparison for each clause at an element of a distinct array."""
        encoded = batch.encoded_elements(self.column)
        numbers: dict[int, int] = {}
        leaves: list[Leaf] = []
        hits: list[int] = []
        hit_counts: list[int] = []
        for elements in encoded.keys:
            before = len(hits)
            for key in elements:
                for wanted, leaf in self._anchors.get(key, {}).items():
                    if wanted <= elements:
                        number = numbers.setdefault(id(leaf), len(leaves))
                        if number == len(leaves):
                            leaves.append(leaf)
                        hits.append(number)
            hit_counts.append(len(hits) - before)
        if not leaves:
            return None
        return _spread(leaves, encoded.codes, np.array(hits), np.array(hit_counts))


def _spread(leaves: list[Leaf], codes: Integers, hits: Integers, hit_counts: Integers) -> Reached | None:
    """From the leaves of each distinct array to those of each row."""
    rows = np.flatnonzero(codes >= 0)
    counts = hit_counts[codes[rows]]
    numbers = hits[ranges(starts_of(hit_counts)[codes[rows]], counts)]
    order = np.argsort(numbers, kind="stable")
    return Reached(leaves, np.bincount(numbers, minlength=len(leaves)), np.repeat(rows, counts)[order])
