r"""The text that COPY sends, to Arrow columns: many rows at a time. Pure.

    a row     values separated by tabs, a newline behind the last one; a message of its own
    a value   its text; backslash, tab, newline and other control characters are written \\ \t \n ..; NULL is \N

Values are written by the output functions of their types, just as the stream's are: snapshot and log agree on the text
of every type (a boolean is `t` in both, a padded char keeps its blanks) without knowing the type.

Invariants:
    a tab or newline in a row's bytes is a separator, so a batch's separators, counted, are its rows times its columns
    what is found does not depend on where the bytes were split between reads
"""

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc.source.errors import ProtocolError
from cdc.source.framing import HEAD_BYTES, Found, find_messages
from cdc.source.numbers import Bytes, Flags, Integers, every_uint32
from cdc.source.tuples import NULL, TEXT, Cells, to_struct
from cdc.source.walsender import CopyBatch

_COPY_DATA, _TAB, _NEWLINE, _BACKSLASH, _N = np.frombuffer(b"d\t\n\\N", np.uint8)
_HAS_BACKSLASH: Final = re.compile(rb"\\").search
_NULL_BYTES: Final = 2
_PIECE_BYTES: Final = 64 * 1024

Bounds = npt.NDArray[np.int32]
"""Rows x columns x (start, end)."""

_ESCAPED: Final = np.arange(256, dtype=np.uint8)
"""What stands behind a backslash, and what it means."""
for _letter, _meant in zip(b"bfnrtv", b"\b\f\n\r\t\v", strict=True):
    _ESCAPED[_letter] = _meant

_MEANT: Final = bytes([_BACKSLASH, *range(1, 256)])
"""No text has a zero, so it stands for a backslash that stays, until the others are gone."""


def find_rows(buffer: Bytes, filled: int, message_bytes_max: int) -> Found:
    """Frame `buffer[:filled]`, where a message starts at 0.

    A row ends with a newline, and has no other; behind it comes the next head, whose length begins with a zero, which
    no text holds. What looks like a head is one exactly if the message before it ends there; from the first that is
    not, messages are walked.
    """
    window = buffer[:filled]
    if filled < HEAD_BYTES:
        return find_messages(buffer, 0, filled, message_bytes_max, filled + 1)
    newlines = _places(window[:-HEAD_BYTES], lambda piece: piece == _NEWLINE)
    heads = np.empty(len(newlines) + 1, np.int64)
    heads[0] = 0
    np.add(newlines, 1, out=heads[1:])
    heads = heads[(window[heads] == _COPY_DATA) & (window[heads + 1] == 0)]
    if not len(heads) or heads[0] != 0:
        return find_messages(buffer, 0, filled, message_bytes_max, filled + 1)
    ends = heads + 1 + every_uint32(window)[heads + 1].astype(np.int64)
    broken = np.flatnonzero(ends[:-1] != heads[1:])
    known = int(broken[0]) + 1 if len(broken) else len(heads)
    known = min(known, int(np.searchsorted(ends[:known], filled, side="right")))
    sizes = ends[:known] - heads[:known]
    if known and (sizes.min() <= HEAD_BYTES or sizes.max() > message_bytes_max):
        return find_messages(buffer, 0, filled, message_bytes_max, filled + 1)
    start = int(ends[known - 1]) if known else 0
    rest = find_messages(buffer, start, filled, message_bytes_max, filled + 1)
    return Found(
        np.concatenate((heads[:known] + HEAD_BYTES, rest.starts)),
        np.concatenate((ends[:known], rest.ends)),
        rest.others,
        rest.consumed,
        rest.wanted,
    )


def parse_rows(batch: CopyBatch, values: pa.StructType, head_bytes: int) -> pa.StructArray:
    """The rows as a struct of text. In front of each row are `head_bytes` bytes of no meaning; they are overwritten."""
    buffer, starts, ends = batch.buffer, batch.starts, batch.ends
    columns = len(values)
    if not columns:
        return pa.Array.from_buffers(values, len(batch), [None], children=[])
    for back in range(1, head_bytes + 1):
        buffer[starts - back] = 0
    first, stop = int(starts[0]), int(ends[-1])
    region = buffer[first:stop]
    bounds: Bounds = np.empty((len(batch), columns, 2), np.int32)
    if not _put_separators(region, bounds.reshape(-1)[1::2]):
        raise ProtocolError("COPY sent another number of values than asked for", rows=len(batch), columns=columns)
    bounds[:, 0, 0] = starts - first
    bounds[:, 1:, 0] = bounds[:, :-1, 1] + 1
    if (bounds[:, -1, 1] + 1 != ends - first).any():
        raise ProtocolError("a row of COPY does not end where its message does")
    tags = np.full((len(batch), columns), TEXT, np.uint8)
    if _HAS_BACKSLASH(region.data):
        nulls = _nulls(region, bounds)
        if np.count_nonzero(region == _BACKSLASH) > len(nulls):
            region = _unescape(region, bounds)
        tags.reshape(-1)[nulls] = NULL
        cells = bounds.reshape(-1, 2)
        cells[nulls, 1] = cells[nulls, 0]
    return to_struct(region, Cells(bounds, tags), values)


def _places(data: Bytes, is_wanted: Callable[[Bytes], Flags]) -> Integers:
    """Where the wanted bytes are. Piece by piece: memory for a whole batch would be got from the kernel each time."""
    pieces = [np.flatnonzero(is_wanted(data[at : at + _PIECE_BYTES])) + at for at in range(0, len(data), _PIECE_BYTES)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def _put_separators(region: Bytes, out: npt.NDArray[np.int32]) -> bool:
    """Where tabs and newlines are, straight to where they are wanted; False if there are more or fewer."""
    count = 0
    for at in range(0, len(region), _PIECE_BYTES):
        found = np.flatnonzero(region[at : at + _PIECE_BYTES] - _TAB <= _NEWLINE - _TAB)  # both: they are neighbours
        stop = count + len(found)
        if stop > len(out):
            return False
        np.add(found, at, out=out[count:stop], casting="unsafe")
        count = stop
    return count == len(out)


def _nulls(region: Bytes, bounds: Bounds) -> Integers:
    r"""Which cells are \N. A text of these two characters has its backslash doubled."""
    flat = bounds.reshape(-1, 2)
    cells = np.flatnonzero(flat[:, 1] - flat[:, 0] == _NULL_BYTES)
    at = flat[cells, 0]
    nulls: Integers = cells[(region[at] == _BACKSLASH) & (region[at + 1] == _N)]
    return nulls


def _unescape(region: Bytes, bounds: Bounds) -> Bytes:
    """The bytes as they are meant; the bounds are moved with their cells."""
    # From left to right, so a backslash that is meant is told from one that says how the next byte is meant.
    text = bytearray(region).replace(b"\\\\", b"\\\0")
    data = np.frombuffer(text, np.uint8)
    escapes = _places(data, lambda piece: piece == _BACKSLASH)
    letters = escapes + 1
    data[letters] = _ESCAPED[data[letters]]
    ends = bounds.reshape(-1)[1::2]
    gone = np.searchsorted(escapes.astype(np.int32), ends).astype(np.int32)
    ends -= gone
    bounds.reshape(-1)[2::2] -= gone[:-1]  # between a cell and the next there is no backslash
    return np.frombuffer(text.translate(_MEANT, b"\\"), np.uint8)
