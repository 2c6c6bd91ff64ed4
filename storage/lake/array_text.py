"""Arrays of Postgres, from text to lists of texts. Pure.

Almost all arrays have no quotes in them: those are split at their commas, all at once. One with quotes or backslashes
is taken apart by itself. What has several dimensions or bounds of its own (`[0:1]={1,2}`) is no list, and is refused.
"""

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

_SIMPLE: Final = r'^\{[^{}"\\]*\}$'
# Postgres quotes an element with one of its six blanks in it, and takes no other character of Unicode for a blank.
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|((?:[^,{}"\\ \t\n\r\v\f]|\\.)(?:[^,{}"\\]|\\.)*)', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def split_arrays(values: pa.Array) -> tuple[pa.Array, Mask]:
    """The lists of texts (NULL where the value is, or where it is refused), and a mask of those that are refused."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    is_simple = pc.match_substring_regex(values, _SIMPLE).fill_null(False).to_numpy(zero_copy_only=False)
    lists = _split_simple(pc.if_else(pa.array(is_simple), values, None))
    others = np.flatnonzero(~is_simple & ~is_null)
    if not len(others):
        return lists, np.zeros(len(values), np.bool_)
    parsed = [parse_array(text) for text in values.take(pa.array(others)).to_pylist()]
    refused = np.zeros(len(values), np.bool_)
    refused[others[[one is None for one in parsed]]] = True
    source = np.arange(len(values))
    source[others] = len(values) + np.arange(len(others))
    both = pa.concat_arrays([lists, pa.array(parsed, lists.type)])
    return both.take(pa.array(source)), refused


def parse_array(text: str) -> list[str | None] | None:
    """One array of one dimension, with whatever quotes; None if it is something else."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    inner, elements, position = text[1:-1], list[str | None](), 0
    while inner:
        match = _QUOTED.match(inner, position)
        if match is None:
            return None
        quoted, plain = match.groups()
        if quoted is not None:
            elements.append(_ESCAPE.sub(r"\1", quoted))
        else:
            elements.append(None if plain.upper() == "NULL" else _ESCAPE.sub(r"\1", plain))
        position = match.end()
        if position == len(inner):
            break
        if inner[position] != ",":
            return None
        position += 1
    return elements


def _split_simple(values: pa.Array) -> pa.Array:
    inner = pc.utf8_slice_codeunits(values, 1, -1)
    is_empty = pc.equal(inner, "").fill_null(False)
    lists = pc.split_pattern(pc.if_else(is_empty, None, inner), ",")
    flat = pc.list_flatten(lists)
    # The four letters without quotes are no text, and Postgres writes them in capitals.
    flat = pc.if_else(pc.equal(flat, "NULL"), None, flat)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    is_null = values.is_null()
    mask = is_null if is_null.true_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), flat.cast(pa.large_string()), mask=mask)
