"""What subscribers are told of a table's columns: the protocol's header `electric-schema`. Pure.

A type's modifier is one integer whose bits mean something else for each type; here it becomes what was written in
CREATE TABLE: lengths, precision and scale, the fields of an interval.
"""

from collections.abc import Iterable
from typing import Any, Final

from shapes.definition import TableColumn

_HEADER_SIZE: Final = 4
"""Lengths of text and precisions of numerics are stored with the size of a value's header added."""

_SHORT: Final = 0xFFFF
_INTERVAL_FIELDS: Final = {"YEAR": 2, "MONTH": 1, "DAY": 3, "HOUR": 10, "MINUTE": 11, "SECOND": 12}
"""The bit of each field in the upper half of an interval's modifier, from the largest field to the smallest."""

_ALL_FIELDS: Final = 0x7FFF
_TIMES: Final = frozenset({"time", "timetz", "timestamp", "timestamptz"})


def column_schemas(columns: Iterable[TableColumn]) -> dict[str, dict[str, Any]]:
    """The header's content, for these columns."""
    return {column.name: column_schema(column) for column in columns}


def column_schema(column: TableColumn) -> dict[str, Any]:
    """What is told of one column; facts that say nothing are left out."""
    type_name = column.element_name if column.dims and column.element_name else column.type_name
    schema: dict[str, Any] = {"type": type_name}
    if column.dims:
        schema["dims"] = column.dims
    if column.pk_index is not None:
        schema["pk_index"] = column.pk_index
    if column.not_null:
        schema["not_null"] = True
    if column.typmod >= 0:
        schema |= _modifier(type_name, column.typmod)
    return schema


def _modifier(type_name: str, typmod: int) -> dict[str, Any]:
    match type_name:
        case "varchar":
            return {"max_length": typmod - _HEADER_SIZE}
        case "bpchar":
            return {"length": typmod - _HEADER_SIZE}
        case "bit" | "varbit":
            return {"length": typmod}
        case "numeric":
            return _numeric(typmod - _HEADER_SIZE)
        case "interval":
            return _interval(typmod)
        case _ if type_name in _TIMES:
            return {"precision": typmod}
        case _:
            return {"type_mod": typmod}  # only the type's own code knows what it means


def _numeric(packed: int) -> dict[str, Any]:
    # The scale has 11 bits and may be negative since Postgres 15: numeric(2, -3) holds thousands.
    scale = packed & 0x7FF
    return {"precision": packed >> 16, "scale": scale - 0x800 if scale & 0x400 else scale}


def _interval(typmod: int) -> dict[str, Any]:
    fields, precision = typmod >> 16, typmod & _SHORT
    schema: dict[str, Any] = {}
    if precision != _SHORT:
        schema["precision"] = precision
    names = [name for name, bit in _INTERVAL_FIELDS.items() if fields & 1 << bit]
    if names and fields != _ALL_FIELDS:
        schema["fields"] = names[0] if len(names) == 1 else f"{names[0]} TO {names[-1]}"
    return schema
