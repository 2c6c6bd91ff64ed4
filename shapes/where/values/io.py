"""One table for all types: how a value is read, written and ordered."""

from collections.abc import Callable
from typing import Final

from shapes.where.types import Type
from shapes.where.values import arrays, datetimes, intervals, numbers, strings
from shapes.where.values.value import Invalid, Value

Read = Callable[[str], Value]
Write = Callable[[Value], str]
Key = Callable[[Value], Value]

_TRUE: Final = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
_FALSE: Final = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})


def read_bool(text: str) -> bool:
    """A truth value in any of its spellings."""
    stripped = text.strip().lower()
    if stripped in _TRUE:
        return True
    if stripped in _FALSE:
        return False
    raise Invalid(f'invalid input syntax for type boolean: "{text}"')


def read_uuid(text: str) -> str:
    """Small letters, hyphens after 8, 12, 16 and 20 digits; read with hyphens after any four digits, and in braces."""
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    digits = ""
    for place, letter in enumerate(inner):
        if letter == "-":
            if not digits or len(digits) % 4 or inner[place - 1] == "-" or len(digits) == 32:
                raise Invalid(f'invalid input syntax for type uuid: "{text}"')
        elif letter in "0123456789abcdefABCDEF":
            digits += letter
        else:
            raise Invalid(f'invalid input syntax for type uuid: "{text}"')
    if len(digits) != 32:
        raise Invalid(f'invalid input syntax for type uuid: "{text}"')
    digits = digits.lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _write_bool(value: bool) -> str:  # noqa: FBT001 - it is a value here
    return "t" if value else "f"


def _float_key(value: float) -> tuple[bool, float]:
    return (True, 0.0) if value != value else (False, value)  # noqa: PLR0124 - only NaN differs from itself


def _numeric_key(value: Value) -> tuple[bool, Value]:
    return (True, 0) if value.is_nan() else (False, value)


def _itself(value: Value) -> Value:
    return value


_READ: Final[dict[str, Read]] = {
    "bool": read_bool,
    **{kind: lambda text, kind=kind: numbers.read_integer(text, kind) for kind in ("int2", "int4", "int8")},  # type: ignore[misc]  # a default binds the name
    "float4": numbers.read_float4,
    "float8": numbers.read_float8,
    "numeric": numbers.read_numeric,
    "text": str,
    "varchar": str,
    "bpchar": str,
    "name": strings.to_name,
    "uuid": read_uuid,
    "date": datetimes.read_date,
    "time": datetimes.read_time,
    "timestamp": lambda text: datetimes.read_timestamp(text, "timestamp"),
    "timestamptz": lambda text: datetimes.read_timestamp(text, "timestamptz"),
    "interval": intervals.read_interval,
}
_WRITE: Final[dict[str, Write]] = {
    "bool": _write_bool,
    **dict.fromkeys(("int2", "int4", "int8"), str),
    "float4": lambda value: numbers.write_float(value, "float4"),
    "float8": lambda value: numbers.write_float(value, "float8"),
    "numeric": numbers.write_numeric,
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "uuid"), str),
    "date": datetimes.write_date,
    "time": datetimes.write_time,
    "timestamp": lambda value: datetimes.write_timestamp(value, "timestamp"),
    "timestamptz": lambda value: datetimes.write_timestamp(value, "timestamptz"),
    "interval": intervals.write_interval,
}
_KEYS: Final[dict[str, Key]] = {
    "float4": _float_key,
    "float8": _float_key,
    "numeric": _numeric_key,
    **dict.fromkeys(("text", "varchar", "name"), str.encode),
    "bpchar": lambda value: strings.strip_padding(value).encode(),
    "interval": lambda value: value.length,
}


def reader(kind: Type) -> Read:
    """What turns a text of this type into its value; it raises `Invalid`."""
    if kind.element is not None:
        read_element = _READ[kind.element.name]
        return lambda text: arrays.read_array(text, read_element)
    return _READ[kind.name]


def writer(kind: Type) -> Write:
    """What turns a value of this type into the text that Postgres would send."""
    if kind.element is not None:
        write_element = _WRITE[kind.element.name]
        return lambda value: arrays.write_array(value, write_element)
    return _WRITE[kind.name]


def sort_key(kind: Type) -> Key:
    """What orders values of this type, and of those that are compared with it; text goes by its bytes."""
    if kind.element is not None:
        element_key = _KEYS.get(kind.element.name, _itself)
        return lambda value: arrays.array_key(value, element_key)
    return _KEYS.get(kind.name, _itself)
