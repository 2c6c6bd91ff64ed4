"""What a shape shows of its table: which columns, by which key, and how much of a change.

Shapes with equal views share one table of rows for each fragment, whatever their where clauses are.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """The columns, the key and the replica mode of a shape. Equal views are told the same of a change."""

    columns: tuple[str, ...]
    """In the table's order."""
    key: tuple[str, ...]
    """The primary key's columns, in its order; of a table without one, all of `columns`, sorted by name."""
    full: bool
    """replica=full: an update has the whole row, before and after; a delete the whole row as it was."""
    has_key: bool
    """Whether the table has a primary key."""

    def __post_init__(self) -> None:
        if not self.key or not set(self.key) <= set(self.columns):
            raise ValueError(f"the key {self.key} must be one or more of the columns {self.columns}")
