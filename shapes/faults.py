"""Which shapes cannot be told of a fragment's changes, and why.

A shape is excused where its snapshot has all the transactions at fault: it is not told of them anyway. So a replay from
before a shape's birth, when its table had another replica identity, ends no shape.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cdc.source.numbers import Integers
from cdc.source.relations import Relation
from storage.errors import StorageError

Excuse = Callable[[int, Integers], bool]
"""Whether a shape's snapshot has all of these transactions, by their ordinals in the fragment."""

_SET_FULL: Final = "Run ALTER TABLE {} REPLICA IDENTITY FULL, then ask for the shape again."


@dataclass(frozen=True, slots=True)
class ShapeFault:
    """Why a shape ends."""

    code: str
    text: str
    hint: str
    """Empty where the text ends with it."""


def log_stopped(fault: StorageError) -> ShapeFault:
    """Its log is damaged, or takes no more rows."""
    return ShapeFault(fault.code, str(fault), "")


def old_row_missing(relation: Relation) -> ShapeFault:
    """A where clause or replica=full needs the row before, and a change came without."""
    text = f"a change of {relation} came without the row as it was, which a where clause and replica=full need"
    return ShapeFault("old_row_missing", text, _SET_FULL.format(relation))


def key_unknown(relation: Relation) -> ShapeFault:
    """The key is not part of the replica identity."""
    text = f"a change of {relation} does not tell the key of its row: the replica identity has other columns"
    return ShapeFault("key_unknown", text, _SET_FULL.format(relation))


def key_change_incomplete(relation: Relation) -> ShapeFault:
    """The row under its new key has a value that was not sent."""
    text = f"the key of a row of {relation} changed, and a long value that did not change was not sent"
    return ShapeFault("key_change_incomplete", text, _SET_FULL.format(relation))


def where_failed(relation: Relation, reason: str) -> ShapeFault:
    """Nobody can say whether the shape wants a row."""
    text = f"the where clause failed for a row of {relation}: {reason}"
    return ShapeFault("where_failed", text, "Ask for a shape whose clause can be evaluated for every row.")


def column_missing(relation: Relation, names: Iterable[str]) -> ShapeFault:
    """The table, or what is published of it, has another definition than the shape."""
    text = f"changes of {relation} come without the columns {', '.join(sorted(names))}"
    return ShapeFault("column_missing", text, "Ask for the shape again: the table's definition has changed.")


class Faults:
    """The faults of one table's changes in one fragment. Of several reasons the first counts."""

    def __init__(self, ordinals: Integers) -> None:
        self._ordinals = ordinals
        self._reasons: dict[int, ShapeFault] = {}
        self._transactions: dict[int, list[Integers]] = {}

    def add(self, shapes: Iterable[int], rows: Integers, reason: ShapeFault) -> None:
        """None of these shapes can be told of any of these rows."""
        transactions = np.unique(self._ordinals[rows])
        for shape in shapes:
            self._reasons.setdefault(shape, reason)
            self._transactions.setdefault(shape, []).append(transactions)

    def add_pairs(self, shapes: Integers, rows: Integers, reason: ShapeFault) -> None:
        """The shape at each place cannot be told of the row at the same place; ascending by shape."""
        firsts = np.flatnonzero(np.diff(shapes, prepend=-1))
        for shape, rows_of_shape in zip(shapes[firsts].tolist(), np.split(rows, firsts[1:]), strict=True):
            self.add([shape], rows_of_shape, reason)

    def without_excused(self, is_excused: Excuse) -> dict[int, ShapeFault]:
        """The shapes that have to end."""
        return {
            shape: reason
            for shape, reason in self._reasons.items()
            if not is_excused(shape, np.unique(np.concatenate(self._transactions[shape])))
        }
