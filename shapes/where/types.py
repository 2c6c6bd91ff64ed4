"""The types that a where clause may speak of, as Postgres sorts them, and a column as the clause sees it.

Domains are not here: whoever describes a column gives the type below its domain.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Collation(Enum):
    """What is known of a column's collation, as far as a comparison outside Postgres needs it."""

    C = "C"
    """`C` or `POSIX`: order by bytes; only the letters A to Z have another case."""
    BYTES = "bytes"
    """Order by bytes, but letters beyond A to Z have another case too: `C.UTF-8`."""
    LANGUAGE = "language"
    """Order and case by a language; equal means equal bytes."""
    LOOSE = "loose"
    """Nondeterministic: other bytes may be equal. Nothing can be said here."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type of Postgres. `name` is the name inside `pg_catalog`; arrays are called as there: `_int4`."""

    name: str
    oid: int
    category: str
    """As in `pg_type`: N number, S text, B bool, D date and time, T interval, U uuid, A array, E enum, X unknown, or
    `?` for types that can only be tested for NULL and cast to text."""
    preferred: bool = False
    element: "Type | None" = None
    """Of an array."""

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element}[]"
        return DISPLAY.get(self.name, self.name)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """What a clause must know of a column: from the relation's description, and for the last two from the catalog."""

    oid: int
    """Of the base type, where the column's type is a domain."""
    typmod: int = -1
    type_name: str | None = None
    """For messages, where the type is not built in."""
    is_enum: bool = False
    collation: Collation = Collation.LANGUAGE


# What Postgres calls them in messages.
DISPLAY: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "bpchar": "character",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}

BOOL: Final = Type("bool", 16, "B", preferred=True)
INT2: Final = Type("int2", 21, "N")
INT4: Final = Type("int4", 23, "N")
INT8: Final = Type("int8", 20, "N")
FLOAT4: Final = Type("float4", 700, "N")
FLOAT8: Final = Type("float8", 701, "N", preferred=True)
NUMERIC: Final = Type("numeric", 1700, "N")
TEXT: Final = Type("text", 25, "S", preferred=True)
VARCHAR: Final = Type("varchar", 1043, "S")
BPCHAR: Final = Type("bpchar", 1042, "S")
NAME: Final = Type("name", 19, "S")
UUID: Final = Type("uuid", 2950, "U")
DATE: Final = Type("date", 1082, "D")
TIME: Final = Type("time", 1083, "D")
TIMESTAMP: Final = Type("timestamp", 1114, "D")
TIMESTAMPTZ: Final = Type("timestamptz", 1184, "D", preferred=True)
INTERVAL: Final = Type("interval", 1186, "T", preferred=True)
UNKNOWN: Final = Type("unknown", 705, "X")
"""A quoted constant or a parameter before its context gave it a type."""

SCALARS: Final = (
    BOOL, INT2, INT4, INT8, FLOAT4, FLOAT8, NUMERIC, TEXT, VARCHAR, BPCHAR, NAME, UUID, DATE, TIME, TIMESTAMP,
    TIMESTAMPTZ, INTERVAL,
)  # fmt: skip
_ARRAY_OIDS: Final = {
    "bool": 1000, "int2": 1005, "int4": 1007, "int8": 1016, "float4": 1021, "float8": 1022, "numeric": 1231,
    "text": 1009, "varchar": 1015, "bpchar": 1014, "name": 1003, "uuid": 2951, "date": 1182, "time": 1183,
    "timestamp": 1115, "timestamptz": 1185, "interval": 1187,
}  # fmt: skip
ARRAYS: Final = {kind.name: Type(f"_{kind.name}", _ARRAY_OIDS[kind.name], "A", element=kind) for kind in SCALARS}
"""The array type of each scalar type, by the scalar's name."""
BY_OID: Final = {kind.oid: kind for kind in (*SCALARS, *ARRAYS.values())}
BY_NAME: Final = {kind.name: kind for kind in (*SCALARS, *ARRAYS.values())}

INTEGERS: Final = frozenset({"int2", "int4", "int8"})
FLOATS: Final = frozenset({"float4", "float8"})
STRINGS: Final = frozenset({"text", "varchar", "bpchar", "name"})


def array_of(element: Type) -> Type:
    """The type of arrays of these elements."""
    return ARRAYS[element.name]


def type_of_column(column: ColumnType) -> Type:
    """The type of a column; one that we cannot calculate with has the category `?`, an enum `E`."""
    known = BY_OID.get(column.oid)
    if known is not None:
        return known
    return Type(column.type_name or f"type {column.oid}", column.oid, "E" if column.is_enum else "?")
