"""Columns of text as Arrow arrays of values, for kernels.

All of a column, or `pa.ArrowInvalid`: then its rows are read one by one instead.

    int2, int4, int8                   int64
    float4, float8                     double
    numeric                            decimal256(76, 38): what has more digits, or is NaN, does not fit
    bool                               bool
    text, varchar, name, uuid          string
    bpchar                             string without its padding
    date                               int64: days since 2000-01-01
    timestamp, timestamptz             int64: microseconds since 2000-01-01
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shapes.where.tree import Cast, Collate, Column, Constant, Expr
from shapes.where.types import BY_NAME, INTEGERS, Type
from shapes.where.values import datetimes
from shapes.where.values.intervals import DAY
from shapes.where.values.io import reader
from shapes.where.values.strings import strip_padding
from shapes.where.values.value import Invalid

DECIMAL: Final = pa.decimal256(76, 38)
_DAYS: Final = -datetimes.days_of(1970, 1, 1)  # Arrow counts from there
_DAYS_BETWEEN_EPOCHS: Final = pa.scalar(_DAYS, pa.int64())
_MICROS_BETWEEN_EPOCHS: Final = pa.scalar(_DAYS * DAY, pa.int64())
_STRINGS: Final = frozenset({"text", "varchar", "name"})


def native_type(kind: Type) -> pa.DataType | None:
    """The Arrow type of a type's values; None where there is none."""
    return _TYPES.get(kind.name)


def native(kind: Type, texts: pa.StringArray) -> pa.Array:
    """The values of a column's texts."""
    return _READERS[kind.name](texts)


def native_constant(constant: Constant) -> pa.Scalar:
    """A constant as an Arrow scalar; `pa.ArrowInvalid` where it does not fit."""
    kind = native_type(constant.type)
    value = constant.value
    if constant.type.name == "bpchar":
        value = strip_padding(value)
    if constant.type.name == "numeric" and not value.is_finite():
        raise pa.ArrowInvalid("not a decimal")
    return pa.scalar(value, kind)


def direct_column(node: Expr) -> tuple[Column, Type] | None:
    """The column whose texts, read as the type, are the expression's values; None where that cannot be said."""
    match node:
        case Column() if native_type(node.type) is not None:
            return node, node.type
        case Collate():
            return direct_column(node.arg)
        case Cast(arg=Column() as column) if node.typmod < 0 and native_type(node.type) is not None:
            return (column, node.type) if _is_direct(column.type, node.type) else None
    return None


def _is_direct(source: Type, target: Type) -> bool:
    """Whether the text of one type is read as the same value in the other."""
    if source.name in INTEGERS and target.name == "numeric":
        return True
    if source.name in INTEGERS and target.name in INTEGERS:
        return source.name < target.name  # upwards: int2 < int4 < int8
    if target.name == "text":
        return source.name in _STRINGS or source.category in "?E"
    return False


def _integers(texts: pa.StringArray) -> pa.Array:
    return pc.cast(texts, pa.int64())


def _doubles(texts: pa.StringArray) -> pa.Array:
    return pc.cast(texts, pa.float64())


def _singles(texts: pa.StringArray) -> pa.Array:
    return pc.cast(pc.cast(texts, pa.float32()), pa.float64())


def _decimals(texts: pa.StringArray) -> pa.Array:
    return pc.cast(texts, DECIMAL)


def _bools(texts: pa.StringArray) -> pa.Array:
    for true, false in (("t", "f"), ("true", "false")):  # in a stream; of a cast to text
        is_true = pc.equal(texts, true)
        if pc.all(pc.or_(is_true, pc.equal(texts, false))).as_py():
            return is_true
    raise pa.ArrowInvalid("a text is no truth value")


def _itself(texts: pa.StringArray) -> pa.Array:
    return texts


def _unpadded(texts: pa.StringArray) -> pa.Array:
    return pc.utf8_rtrim(texts, characters=" ")


def _dates(texts: pa.StringArray) -> pa.Array:
    def usual(some: pa.StringArray) -> pa.Array:
        return pc.subtract(pc.cast(pc.cast(some, pa.date32()).view(pa.int32()), pa.int64()), _DAYS_BETWEEN_EPOCHS)

    return _usual_or_odd(texts, usual, r"^\d{4}-\d\d-\d\d$", "date")


def _timestamps(texts: pa.StringArray) -> pa.Array:
    return _instants(texts, pa.timestamp("us"), "$", "timestamp")


def _zoned_timestamps(texts: pa.StringArray) -> pa.Array:
    return _instants(texts, pa.timestamp("us", "UTC"), r"\+00$", "timestamptz")


def _instants(texts: pa.StringArray, arrow: pa.DataType, end: str, kind: str) -> pa.Array:
    def usual(some: pa.StringArray) -> pa.Array:
        return pc.subtract(pc.cast(some, arrow).view(pa.int64()), _MICROS_BETWEEN_EPOCHS)

    return _usual_or_odd(texts, usual, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?" + end, kind)


def _usual_or_odd(texts: pa.StringArray, usual: Callable[[pa.StringArray], pa.Array], form: str, kind: str) -> pa.Array:
    """All by a kernel; where that fails, those of the usual form by it, and infinities and the like value by value."""
    try:
        return usual(texts)
    except pa.ArrowInvalid:
        is_odd = pc.fill_null(pc.invert(pc.match_substring_regex(texts, form)), False)
    values = usual(pc.if_else(is_odd, None, texts))
    encoded = texts.filter(is_odd).dictionary_encode()
    read = reader(BY_NAME[kind])
    try:
        distinct = [read(text) for text in encoded.dictionary.to_pylist()]
    except Invalid as error:
        raise pa.ArrowInvalid(str(error)) from None
    return pc.replace_with_mask(values, is_odd, pa.array(distinct, pa.int64()).take(encoded.indices))


_INT64: Final = pa.int64()
_TYPES: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("int2", "int4", "int8", "date", "timestamp", "timestamptz"), _INT64),
    **dict.fromkeys(("float4", "float8"), pa.float64()),
    "numeric": DECIMAL,
    "bool": pa.bool_(),
    **dict.fromkeys(("text", "varchar", "name", "uuid", "bpchar"), pa.string()),
}
_READERS: Final[dict[str, Callable[[pa.StringArray], pa.Array]]] = {
    **dict.fromkeys(("int2", "int4", "int8"), _integers),
    "float4": _singles,
    "float8": _doubles,
    "numeric": _decimals,
    "bool": _bools,
    **dict.fromkeys(("text", "varchar", "name", "uuid"), _itself),
    "bpchar": _unpadded,
    "date": _dates,
    "timestamp": _timestamps,
    "timestamptz": _zoned_timestamps,
}
