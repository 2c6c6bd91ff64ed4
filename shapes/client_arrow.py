"""Rows as an Arrow table, from which data frames are made. Pure.

A column has the type that the shape's schema names, whatever rows there are, so that tables of two moments can be put
together. Where a value does not fit it (`infinity` as a date, a number of a parser of one's own) the column has
Arrow's own type for what is in it, and text where there is none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
_JSON: Final = frozenset({"json", "jsonb"})
_DIGITS_MAX: Final = 38
_WIDE_DIGITS_MAX: Final = 76
"""Of Arrow's two decimals."""

_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError)


def to_arrow(schema: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table of these columns."""
    arrays = [_array(column, [row.get(name) for row in rows]) for name, column in schema.items()]
    return pa.table(arrays, names=list(schema))


def _array(column: Mapping[str, Any], values: list[Any]) -> pa.Array:
    kind, dims = column.get("type", ""), column.get("dims", 0)
    if kind in _JSON and not dims:
        return pa.array([None if value is None else _json(value) for value in values], pa.string())
    wanted = _type_of(column)
    if kind == "uuid" and not dims:
        values = _texts(values)
    if not all(_fits(value, dims) for value in values):
        wanted = None  # Postgres holds nobody to `dims`, and Arrow would take a text for a list of letters
    for _ in range(dims if wanted is not None else 0):
        wanted = pa.list_(wanted)
    try:
        return pa.array(values, wanted)
    except _MISFITS:
        pass
    try:
        return pa.array(values)
    except _MISFITS:
        return pa.array(_texts(values), pa.string())


def _type_of(column: Mapping[str, Any]) -> pa.DataType | None:
    """Of one element; None: Arrow shall find out."""
    kind = column.get("type", "")
    if kind == "numeric":
        precision, scale = column.get("precision", 0), column.get("scale", 0)
        is_decimal = 0 < precision <= _WIDE_DIGITS_MAX and 0 <= scale <= precision
        if not is_decimal:
            return None
        return pa.decimal128(precision, scale) if precision <= _DIGITS_MAX else pa.decimal256(precision, scale)
    if kind in _JSON:
        return None
    return _TYPES.get(kind, pa.string())


def _fits(value: Any, dims: int) -> bool:  # noqa: ANN401 - of any type
    if value is None or not dims:
        return not isinstance(value, list)
    return isinstance(value, list) and all(_fits(item, dims - 1) for item in value)


def _texts(values: Iterable[Any]) -> list[str | None]:
    return [None if value is None else _text(value) for value in values]


def _text(value: Any) -> str:  # noqa: ANN401 - as above
    return _json(value) if isinstance(value, dict | list | bool) else str(value)


def _json(value: Any) -> str:  # noqa: ANN401 - as above
    return orjson.dumps(value, default=str).decode()
