"""What Postgres said of its tables: names, columns, identity; and a version that grows when that changes.

Postgres describes a relation before its first change on each connection, and again whenever it may have changed. So
most descriptions say nothing new, and are no event.

Invariants:
    a relation's version is 1 when it is first seen, and one more at each description that differs from the last
    a new connection forgets which relations were described on it, never the versions
    no change is decoded with a description that did not come on the same connection
"""

import struct
from dataclasses import dataclass, replace
from typing import Final

from cdc.source.errors import ProtocolError

_RELATION_ID: Final = struct.Struct(">I")
_COLUMN_TYPE: Final = struct.Struct(">Ii")
_COLUMN_COUNT: Final = struct.Struct(">H")
_PG_CATALOG: Final = "pg_catalog"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as published: those that are not published do not show at all."""

    name: str
    type_oid: int
    type_modifier: int
    in_identity: bool
    """Part of the replica identity: sent in every old tuple."""
    type_name: str | None = None
    """`schema.name` of a type that is not built in; Postgres names no others."""


@dataclass(frozen=True, slots=True)
class Relation:
    """One version of a table's description."""

    oid: int
    namespace: str
    name: str
    replica_identity: str
    """`d` default, `n` nothing, `f` full, `i` index: as in `pg_class.relreplident`."""
    columns: tuple[Column, ...]
    version: int = 1

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


class Relations:
    """All relations that this process heard of; outlives connections."""

    def __init__(self) -> None:
        self._described: dict[int, Relation] = {}
        self._latest: dict[int, Relation] = {}
        self._type_names: dict[int, str] = {}

    def connected(self) -> None:
        """A new connection describes everything anew."""
        self._described.clear()

    def get(self, oid: int) -> Relation:
        """The relation as described on this connection."""
        relation = self._described.get(oid)
        if relation is None:
            raise ProtocolError("a change of a relation came before its description", relation=oid)
        return relation

    def latest(self, oid: int) -> Relation | None:
        """The relation as last described, on whatever connection."""
        return self._latest.get(oid)

    def describe(self, message: bytes) -> tuple[Relation, Relation | None] | None:
        """Take a Relation message; the new version and the one before, or None where nothing changed."""
        relation = _read_relation(message, self._type_names)
        previous = self._latest.get(relation.oid)
        if previous is not None:
            relation = replace(relation, version=previous.version)
            if relation == previous:
                self._described[relation.oid] = previous
                return None
            relation = replace(relation, version=previous.version + 1)
        self._described[relation.oid] = self._latest[relation.oid] = relation
        return relation, previous

    def name_type(self, message: bytes) -> None:
        """Take a Type message."""
        reader = _Reader(message, 1)
        oid = reader.number(_RELATION_ID)[0]
        namespace, name = reader.text(), reader.text()
        reader.finish()
        self._type_names[oid] = f"{namespace or _PG_CATALOG}.{name}"


def _read_relation(message: bytes, type_names: dict[int, str]) -> Relation:
    reader = _Reader(message, 1)
    oid = reader.number(_RELATION_ID)[0]
    namespace, name = reader.text(), reader.text()
    identity = chr(reader.byte())
    columns = []
    for _ in range(reader.number(_COLUMN_COUNT)[0]):
        flags = reader.byte()
        column_name = reader.text()
        type_oid, modifier = reader.number(_COLUMN_TYPE)
        columns.append(Column(column_name, type_oid, modifier, bool(flags & 1), type_names.get(type_oid)))
    reader.finish()
    # An empty namespace is how pgoutput writes the system catalog.
    return Relation(oid, namespace or _PG_CATALOG, name, identity, tuple(columns))


class _Reader:
    """Walks a description; whatever does not fit is a `ProtocolError`."""

    def __init__(self, message: bytes, position: int) -> None:
        self._message = message
        self._position = position

    def number(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            numbers = layout.unpack_from(self._message, self._position)
        except struct.error:
            raise ProtocolError("a description of a relation or type is cut short") from None
        self._position += layout.size
        return numbers

    def byte(self) -> int:
        if self._position >= len(self._message):
            raise ProtocolError("a description of a relation or type is cut short")
        self._position += 1
        return self._message[self._position - 1]

    def text(self) -> str:
        end = self._message.find(0, self._position)
        if end < 0:
            raise ProtocolError("a description of a relation or type is cut short")
        try:
            text = self._message[self._position : end].decode()
        except UnicodeDecodeError:
            raise ProtocolError("a name is not UTF-8") from None
        self._position = end + 1
        return text

    def finish(self) -> None:
        if self._position != len(self._message):
            raise ProtocolError("a description of a relation or type is longer than what it describes")
