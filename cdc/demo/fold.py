"""Rows out of changes, and strictly: whatever came twice, or was left out, is found. Pure.

Invariants:
    an insert meets no row of its key, an update and a delete meet one: else `Mismatch`
    positions of changes grow; `changes` counts those behind the snapshot
"""

from collections.abc import Iterable
from typing import Any

from shapes.client_state import Batch, Change

Rows = dict[tuple[Any, ...], tuple[Any, ...]]
"""Rows by their keys, each with its values in the table's order."""


class Mismatch(Exception):
    """Somebody has something else than Postgres."""


class Fold:
    """One reader's rows of one shape."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[str, dict[str, Any]] = {}
        self.changes = 0
        """Behind the snapshot."""
        self.restarts = 0
        """How often the shape began anew; then the changes before it were not all seen."""
        self.is_up_to_date = False
        self._position = (0, -1)

    def take(self, batch: Batch) -> None:
        """What one answer brought. Raises `Mismatch`."""
        if batch.must_refetch:
            self.rows.clear()
            self.changes, self._position = 0, (0, -1)
            self.restarts += 1
        for change in batch.changes:
            self._apply(change)
        self.is_up_to_date = batch.is_up_to_date

    def keyed(self, key: Iterable[str], columns: Iterable[str]) -> Rows:
        """The rows, to be compared."""
        names, columns = tuple(key), tuple(columns)
        return {
            tuple(row[name] for name in names): tuple(row.get(name) for name in columns) for row in self.rows.values()
        }

    def _apply(self, change: Change) -> None:
        if "lsn" in change.headers:  # rows of the snapshot have none
            position = int(change.headers["lsn"]), int(change.headers.get("op_position", 0))
            if position <= self._position:
                raise Mismatch(f"{self.name}: a change came twice: {change.key} at {_text(position)}")
            self._position = position
            self.changes += 1
        is_there = change.key in self.rows
        if is_there == (change.operation == "insert"):
            state = "is there already" if is_there else "is not there"
            raise Mismatch(f"{self.name}: {change.operation} of {change.key}, which {state}")
        if change.operation == "delete":
            del self.rows[change.key]
        else:
            self.rows[change.key] = {**self.rows.get(change.key, {}), **change.value}


def compare(name: str, where: str, found: Rows, wanted: Rows) -> None:
    """Raise `Mismatch` unless both are the same; it tells of one row."""
    for key, row in wanted.items():
        if found.get(key) != row:
            raise Mismatch(f"{name}: {where} has {found.get(key, 'no row')} for the key {key}, and Postgres {row}")
    for key, row in found.items():
        if key not in wanted:
            raise Mismatch(f"{name}: {where} has {row}, and Postgres has no row of this key")


def _text(position: tuple[int, int]) -> str:
    return f"{position[0]}_{position[1]}"
