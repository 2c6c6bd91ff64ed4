"""Values on the wire: where they are, for many rows at a time, and how they become Arrow columns.

    a tuple   columns u16, then for each: 'n' (NULL), 'u' (unchanged, not sent) or 't' size u32 and the text

All tuples are walked together: at each column, one array operation reads the tags of all rows, one their sizes. Then
every value is an interval of the buffer. The ends of the intervals, in the order of the buffer, are the offsets of an
Arrow array over the buffer itself, with values at even places and what lies between them at odd ones; taking the even
ones, column after column, is one copy, and each column is a slice of it.

Invariants:
    a position only grows: a walk that ends where the message ends has left it nowhere, so one check at the end will do
    reads beyond the buffer get its last bytes instead, and then fail that check
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc.source.errors import NotText, ProtocolError
from cdc.source.numbers import Bytes, Flags, Integers, Words, every_uint32, take_uint16

TEXT, NULL, UNCHANGED = map(ord, "tnu")

_COUNT_BYTES: Final = 2
_TEXT_HEAD_BYTES: Final = 5
_ASCII_MAX: Final = 127
_TAKE: Final = pc.TakeOptions(boundscheck=False)  # the indices are ours


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of some rows, a row of cells for each."""

    bounds: npt.NDArray[np.int32]
    """Rows x columns x (start, end) in the buffer."""
    tags: Bytes
    """Rows x columns: `TEXT`, `NULL` or `UNCHANGED`."""

    def __len__(self) -> int:
        return len(self.tags)

    def __getitem__(self, rows: Flags) -> "Cells":
        return Cells(self.bounds[rows], self.tags[rows])

    @classmethod
    def all_null(cls, places: Integers, columns: int) -> Self:
        """Rows of NULLs, each empty interval at its row's place, so that bounds go on growing."""
        bounds = np.empty((len(places), columns, 2), np.int32)
        bounds[:] = places[:, None, None]
        return cls(bounds, np.full((len(places), columns), NULL, np.uint8))

    def put(self, rows: Flags, cells: "Cells") -> None:
        """Take other rows' cells over."""
        self.bounds[rows] = cells.bounds
        self.tags[rows] = cells.tags


def walk(buffer: Bytes, at: Integers, columns: int) -> tuple[Cells, Integers]:
    """The cells of the tuples at these places, and where each tuple ends. The caller checks the latter."""
    if (take_uint16(buffer, at) != columns).any():
        raise ProtocolError("a row has another number of columns than its relation", columns=columns)
    sizes = every_uint32(buffer[1:])  # the size that follows a tag at each place
    bounds = np.empty((len(at), columns, 2), np.int32)
    tags = np.full((len(at), columns), TEXT, np.uint8)
    position = at + _COUNT_BYTES
    for column in range(columns):
        tag = buffer.take(position, mode="clip")
        is_text = tag == TEXT
        if is_text.all():
            start = position + _TEXT_HEAD_BYTES
            position = start + _sizes(sizes, position)
        else:
            if not (is_text | (tag == NULL) | (tag == UNCHANGED)).all():
                raise ProtocolError("a value is neither text nor NULL nor unchanged", column=column)
            start = position + np.where(is_text, _TEXT_HEAD_BYTES, 1)
            position = start + _sizes(sizes, position) * is_text
            tags[:, column] = tag
        bounds[:, column, 0] = start
        bounds[:, column, 1] = position
    return Cells(bounds, tags), position


def _sizes(sizes: Words, position: Integers) -> Words:
    try:
        return sizes[position]
    except IndexError:  # a NULL at the buffer's very end, or damage
        return sizes[np.minimum(position, len(sizes) - 1)]


def to_struct(buffer: Bytes, cells: Cells, values: pa.StructType, present: Flags | None = None) -> pa.StructArray:
    """The cells as a struct of strings; `present` says which rows are there at all."""
    rows, columns = cells.tags.shape
    validity = None if present is None else bitmap(present)
    children: list[pa.Array] = []
    if columns and rows:
        text = _gather(buffer, cells)
        is_text = cells.tags == TEXT
        complete = bool(is_text.all())
        nulls = np.zeros(columns, np.int64) if complete else rows - np.count_nonzero(is_text, axis=0)
        valid = None if complete else bitmap(is_text.T.ravel())
        _, offsets, data = text.buffers()
        for column in range(columns):
            null_count = int(nulls[column])
            buffers = [valid if null_count else None, offsets, data]
            children.append(pa.Array.from_buffers(pa.string(), rows, buffers, null_count, column * rows))
    else:
        children = [pa.array([], pa.string())] * columns
    return pa.Array.from_buffers(values, rows, [validity], children=children)


def _gather(buffer: Bytes, cells: Cells) -> pa.Array:
    """All values in one array, a column after the other."""
    rows, columns = cells.tags.shape
    offsets = pa.py_buffer(np.ascontiguousarray(cells.bounds).ravel())
    intervals = pa.Array.from_buffers(pa.string(), 2 * rows * columns - 1, [None, offsets, pa.py_buffer(buffer)])
    wanted = np.empty((columns, rows), np.int32)  # one array: more memory would be got from the kernel each time
    firsts, steps = np.arange(0, 2 * columns, 2), np.arange(0, 2 * rows * columns, 2 * columns)
    np.add(firsts[:, None], steps, out=wanted, casting="unsafe")
    text = pc.call_function("array_take", [intervals, numbers(pa.int32(), wanted.ravel())], _TAKE)
    _check_text(text)
    return text


def _check_text(text: pa.Array) -> None:
    """Postgres says that it is UTF-8; from a database of encoding SQL_ASCII it may be anything."""
    data = np.frombuffer(text.buffers()[2] or b"", np.uint8)
    if len(data) and data.max() > _ASCII_MAX:
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            raise NotText("a value is not valid UTF-8") from None


def bitmap(flags: Flags) -> pa.Buffer:
    """Flags as Arrow has them: a bit each, the lowest first."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def bitmaps(flags: Flags) -> pa.Array:
    """For each row of flags its bitmap; NULL where none is set."""
    rows = len(flags)
    if not flags.any():  # mostly, and far cheaper than to ask for each row
        return pa.nulls(rows, pa.binary())
    bits = np.packbits(flags, axis=1, bitorder="little")
    some: Flags = np.asarray(bits.any(axis=1))
    bits = bits[some]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(some * bits.shape[1], out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), rows, [bitmap(some), pa.py_buffer(offsets), pa.py_buffer(bits)])


def numbers(kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    """Numbers as an Arrow column, without a copy."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
