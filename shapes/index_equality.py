"""Clauses by the values of some columns: `a = 1`, `a = 1 AND b IN (2, 3)`.

One index for each set of columns that clauses name together, so that a lookup is one step however many columns there
are, and there are as many indexes as there are kinds of clauses, not as many as clauses.

Invariants:
    keys have one entry for each column, in the order of `columns`; NULL is no key, and reaches nothing
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from shapes.index_branches import Branch
from shapes.index_columns import BatchColumns
from shapes.index_conditions import Condition
from shapes.index_keys import Key, KeyedColumn
from shapes.index_leaves import Leaf, Reached, put, take_out
from shapes.index_numbers import Integers

Keys = tuple[Key, ...]


class EqualityIndex:
    """From the values of its columns to leaves."""

    def __init__(self, columns: tuple[KeyedColumn, ...]) -> None:
        self.columns = columns
        self._leaves: dict[Keys, Leaf] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def add(self, branch: Branch, condition: Condition | None, shape: int) -> None:
        """Let rows with any of the branch's keys reach the shape. O(keys)."""
        for keys in self._keys_of(branch):
            put(self._leaves.setdefault(keys, {}), condition, shape)

    def remove(self, branch: Branch, condition: Condition | None, shape: int) -> None:
        """Undo `add`. O(keys)."""
        for keys in self._keys_of(branch):
            leaf = self._leaves.get(keys, {})
            take_out(leaf, condition, shape)
            if not leaf:
                self._leaves.pop(keys, None)

    def _keys_of(self, branch: Branch) -> Iterator[Keys]:
        return product(*(branch.choices[column] for column in self.columns))

    def reach(self, batch: BatchColumns) -> Reached | None:
        """The leaves that rows of the batch reach. One lookup for each distinct combination of values in the batch."""
        codes, combinations = self._combinations(batch)
        leaves: list[Leaf] = []
        number_of = np.full(len(combinations) + 1, -1)  # the last one is for rows of which a column is NULL: code -1
        for code, keys in enumerate(combinations):
            leaf = self._leaves.get(keys)
            if leaf is not None:
                number_of[code] = len(leaves)
                leaves.append(leaf)
        return grouped(leaves, number_of[codes])

    def _combinations(self, batch: BatchColumns) -> tuple[Integers, list[Keys]]:
        """A code for each row, and the keys that each code stands for."""
        first, *others = [batch.encoded(column) for column in self.columns]
        codes, lists = first.codes, [first.keys]
        for encoded in others:
            # Numbered anew after each column: the product of some counts would leave 64 bits.
            both = np.where((codes < 0) | (encoded.codes < 0), -1, codes * len(encoded.keys) + encoded.codes)
            distinct, codes = np.unique(both, return_inverse=True)
            if len(distinct) and distinct[0] < 0:
                distinct, codes = distinct[1:], codes - 1
            pairs = list(zip(*(part.tolist() for part in np.divmod(distinct, max(len(encoded.keys), 1))), strict=True))
            lists = [[keys[left] for left, _ in pairs] for keys in lists]
            lists.append([encoded.keys[right] for _, right in pairs])
        return codes, list(zip(*lists, strict=True))


def grouped(leaves: list[Leaf], numbers: Integers) -> Reached | None:
    """Rows by the leaf that each reaches; -1 for none."""
    if not leaves:
        return None
    order = np.argsort(numbers, kind="stable")
    return Reached(leaves, np.bincount(numbers + 1)[1:], order[np.count_nonzero(numbers < 0) :])
