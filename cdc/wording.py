"""Sizes, spans of time and conditions as people read them. Pure, and light: commands that only ask load this."""

import re
from typing import Final

_UNITS: Final = (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10))
_SPANS: Final = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0))

_TEXTS: Final = re.compile(r"('(?:[^']|'')*')")
_NOISE: Final = {
    re.compile(r"OPERATOR\(pg_catalog\.([^)]+)\)"): r"\1",
    re.compile(r"pg_catalog\."): "",
    re.compile(r'"([a-z_][a-z0-9_]*)"'): r"\1",
}


def plain_sql(sql: str) -> str:
    """A condition without what Postgres needs and people do not: schemas of its own parts, and quotes."""
    parts = _TEXTS.split(sql)  # those with an odd number are texts in it
    for pattern, plain in _NOISE.items():
        parts[::2] = [pattern.sub(plain, part) for part in parts[::2]]
    return "".join(parts)


def size_words(count: int) -> str:
    """A number of bytes."""
    for name, unit in _UNITS:
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,} bytes"


def span_words(seconds: float) -> str:
    """A span of time."""
    for name, unit in _SPANS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:,.1f} s"
