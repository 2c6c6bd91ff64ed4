"""Names of tables and columns as requests write them: folded, quoted, and split where no quote is open. Pure.

The rules are those of SQL, with two differences. What Postgres would cut off in silence, it being too long, is an
error here, since the name that is left could be another table's. And nothing may stand around a name, not even a blank.
"""

import re
from collections.abc import Iterable
from typing import Final

from shapes.errors import DefinitionError
from shapes.limits import IDENTIFIER_CHARACTERS_MAX

DEFAULT_SCHEMA: Final = "public"
"""Of a table that is written without one. The server's search_path has no say: the same text is the same table."""

_PLAIN: Final = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*", re.ASCII)
_CAPITALS: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def parse_table_name(text: str) -> tuple[str, str]:
    """Schema and name of a table."""
    parts = _split(text, ".")
    if len(parts) > 2:
        raise _error("table", f"Invalid relation identifier, too many delimiters: {text}")
    schema, name = parts if len(parts) == 2 else ('"' + DEFAULT_SCHEMA + '"', parts[0])
    return _identifier(schema, "table"), _identifier(name, "table")


def parse_columns(text: str, field: str = "columns") -> tuple[str, ...]:
    """The names of a list with commas, in its order; `field` is the parameter that errors are told of."""
    # Read from its end: where a quote is missing, the part that lacks it is then the one that the error shows.
    parts = [part[::-1] for part in reversed(_split(text[::-1], ","))]
    return tuple(_identifier(part, field) for part in parts)


def column_list(names: Iterable[str]) -> str:
    """Such a list of names as they are: quoted where they would be read as others."""
    return ",".join(name if _is_plain(name) else '"' + name.replace('"', '""') + '"' for name in names)


def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name == name.translate(_CAPITALS)


def _split(text: str, delimiter: str) -> list[str]:
    """The parts between delimiters that stand outside of quotes."""
    parts, start, is_quoted = [], 0, False
    for position, character in enumerate(text):
        if character == '"':
            is_quoted = not is_quoted
        elif character == delimiter and not is_quoted:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _identifier(text: str, field: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        name = _unquoted(text[1:-1], field)
    elif not text or _PLAIN.fullmatch(text):
        name = text.translate(_CAPITALS)  # as Postgres does in UTF-8: other letters keep their case
    else:
        raise _error(field, f"Invalid unquoted identifier contains special characters: {text}")
    if not name:
        raise _error(field, "Invalid zero-length delimited identifier")
    if len(name) > IDENTIFIER_CHARACTERS_MAX:
        raise _error(field, f"Identifier is too long (max length is {IDENTIFIER_CHARACTERS_MAX})")
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in name):
        raise _error(field, f"Invalid identifier with a character that no text in Postgres has: {name!r}")
    return name


def _unquoted(inner: str, field: str) -> str:
    if '"' in inner.replace('""', ""):
        raise _error(field, f"Invalid identifier with unescaped quote: {inner}")
    return inner.replace('""', '"')


def _error(field: str, text: str) -> DefinitionError:
    return DefinitionError(fields={field: [text]})
