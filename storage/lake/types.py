"""Which type a column of Postgres has in the lake. Pure.

A type is decided by what the definition of the shape says of the column, so it is the same everywhere and for ever: by
its oid and typmod, and for a type that is made of others by its specification (`shapes/type_specs.py` writes it). What
is not in the tables below (enums, types of extensions) is text, as Postgres writes it; so is all that is made of others
in definitions that have no specifications, since they were made before there were any.

Invariants:
    every type here can be stored by Parquet, by Delta's protocol, and read by Spark, DuckDB, Polars and pyarrow
    a value either is what Postgres has, or is quarantined with its text (`storage.lake.casts`); none is rounded
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from storage.errors import UnknownFormat

DECIMAL_PRECISION_MAX: Final = 38
"""Digits that 128 bits hold; neither Spark nor Delta has a wider decimal."""


_NOT_ALLOWED: Final = re.compile(r"[ ,;{}()\n\t=]")
"""What Delta's protocol does not take in a name."""


class Reading(StrEnum):
    """How a value's text is read."""

    TEXT = "text"
    ARROW = "arrow"
    """Arrow's own cast from text is exact, and refuses what it cannot read."""
    BOOL = "bool"
    BYTES = "bytes"
    INTERVAL = "interval"
    ARRAY = "array"
    RANGE = "range"
    COMPOSITE = "composite"


@dataclass(frozen=True, slots=True)
class LakeType:
    """A column's type in the lake, and how text becomes it."""

    arrow: pa.DataType
    reading: Reading
    parts: tuple["LakeType", ...] = ()
    """Of an array its element, of a range its bounds, of a composite its fields."""

    @property
    def is_integer(self) -> bool:
        """Whether its order is that of numbers, without exception."""
        return self.reading is Reading.ARROW and bool(pa.types.is_integer(self.arrow))


TEXT: Final = LakeType(pa.string(), Reading.TEXT)
INTERVAL: Final = pa.struct(
    [pa.field("months", pa.int32()), pa.field("days", pa.int32()), pa.field("microseconds", pa.int64())]
)
"""The three numbers that Postgres keeps: none of them can be turned into another."""

_NUMERIC: Final = 1700
_PLAIN: Final[dict[int, LakeType]] = {
    16: LakeType(pa.bool_(), Reading.BOOL),
    17: LakeType(pa.binary(), Reading.BYTES),
    20: LakeType(pa.int64(), Reading.ARROW),
    21: LakeType(pa.int16(), Reading.ARROW),
    23: LakeType(pa.int32(), Reading.ARROW),
    26: LakeType(pa.int64(), Reading.ARROW),  # oid: no unsigned numbers in Delta
    700: LakeType(pa.float32(), Reading.ARROW),
    701: LakeType(pa.float64(), Reading.ARROW),
    1082: LakeType(pa.date32(), Reading.ARROW),
    1114: LakeType(pa.timestamp("us"), Reading.ARROW),
    1184: LakeType(pa.timestamp("us", "UTC"), Reading.ARROW),
    1186: LakeType(INTERVAL, Reading.INTERVAL),
}

_ELEMENTS: Final[dict[int, int]] = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1016: 20,
    1021: 700,
    1022: 701,
    1028: 26,
    1115: 1114,
    1182: 1082,
    1185: 1184,
    1187: 1186,
    1231: _NUMERIC,
    # of text: name, text, char(n), varchar, json, uuid, jsonb, time, timetz, inet, cidr, macaddr
    **dict.fromkeys((1003, 1009, 1014, 1015, 199, 2951, 3807, 1183, 1270, 1041, 651, 1040), 25),
}
"""Built-in arrays, and the type of their elements."""


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list; its elements are called as Delta and Parquet call them."""
    return pa.list_(pa.field("element", kind))


def lake_type(oid: int, typmod: int = -1) -> LakeType:
    """The type of a column with this oid and typmod (of an array, the elements')."""
    if oid == _NUMERIC:
        return _numeric(typmod)
    if oid in _ELEMENTS:
        element = lake_type(_ELEMENTS[oid], typmod)
        return _array(element)
    return _PLAIN.get(oid, TEXT)


def specified_type(spec: Any) -> LakeType:  # noqa: ANN401 - JSON
    """The type that a specification tells; raises `UnknownFormat` for one that is none."""
    try:
        match spec:
            case [oid, typmod]:
                return lake_type(int(oid), int(typmod))
            case {"kind": "enum"}:
                return TEXT
            case {"kind": "array", "of": of}:
                return _array(specified_type(of))
            case {"kind": "range", "of": of}:
                return _range(specified_type(of))
            case {"kind": "composite", "fields": fields}:
                return _composite([(str(name), specified_type(of)) for name, of in fields])
    except (TypeError, ValueError) as error:
        raise UnknownFormat(f"the specification of a type is wrong: {error!r}", found=spec) from None
    raise UnknownFormat("a type has a specification that is not known", found=spec)


def _array(element: LakeType) -> LakeType:
    return LakeType(list_of(element.arrow), Reading.ARRAY, (element,))


def _range(bound: LakeType) -> LakeType:
    fields = [pa.field("lower", bound.arrow), pa.field("upper", bound.arrow), pa.field("bounds", pa.string())]
    return LakeType(pa.struct(fields), Reading.RANGE, (bound, bound))


def _composite(fields: list[tuple[str, LakeType]]) -> LakeType:
    if not fields:
        return TEXT  # neither Parquet nor Delta has a struct without fields
    names = unique_names((name for name, _ in fields), ())
    arrow = pa.struct([pa.field(name, kind.arrow) for name, (_, kind) in zip(names, fields, strict=True)])
    return LakeType(arrow, Reading.COMPOSITE, tuple(kind for _, kind in fields))


def unique_names(sources: Iterable[str], reserved: Iterable[str]) -> list[str]:
    """A name for each source that every engine takes and keeps apart from the others."""
    taken = set(reserved)
    names = []
    for source in sources:
        plain = _NOT_ALLOWED.sub("_", source)
        name, number = plain, 2
        while name.lower() in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return names


def _numeric(typmod: int) -> LakeType:
    """`numeric(p, s)` as a decimal; without precision no decimal holds all values, so it stays text."""
    if typmod < 4:
        return TEXT
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 0x400) - 0x400
    if not (1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
        return TEXT
    return LakeType(pa.decimal128(precision, scale), Reading.ARROW)
