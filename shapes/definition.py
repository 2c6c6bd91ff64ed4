"""What a shape is: a table, some of its columns, a condition on its rows, and how changes are told. Pure.

Here are the facts of a table, which `shapes.tables` reads, and the definition, which `shapes.requests` makes of a
request and those facts. The catalog stores a definition as JSON, with a version.

Invariants:
    equal definitions have equal identities, whatever the request's spelling: order of columns, case, parameters
    a definition says all that decides whether a change of its table concerns it (`shapes.relevance`), so it outlives
    the process without the table's facts
    `columns` are in the table's order and have every column of `key`
    from_json(to_json(definition)) == definition
    what types are made of is told beside, and is no part of what a shape is: older definitions do not have it
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import orjson

from shapes.errors import DefinitionUnreadable
from shapes.views import View
from shapes.where.types import Collation, ColumnType

VERSION: Final = 1
"""Of the JSON. Another meaning of a field is another version."""


class Replica(StrEnum):
    """What is told of an update. Stored."""

    DEFAULT = "default"
    """The key, and the columns that changed."""
    FULL = "full"
    """The whole row, and the one before."""


class LogMode(StrEnum):
    """Where a reader begins. Stored."""

    FULL = "full"
    """With the rows that are there."""
    CHANGES_ONLY = "changes_only"
    """With an empty base: only what changes from then on."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the catalog of Postgres has it."""

    name: str
    number: int
    """`attnum`: a column that is dropped and added again has another."""
    type_oid: int
    type_name: str
    typmod: int = -1
    dims: int = 0
    """As declared; above 0 for every array."""
    element_name: str | None = None
    """The type of an array's elements."""
    base_oid: int = 0
    """The type below a domain; else the type itself (0 stands for it)."""
    base_typmod: int = -1
    labels: tuple[str, ...] | None = None
    """Of an enum, in its order."""
    collation: Collation = Collation.LANGUAGE
    not_null: bool = False
    pk_index: int | None = None
    generated: str = ""
    """`s` stored, `v` virtual (never sent), as in `pg_attribute.attgenerated`; empty for an ordinary column."""
    spec: Any = field(default=None, compare=False)
    """What its type is made of (`shapes.type_specs`); None if the oid says all."""
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """The labels of each enum in its type, by the enum's oid."""

    @property
    def for_where(self) -> ColumnType:
        """What a where clause must know of it."""
        oid, typmod = (self.base_oid, self.base_typmod) if self.base_oid else (self.type_oid, self.typmod)
        return ColumnType(oid, typmod, self.type_name, self.labels is not None, self.collation)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the catalog of Postgres has it."""

    oid: int
    schema: str
    name: str
    kind: str
    """`pg_class.relkind`: r(elation), p(artitioned), and those that cannot be followed."""
    persistence: str
    replica_identity: str
    """`pg_class.relreplident`; that of a partitioned table is never used, its leaves each have their own."""
    columns: tuple[TableColumn, ...]
    """In the table's order."""
    root: int = 0
    """The topmost table of its partitions; itself if it is none."""
    leaves: tuple[int, ...] = ()
    """Of a partitioned table: the partitions that hold rows, at whatever depth."""
    silent: tuple[str, ...] = ()
    """The names of those that write no logical changes: unlogged ones, and foreign tables."""

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key's columns, in the key's order. A deferrable key is none: it may be violated for a while."""
        keyed = ((column.pk_index, column.name) for column in self.columns if column.pk_index is not None)
        return tuple(name for _, name in sorted(keyed))

    def __str__(self) -> str:
        return f'"{self.schema}"."{self.name}"'


class DefinedColumn(NamedTuple):
    """A column as it was when the shape was defined."""

    name: str
    number: int
    type_oid: int
    typmod: int


@dataclass(frozen=True, slots=True)
class Definition:
    """What a shape is."""

    oid: int
    schema: str
    table: str
    key: tuple[str, ...]
    """The primary key's columns, in the key's order; empty if the table has none."""
    columns: tuple[DefinedColumn, ...]
    """Those that are selected."""
    selects_all: bool
    """The request named no columns, so it is about whatever columns there are."""
    where: str | None = None
    """Canonical, with its parameters bound: part of SQL as it stands."""
    where_columns: tuple[DefinedColumn, ...] = ()
    """Those that the clause reads, by name."""
    replica: Replica = Replica.DEFAULT
    log: LogMode = LogMode.FULL
    specs: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What the types of columns are made of, for those whose oids do not say it (`shapes.type_specs`)."""
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """The labels of each enum in the columns that are selected or read, by the enum's oid: one may be renamed."""

    @property
    def view(self) -> View:
        """The columns and the key of its rows, and how changes are told."""
        names = tuple(column.name for column in self.columns)
        return View(names, self.key or tuple(sorted(names)), self.replica is Replica.FULL, bool(self.key))

    @property
    def needs_full_identity(self) -> bool:
        """Whether rows must be known as they were before a change."""
        return self.where is not None or self.replica is Replica.FULL

    @property
    def identity(self) -> str:
        """64 hexadecimal digits, the same for equal definitions and no others, in every process."""
        facts = {name: value for name, value in self.to_json().items() if name not in {"types", "enums"}}
        return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """For the catalog."""
        return {
            "version": VERSION,
            "oid": self.oid,
            "schema": self.schema,
            "table": self.table,
            "key": [*self.key],
            "columns": [[*column] for column in self.columns],
            "selects_all": self.selects_all,
            "where": self.where,
            "where_columns": [[*column] for column in self.where_columns],
            "replica": str(self.replica),
            "log": str(self.log),
            **({"types": dict(self.specs)} if self.specs else {}),
            **({"enums": {oid: [*labels] for oid, labels in self.enums.items()}} if self.enums else {}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` wrote; raises `DefinitionUnreadable` for all else."""
        version = content.get("version")
        if version != VERSION:
            raise DefinitionUnreadable("the definition has another version", found=version, known=VERSION)
        try:
            return cls(
                oid=int(content["oid"]),
                schema=str(content["schema"]),
                table=str(content["table"]),
                key=tuple(content["key"]),
                columns=tuple(DefinedColumn(*column) for column in content["columns"]),
                selects_all=bool(content["selects_all"]),
                where=content["where"],
                where_columns=tuple(DefinedColumn(*column) for column in content["where_columns"]),
                replica=Replica(content["replica"]),
                log=LogMode(content["log"]),
                specs=dict(content.get("types", {})),
                enums={oid: tuple(labels) for oid, labels in content.get("enums", {}).items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DefinitionUnreadable(f"a field of the definition is wrong or missing: {error!r}") from None

    def __str__(self) -> str:
        return f'"{self.schema}"."{self.table}"' + (f" WHERE {self.where}" if self.where else "")
