"""Values of rows, which travel as text, as Python has them. Pure.

What Python cannot hold (`infinity` as a date, years before 1) stays the text that it was.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson

Parser = Callable[[str], Any]

NULL: Final = "NULL"
"""In an array; quoted it is a text."""


def parse_value(text: str | None, column: Mapping[str, Any], parsers: Mapping[str, Parser]) -> Any:  # noqa: ANN401 - of any type
    """One value, as its column's entry in the schema says. `parsers`: by names of types."""
    if text is None:
        return None
    parser = parsers.get(column.get("type", ""))
    if parser is None and not column.get("dims"):
        return text
    try:
        return parse_array(text, parser or str) if column.get("dims") else (parser or str)(text)
    except (ValueError, ArithmeticError, LookupError):
        return text


def parse_array(text: str, parser: Parser) -> list[Any]:
    """An array, of whatever depth: `{1,2}`, `{{a,"b c"},{NULL,d}}`."""
    start = text.index("{")  # bounds other than 1 stand before: `[0:1]={..}`
    found, end = _items(text, start + 1, parser)
    if end != len(text):
        raise ValueError("something stands behind the array")
    return found


def _items(text: str, position: int, parser: Parser) -> tuple[list[Any], int]:
    """The items of an array from behind its brace, and where it ends."""
    items: list[Any] = []
    while True:
        character = text[position : position + 1]
        if character == "{":
            inner, position = _items(text, position + 1, parser)
            items.append(inner)
        elif character == '"':
            item, position = _quoted(text, position + 1)
            items.append(parser(item))
        elif character == "}" and not items:
            return items, position + 1
        else:
            end = min(place for place in (text.find(",", position), text.find("}", position)) if place >= 0)
            word = text[position:end]
            items.append(None if word == NULL else parser(word))
            position = end
        if text[position : position + 1] == "}":
            return items, position + 1
        if text[position : position + 1] != ",":
            raise ValueError("an array has no end")
        position += 1


def _quoted(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while text[position] != '"':
        position += text[position] == "\\"
        parts.append(text[position])
        position += 1
        if position >= len(text):
            raise ValueError("a quote has no end")
    return "".join(parts), position + 1


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("not in hexadecimal")
    return bytes.fromhex(text[2:])


def _bool(text: str) -> bool:
    return {"t": True, "true": True, "f": False, "false": False}[text]


PARSERS: Final[Mapping[str, Parser]] = {
    "bool": _bool,
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": float,
    "float8": float,
    "numeric": Decimal,
    "json": orjson.loads,
    "jsonb": orjson.loads,
    "uuid": UUID,
    "bytea": _bytes,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "timestamptz": dt.datetime.fromisoformat,
}
"""What types become; all others stay text."""
