"""Tables of the model: rows, who has changed them, and what the tables look like between two alterations."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

IN_LINE_CHARS_MAX: Final = 8
"""Longer values are stored out of line."""

Row = tuple[str | None, ...]
Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; its number stays when it gets another name."""

    name: str
    type_oid: int
    type_name: str
    number: int
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """A table between two alterations."""

    name: str
    columns: tuple[Column, ...]
    identity: str = "f"

    def key_of(self, row: Row) -> Key:
        return tuple(value for value, column in zip(row, self.columns, strict=True) if column.is_key)

    def named(self, row: Sequence[str | None]) -> dict[str, str | None]:
        """A row with its columns' names."""
        return {column.name: value for column, value in zip(self.columns, row, strict=True)}

    def converted(self, row: Row | None, then: "Version") -> Row | None:
        """A row of an earlier version as one of this: what is new is NULL."""
        if row is None or then.columns is self.columns:
            return row
        values = {column.number: value for column, value in zip(then.columns, row, strict=True)}
        return tuple(values.get(column.number) for column in self.columns)

    def unsent(self, old: Row, new: Row) -> frozenset[str]:
        """The columns that an UPDATE does not send: what is stored out of line, and did not change."""
        pairs = zip(self.columns, old, new, strict=True)
        return frozenset(one.name for one, was, now in pairs if was == now and len(now or "") > IN_LINE_CHARS_MAX)

    def with_column(self, column: Column) -> "Version":
        return replace(self, columns=(*self.columns, column))

    def without(self, column: Column) -> "Version":
        return replace(self, columns=tuple(one for one in self.columns if one is not column))

    def changed(self, column: Column, now: Column) -> "Version":
        return replace(self, columns=tuple(now if one is column else one for one in self.columns))


@dataclass(slots=True, eq=False)
class Relation:
    """A table with its rows as new snapshots see them."""

    oid: int
    version: Version
    is_followed: bool = True
    """Whether anybody asks for shapes of it."""
    first_oid: int = 0
    """Of the table that was dropped, and made anew under another oid, and so on: the first of them."""
    rows: dict[Key, Row] = field(default_factory=dict)
    published_since: int | None = None
    """The number of the alteration of the publication that added it."""
    has_holes: bool = False
    """Somebody else took it out of the publication: what is written now is missing in the stream."""
    owners: dict[Key, object] = field(default_factory=dict)
    """The transaction that changed a row and is not visible yet."""
    locked_by: object | None = None
    """The one that truncated or altered it and is not visible yet."""
    readers: int = 0
    """Open snapshots of the table: nobody empties or alters it meanwhile."""
    columns_made: int = 9
    """Numbers of columns that were given out."""
    leaves: tuple["Relation", ...] = ()
    """Of a partitioned table: all that are, or may be, partitions of it."""
    root: "Relation | None" = None
    """The table that it is a partition of."""
    first_root: "Relation | None" = None
    attached: int = 0
    """By which statement; 0 if it is so from the beginning."""

    def __post_init__(self) -> None:
        self.first_oid = self.first_oid or self.oid

    @property
    def name(self) -> str:
        return self.version.name

    @property
    def is_part(self) -> bool:
        """Whether it is a partitioned table, or may be a partition."""
        return bool(self.leaves) or self.first_root is not None

    @property
    def published(self) -> "Relation":
        """What the publication has for it: a partition is published with its table."""
        return self.root or self

    @property
    def parts(self) -> list["Relation"]:
        """The partitions that it has now."""
        return [leaf for leaf in self.leaves if leaf.root is self]


def rows_of(relation: Relation) -> dict[Key, Row]:
    """A table's rows, those of its partitions included."""
    rows = dict(relation.rows)
    for leaf in relation.parts:
        rows |= {key: relation.version.converted(row, leaf.version) or () for key, row in leaf.rows.items()}
    return rows
