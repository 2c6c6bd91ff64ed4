"""Composites and ranges of Postgres, from text to columns of texts. Pure.

Both are fields with commas between them, in brackets. A field is quoted where it has to be, with quotes and backslashes
in it doubled; without quotes and empty, it is NULL. Almost all have no quotes: those are split at their commas, all at
once. One with quotes is taken apart by itself.
"""

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

_SIMPLE: Final = r'^[^"\\]*$'
_FIELD: Final = re.compile(r'((?:[^",\\]|\\.|"(?:[^"\\]|\\.|"")*")*)(,|$)', re.DOTALL)
_PIECE: Final = re.compile(r'"((?:[^"\\]|\\.|"")*)"|([^"\\]+)|\\(.)', re.DOTALL)
_DOUBLED: Final = re.compile(r'\\(.)|"(")', re.DOTALL)


def split_records(values: pa.Array, count: int) -> tuple[list[pa.Array], Mask]:
    """The fields of each value, which has no brackets any more, as `count` columns; and which have another count.

    Those, and NULL, are NULL in all columns.
    """
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    is_simple = pc.match_substring_regex(values, _SIMPLE).fill_null(False).to_numpy(zero_copy_only=False)
    pieces = pc.split_pattern(pc.if_else(pa.array(is_simple), values, None), ",")
    lengths = pc.list_value_length(pieces).fill_null(0).to_numpy(zero_copy_only=False)
    is_good = is_simple & (lengths == count)
    flat = pc.list_flatten(pc.if_else(pa.array(is_good), pieces, None)).cast(pa.large_string())
    flat = pc.if_else(pc.equal(flat, ""), None, flat)
    place = np.where(is_good, np.cumsum(is_good) - 1, 0)
    columns = [
        flat.take(pa.array(np.arange(field, len(flat), count))).take(pa.array(place, mask=~is_good))
        for field in range(count)
    ]
    others = np.flatnonzero(~is_simple & ~is_null)
    if len(others):
        parsed = [parse_record(text, count) for text in values.take(pa.array(others)).to_pylist()]
        is_good[others] = [one is not None for one in parsed]
        source = np.arange(len(values))
        source[others] = len(values) + np.arange(len(others))
        for field in range(count):
            texts = pa.array([None if one is None else one[field] for one in parsed], pa.large_string())
            columns[field] = pa.concat_arrays([columns[field], texts]).take(pa.array(source))
    return columns, ~is_good & ~is_null


def parse_record(text: str, count: int) -> list[str | None] | None:
    """The fields of one value with whatever quotes; None if there are not so many."""
    fields, at = list[str | None](), 0
    while (match := _FIELD.match(text, at)) is not None:
        fields.append(_field(match[1]))
        at = match.end()
        if not match[2]:
            return fields if at == len(text) and len(fields) == count else None
    return None


def _field(text: str) -> str | None:
    if not text:
        return None
    return "".join(
        plain or escaped or _DOUBLED.sub(lambda one: one[1] or one[2], quoted)
        for quoted, plain, escaped in _PIECE.findall(text)
    )
