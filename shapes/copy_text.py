r"""The text that COPY sends, to Arrow columns: many rows at a time. Pure.

    a row     values separated by tabs, a newline behind the last one; a message of its own
    a value   its text; backslash, tab, newline and other control characters are written \\ \t \n ..; NULL is \N

Values are written by the output functions of their types, just as the stream's are: snapshot and log agree on the text
of every type (a boolean is `t` in both, a padded char keeps its blanks) without knowing the type.

Invariants:
    a tab or newline in a row's bytes is a separator, so a batch's separators, counted, are its rows times its columns
    what is found does not depend on where the bytes were split between reads
"""

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
_NULL_BYTES: Final = 2
_PIECE_BYTES: Final = 64 * 1024

Bounds = npt.NDArray[np.int32]
"""Rows x columns x (start, end)."""

_ESCAPED: Final = np.arange(256, dtype=np.uint8)
"""What stands behind a backslash, and what it means."""
for _letter, _meant in zip(b"bfnrtv", b"\b\f\n\r\t\v", strict=True):
    _ESCAPED[_letter] = _meant


def find_rows(buffer: Bytes, filled: int, message_bytes_max: int) -> Found:
    """Frame `buffer[:filled]`, where a message starts at 0.

    The length in a head begins with a zero, which no text holds. What looks like a head is one exactly if the message
    before it ends there; from the first that is not, messages are walked.
    """
    window = buffer[:filled]
    if filled < HEAD_BYTES:
        return find_messages(buffer, 0, filled, message_bytes_max, filled + 1)
    heads = _places(window[: 1 - HEAD_BYTES], lambda piece: piece == _COPY_DATA)
    heads = heads[window[heads + 1] == 0]
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
    separators = _places(region, lambda piece: piece - _TAB <= _NEWLINE - _TAB)  # both at once: they are neighbours
    if len(separators) != len(batch) * columns:
        raise ProtocolError("COPY sent another number of values than asked for", rows=len(batch), columns=columns)
    bounds: Bounds = np.empty((len(batch), columns, 2), np.int32)
    bounds[:, :, 1] = separators.reshape(len(batch), columns)
    bounds[:, 0, 0] = starts - first
    bounds[:, 1:, 0] = bounds[:, :-1, 1] + 1
    if (bounds[:, -1, 1] + 1 != ends - first).any():
        raise ProtocolError("a row of COPY does not end where its message does")
    slashes = _places(region, lambda piece: piece == _BACKSLASH)
    tags = np.full((len(batch), columns), TEXT, np.uint8)
    if len(slashes):
        nulls = _nulls(region, bounds)
        tags[nulls] = NULL
        bounds[nulls, 1] = bounds[nulls, 0]
        if len(slashes) > np.count_nonzero(nulls):
            region, bounds = _unescaped(region, bounds, slashes)
    return to_struct(region, Cells(bounds, tags), values)


def _places(data: Bytes, is_wanted: Callable[[Bytes], Flags]) -> Integers:
    """Where the wanted bytes are. Piece by piece: memory for a whole batch would be got from the kernel each time."""
    pieces = [np.flatnonzero(is_wanted(data[at : at + _PIECE_BYTES])) + at for at in range(0, len(data), _PIECE_BYTES)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def _nulls(region: Bytes, bounds: Bounds) -> Flags:
    r"""Which cells are \N. A text of these two characters has its backslash doubled."""
    nulls = np.zeros(bounds.shape[:2], np.bool_)
    rows, columns = np.nonzero(bounds[:, :, 1] - bounds[:, :, 0] == _NULL_BYTES)
    at = bounds[rows, columns, 0]
    nulls[rows, columns] = (region[at] == _BACKSLASH) & (region[at + 1] == _N)
    return nulls


def _unescaped(region: Bytes, bounds: Bounds, slashes: Integers) -> tuple[Bytes, Bounds]:
    """The bytes as they are meant, and where the cells are in them."""
    # In a run of backslashes every other one, from the first on, says that the byte behind it is meant otherwise.
    is_first = np.ones(len(slashes), np.bool_)
    np.not_equal(slashes[1:] - slashes[:-1], 1, out=is_first[1:])
    if is_first.all():
        escapes = slashes
    else:
        order = np.arange(len(slashes))
        in_run = order - np.maximum.accumulate(np.where(is_first, order, 0))
        escapes = slashes[in_run % 2 == 0]
    data = region.copy()
    data[escapes + 1] = _ESCAPED[region[escapes + 1]]
    kept = np.ones(len(region), np.bool_)
    kept[escapes] = False
    places = np.zeros(len(region) + 1, np.int32)
    np.cumsum(kept, out=places[1:])
    return data[kept], places[bounds]
