"""Which type becomes which, when Postgres does it by itself, and how the value changes.

Postgres converts by itself ("implicit") upwards only; where a clause says so ("explicit"), also downwards, and between
anything and text by way of the text that it would send.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from shapes.where.types import FLOATS, INTEGERS, TEXT, Type
from shapes.where.values import arrays, datetimes, numbers, strings
from shapes.where.values.intervals import DAY, Interval
from shapes.where.values.io import reader, writer
from shapes.where.values.value import Invalid, Value

Convert = Callable[[Value], Value]

_IMPLICIT: Final = {
    "int2": {"int4", "int8", "float4", "float8", "numeric"},
    "int4": {"int8", "float4", "float8", "numeric"},
    "int8": {"float4", "float8", "numeric"},
    "numeric": {"float4", "float8"},
    "float4": {"float8"},
    "text": {"varchar", "bpchar", "name"},
    "varchar": {"text", "bpchar", "name"},
    "bpchar": {"text", "varchar", "name"},
    "name": {"text"},
    "date": {"timestamp", "timestamptz"},
    "timestamp": {"timestamptz"},
    "time": {"interval"},
}
_EXPLICIT: Final = {
    "int8": {"int2", "int4"},
    "int4": {"int2", "bool"},
    "bool": {"int4"},
    "numeric": {"int2", "int4", "int8"},
    "float4": {"int2", "int4", "int8", "numeric"},
    "float8": {"int2", "int4", "int8", "numeric", "float4"},
    "name": {"varchar", "bpchar"},
    "timestamp": {"date", "time"},
    "timestamptz": {"date", "time", "timestamp"},
    "interval": {"time"},
}


def is_implicit(source: Type, target: Type) -> bool:
    """Whether Postgres converts by itself."""
    if source.name == target.name:
        return True
    if source.element is not None and target.element is not None:
        return is_implicit(source.element, target.element)
    return target.name in _IMPLICIT.get(source.name, ())


def is_explicit(source: Type, target: Type) -> bool:
    """Whether a cast that is written is known."""
    if is_implicit(source, target) or target.name in _EXPLICIT.get(source.name, ()):
        return True
    if source.element is not None and target.element is not None:
        return is_explicit(source.element, target.element)
    return target.category == "S" or (source.category == "S" and target.category not in "?E")


def common_type(kinds: Sequence[Type]) -> Type | None:
    """The type that all can become, chosen as Postgres does for IN, COALESCE and the like; None if there is none."""
    known = [kind for kind in kinds if kind.category != "X"]
    if not known:
        return TEXT
    chosen = known[0]
    for kind in known[1:]:
        if kind == chosen:
            continue
        if kind.category != chosen.category:
            return None
        if not chosen.preferred and is_implicit(chosen, kind) and not is_implicit(kind, chosen):
            chosen = kind
    return chosen if all(is_implicit(kind, chosen) for kind in known) else None


def conversion(source: Type, target: Type, typmod: int = -1) -> Convert:
    """How a value (not NULL) changes; it may raise `Invalid`."""
    if source.element is not None and target.element is not None:
        element = conversion(source.element, target.element, typmod)

        def convert_array(value: arrays.Array) -> arrays.Array:
            items = tuple(None if item is None else element(item) for item in value.items)
            return arrays.Array(items, value.dims, value.lower)

        return convert_array
    change = _change(source, target)
    adjust = _adjust(target, typmod)
    return change if adjust is None else lambda value: adjust(change(value))


def _change(source: Type, target: Type) -> Convert:
    pair = source.name, target.name
    if source.name == target.name:
        return _same
    if pair in _CHANGES:
        return _CHANGES[pair]
    if target.category == "S":
        return _to_string(source, target)
    return reader(target)


def _to_string(source: Type, target: Type) -> Convert:
    if source.category in "?E":
        write: Convert = _same  # as Postgres sent it
    elif source.name == "bool":
        write = _bool_text
    elif source.name == "bpchar" and target.name != "bpchar":
        write = strings.strip_padding
    else:
        write = writer(source)
    if target.name != "name":
        return write
    return lambda value: strings.to_name(write(value))


def _adjust(target: Type, typmod: int) -> Convert | None:
    if typmod < 0:
        return None
    if target.name in ("varchar", "bpchar"):
        return lambda value: strings.to_length(value, typmod, pad=target.name == "bpchar", explicit=True)
    if target.name == "numeric":
        return lambda value: numbers.round_numeric(value, typmod)
    if target.name in ("time", "timestamp", "timestamptz"):
        return lambda value: datetimes.round_micros(value, typmod)
    return None


def _same(value: Value) -> Value:
    return value


def _bool_text(value: Value) -> str:
    return "true" if value else "false"


def _interval_to_time(value: Interval) -> int:
    value.must_be_finite()
    return value.micros % DAY


def _to_float4(value: Value) -> float:
    return numbers.read_float4(writer_text(value))


def writer_text(value: Value) -> str:
    """A number's digits."""
    return str(value) if isinstance(value, int) else numbers.write_numeric(value)


def _numeric_to_float(kind: str) -> Convert:
    read = numbers.read_float4 if kind == "float4" else numbers.read_float8
    return lambda value: read(numbers.write_numeric(value))


def _changes() -> dict[tuple[str, str], Convert]:
    found: dict[tuple[str, str], Convert] = {
        ("bool", "int4"): int,
        ("int4", "bool"): bool,
        ("float4", "float8"): _same,
        ("float8", "float4"): numbers.float8_to_float4,
        ("date", "timestamp"): datetimes.date_to_timestamp,
        ("date", "timestamptz"): datetimes.date_to_timestamp,
        ("timestamp", "timestamptz"): _same,
        ("timestamptz", "timestamp"): _same,
        ("timestamp", "date"): datetimes.timestamp_to_date,
        ("timestamptz", "date"): datetimes.timestamp_to_date,
        ("timestamp", "time"): datetimes.timestamp_to_time,
        ("timestamptz", "time"): datetimes.timestamp_to_time,
        ("time", "interval"): lambda micros: Interval(0, 0, micros),
        ("interval", "time"): _interval_to_time,
    }
    for kind in INTEGERS:
        found |= {(kind, other): _integer(other) for other in INTEGERS}
        found[kind, "float4"] = _to_float4
        found[kind, "float8"] = float
        found[kind, "numeric"] = Decimal
        found["numeric", kind] = _numeric_to_integer(kind)
        found |= {(real, kind): _float_to_integer(kind) for real in FLOATS}
    for real in FLOATS:
        found["numeric", real] = _numeric_to_float(real)
        found[real, "numeric"] = _float_to_numeric(real)
    return found


def _integer(kind: str) -> Convert:
    return lambda value: numbers.in_range(value, kind)


def _float_to_integer(kind: str) -> Convert:
    return lambda value: numbers.float_to_integer(value, kind)


def _numeric_to_integer(kind: str) -> Convert:
    return lambda value: numbers.numeric_to_integer(value, kind)


def _float_to_numeric(kind: str) -> Convert:
    return lambda value: numbers.float_to_numeric(value, kind)


_CHANGES: Final = _changes()


def read_constant(text: str, target: Type, typmod: int = -1) -> Value:
    """A quoted constant as a value of this type, as the server would read it; refused where versions differ."""
    value = reader(target)(text)
    leaf = target.element or target
    if leaf.name == "interval" and "infinity" in text.lower():
        raise Invalid("infinite intervals are not known to all versions of Postgres")
    return conversion(target, target, typmod)(value)
