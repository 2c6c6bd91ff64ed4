"""A shape's columns in the lake: names, types, and the columns that the lake adds. Pure.

What a shape is comes from the catalog, as JSON (`shapes/definition.py` writes it, with a version). Columns of the lake
begin with an underscore:

    changes   _tx, _op    where the change stands in the log
              _kind       insert, update, delete, truncate; refetch: the rows were read anew, changes are missing
              _unchanged  names of the columns that an update did not send: they are what they were
    state     _key        the key in one text, where the key's columns alone cannot give it back
    both      _quarantined  values that their types cannot hold: column, text, reason

Invariant: names are unique in small and capital letters alike, and depend on the columns before them only, so a column
that comes later renames none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pyarrow as pa

from storage.errors import UnknownFormat
from storage.lake.types import LakeType, Reading, lake_type, list_of, specified_type, unique_names

DEFINITION_VERSION: Final = 1
"""Of the catalog's JSON."""

LOG_TX: Final = "_tx"
LOG_OP: Final = "_op"
CHANGE: Final = "_kind"
UNCHANGED: Final = "_unchanged"
QUARANTINED: Final = "_quarantined"
KEY: Final = "_key"

QUARANTINE: Final = list_of(
    pa.struct([pa.field("column", pa.string()), pa.field("text", pa.string()), pa.field("reason", pa.string())])
)

_RESERVED: Final = (LOG_TX, LOG_OP, CHANGE, UNCHANGED, QUARANTINED, KEY)


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column of a shape."""

    source: str
    """Its name in Postgres, and in the log."""
    name: str
    """Its name in the lake."""
    type: LakeType


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one shape's tables."""

    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...]
    """Names in Postgres, in the key's order; empty without a primary key."""
    follows_rows: bool
    """The log begins with all rows, so that a state can be kept; not so for `changes_only`."""

    @classmethod
    def of_definition(cls, definition: Mapping[str, Any]) -> Self:
        """What a shape's definition says; raises `UnknownFormat` for another version's."""
        version = definition.get("version")
        if version != DEFINITION_VERSION:
            raise UnknownFormat("the shape's definition has another version", found=version, known=DEFINITION_VERSION)
        try:
            sources = [str(column[0]) for column in definition["columns"]]
            specs = definition.get("types", {})
            types = [
                specified_type(specs[column[0]]) if column[0] in specs else lake_type(int(column[2]), int(column[3]))
                for column in definition["columns"]
            ]
            key, log = tuple(map(str, definition["key"])), str(definition["log"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UnknownFormat(f"a field of the shape's definition is wrong or missing: {error!r}") from None
        columns = map(LakeColumn, sources, lake_names(sources), types)
        return cls(tuple(columns), key, log != "changes_only")

    @property
    def has_state(self) -> bool:
        """Without a key, rows that are equal cannot be told apart; and a state needs a beginning."""
        return self.follows_rows and bool(self.key)

    @property
    def key_columns(self) -> list[LakeColumn]:
        """The key's columns, in the key's order."""
        by_source = {column.source: column for column in self.columns}
        return [by_source[source] for source in self.key]

    @property
    def stores_key(self) -> bool:
        """Whether state has the column `_key`: two texts of one key may be one value, or none in the lake."""
        return any(not (one.type.is_integer or one.type.reading is Reading.TEXT) for one in self.key_columns)

    @property
    def values(self) -> list[pa.Field]:
        """The shape's own columns."""
        return [pa.field(column.name, column.type.arrow) for column in self.columns]

    def only(self, names: Iterable[str]) -> "TableSchema":
        """The schema without the columns that are not among these."""
        wanted = set(names)
        return replace(self, columns=tuple(column for column in self.columns if column.name in wanted))

    @property
    def changes(self) -> pa.Schema:
        """The columns of the table of changes."""
        numbers = [pa.field(name, pa.int64()) for name in (LOG_TX, LOG_OP)]
        names = pa.field(UNCHANGED, list_of(pa.string()))
        return pa.schema(
            [*numbers, pa.field(CHANGE, pa.string()), *self.values, names, pa.field(QUARANTINED, QUARANTINE)]
        )

    @property
    def state(self) -> pa.Schema:
        """The columns of the table of rows."""
        key = [pa.field(KEY, pa.string())] if self.stores_key else []
        return pa.schema([*self.values, *key, pa.field(QUARANTINED, QUARANTINE)])


def lake_names(sources: Iterable[str]) -> list[str]:
    """A name for each column, none of them one of the lake's own."""
    return unique_names(sources, _RESERVED)
