"""JSON out of columns of text: escaping and joining, a column at a time. Pure.

Texts are UTF-8, as Arrow has them and as JSON wants them, so only quotes, backslashes and control characters are
escaped; most columns have none, which one look at their bytes tells.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from storage.rows import Flags

Text: TypeAlias = "pa.Array | str"
"""A column, or the same text in every row."""

_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = {code: _SHORT.get(chr(code), f"\\u{code:04x}") for code in range(0x20)} | {ord('"'): '\\"'}
_BACKSLASH: Final = ord("\\")


def escaped(values: pa.Array) -> pa.Array:
    """The texts as they stand between the quotes of JSON."""
    found = _special_bytes(values)
    if _BACKSLASH in found:  # first: the others bring backslashes of their own
        values = pc.replace_substring(values, "\\", "\\\\")
    for code in found:
        if code != _BACKSLASH:
            values = pc.replace_substring(values, chr(code), _ESCAPES[code])
    return values


def _special_bytes(values: pa.Array) -> list[int]:
    """Which bytes have to be escaped."""
    start, stop = spans_of(values)
    if stop == start:
        return []
    content = np.frombuffer(values.buffers()[2], np.uint8, stop - start, start)
    special = content[(content < ord(" ")) | (content == ord('"')) | (content == _BACKSLASH)]
    return [int(code) for code in np.unique(special)]


def spans_of(values: pa.Array) -> tuple[int, int]:
    """Where the texts of a column begin and end in its bytes; they lie one behind the other."""
    if not len(values):
        return 0, 0
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * np.dtype(np.int32).itemsize)
    return int(offsets[0]), int(offsets[-1])


def quoted(values: pa.Array) -> pa.Array:
    """Escaped texts with their quotes; NULL as JSON has it."""
    texts = joined(['"', values, '"'])
    return pc.fill_null(texts, "null") if values.null_count else texts


def joined(parts: Sequence[Text]) -> pa.Array:
    """The parts of each row as one text; NULL where one of them is. At least one part is a column."""
    pieces = [constant(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*pieces, NOTHING)


def constant(text: str) -> pa.Scalar:
    """The same text in every row. With its type: without, each call costs as much as a hundred rows."""
    return pa.scalar(text, pa.string())


def members(names: Sequence[str], columns: Sequence[pa.Array], present: Sequence[Flags]) -> pa.Array:
    """The members of an object in each row, of the columns that are present there, with commas between them."""
    parts: list[Text] = []
    seen = np.zeros(len(columns[0]), np.bool_)
    for name, texts, here in zip(names, columns, present, strict=True):
        comma = pc.if_else(pa.array(seen), _COMMA, NOTHING)
        parts.append(pc.if_else(pa.array(here), joined([comma, json_text(name) + ":", quoted(texts)]), NOTHING))
        seen = seen | here
    return joined(parts)


def json_text(text: str) -> str:
    """A text as JSON has it, with its quotes."""
    return orjson.dumps(text).decode()


NOTHING: Final = constant("")
_COMMA: Final = constant(",")
