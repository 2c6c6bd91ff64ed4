"""The index of one table: its shapes, and where each of them stands.

Invariants:
    there is an index exactly for each kind of branch that some shape has
    a shape is found again, for removal, by what it was added with: nothing is searched
"""

from typing import Protocol, TypeAlias

import numpy as np

from shapes.index_branches import Branch, branches_of
from shapes.index_columns import BatchColumns
from shapes.index_conditions import Condition, Conditions
from shapes.index_elements import ElementIndex
from shapes.index_equality import EqualityIndex
from shapes.index_every_row import EveryRow
from shapes.index_keys import KeyedColumn
from shapes.index_leaves import Reached, Sifted
from shapes.index_numbers import Integers
from shapes.index_sift import sift
from shapes.where.tree import Expr

Kind: TypeAlias = KeyedColumn | frozenset[KeyedColumn]
"""A column of arrays, or columns that have values; no columns: every row."""


class Index(Protocol):
    """From rows to leaves, by one kind of branch."""

    def __len__(self) -> int: ...
    def add(self, branch: Branch, condition: Condition | None, shape: int) -> None: ...
    def remove(self, branch: Branch, condition: Condition | None, shape: int) -> None: ...
    def reach(self, batch: BatchColumns) -> Reached | None: ...


class TableIndex:
    """The shapes of one table."""

    def __init__(self) -> None:
        self._indexes: dict[Kind, Index] = {}
        self._conditions = Conditions()
        self._standing: dict[int, list[tuple[Branch, Condition | None]]] = {}
        self._conditional: set[int] = set()

    def __len__(self) -> int:
        return len(self._standing)

    @property
    def has_clauses(self) -> bool:
        """Whether some shape has one."""
        return bool(self._conditional)

    def shapes(self) -> Integers:
        """All of them, ascending."""
        return np.sort(np.fromiter(self._standing, np.int64, len(self._standing)))

    def conditional(self) -> Integers:
        """Those with a clause, ascending."""
        return np.sort(np.fromiter(self._conditional, np.int64, len(self._conditional)))

    def add(self, shape: int, where: Expr | None) -> None:
        """Let a shape join."""
        standing = [(branch, self._conditions.take(branch.rest)) for branch in branches_of(where)]
        for branch, condition in standing:
            kind = _kind(branch)
            index = self._indexes.get(kind)
            if index is None:
                index = self._indexes[kind] = _index(branch)
            index.add(branch, condition, shape)
        self._standing[shape] = standing
        if where is not None:
            self._conditional.add(shape)

    def remove(self, shape: int) -> None:
        """Let a shape leave."""
        standing = self._standing.pop(shape)
        for branch, condition in standing:
            kind = _kind(branch)
            index = self._indexes.get(kind)
            if index is not None:  # it may have gone with another branch
                index.remove(branch, condition, shape)
                if not len(index):
                    del self._indexes[kind]
            self._conditions.release(condition)
        self._conditional.discard(shape)

    def match(self, batch: BatchColumns) -> Sifted:
        """Which shapes want which rows."""
        reached = [index.reach(batch) for index in self._indexes.values()]
        return sift(filter(None, reached), batch.questions)


def _kind(branch: Branch) -> Kind:
    """What index the branch stands in."""
    if branch.elements is not None:
        return branch.elements.column
    return frozenset(branch.choices)


def _index(branch: Branch) -> Index:
    if branch.elements is not None:
        return ElementIndex(branch.elements.column)
    return EqualityIndex(tuple(branch.choices)) if branch.choices else EveryRow()
