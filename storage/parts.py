"""The payload of a block: parts, each with its own checksum, and in front of them a table that says where they are.

A part is an Arrow IPC stream. Parts are encoded when their rows arrive, not when they are flushed, and are written
from where the rows lie in memory, without a copy. A reader that wants one part checks the table and that part.

    payload:   table, padded to 64 | part 0, padded to 64 | part 1 .. | last part, padded to the block's end
    an entry:  size u64 | CRC-32 of the part and the padding behind it u32 | zero u32
"""

import functools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from storage.errors import CorruptBlock
from storage.limits import BLOCK_ALIGNMENT_BYTES, SCHEMAS_KEPT

PART_ALIGNMENT: Final = 64
"""Arrow's own for buffers: a part that is read or mapped at once needs no copy."""

_ENTRY: Final = struct.Struct("<QII")
_STREAM_START: Final = struct.Struct("<II")
"""Arrow's: a mark, and the size of the first message."""
_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""Arrow's: the mark again, and no message."""
_ZEROS: Final = bytes(BLOCK_ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True)
class Part:
    """Encoded rows, still in the memory that they came in."""

    buffers: Sequence[memoryview | bytes]
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a part is in its payload."""

    start: int
    size: int
    stop: int
    """Where its padding ends."""
    crc: int


class _Sink:
    """A file for Arrow to write to, which keeps what it is given."""

    closed = False

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes or one of Arrow's buffers
        view = memoryview(data)
        self.buffers.append(view)
        return len(view)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""


def part_of(*buffers: memoryview | bytes) -> Part:
    """Any bytes as a part."""
    crc = 0
    for buffer in buffers:
        crc = zlib.crc32(buffer, crc)
    return Part(buffers, sum(len(buffer) for buffer in buffers), crc)


def encode_batches(batches: Sequence[pa.RecordBatch]) -> Part:
    """Batches of one schema as a part; it refers to their memory."""
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return part_of(*sink.buffers)


def encode_by_copy(batch: pa.RecordBatch) -> tuple[Part, pa.RecordBatch]:
    """A batch as a part in one piece of memory, and the same rows in that memory: the batch need not be kept."""
    message = batch.serialize()
    return part_of(_schema_message(batch.schema), memoryview(message), _STREAM_END), pa.ipc.read_record_batch(
        message, batch.schema
    )


def _schema_message(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def decode_batches(part: memoryview) -> list[pa.RecordBatch]:
    """The batches of a part, without copying: they keep its memory alive.

    A stream begins with its schema, which is the same in nearly all parts of a log. Reading the messages one by one
    lets it be parsed once, and takes a third of the time that Arrow's stream reader does.
    """
    try:
        schema_size = _STREAM_START.unpack_from(part)[1] + _STREAM_START.size
        schema = _schema(bytes(part[:schema_size]))
        reader = pa.BufferReader(pa.py_buffer(part[schema_size:]))
        batches: list[pa.RecordBatch] = []
        while (message := _next_message(reader)) is not None:
            batches.append(pa.ipc.read_record_batch(message, schema))
    except (pa.ArrowException, OSError, struct.error) as error:  # Arrow calls an unexpected end an OSError
        raise CorruptBlock(f"a part of a block is not an Arrow stream: {error}") from None
    return batches


@functools.lru_cache(maxsize=SCHEMAS_KEPT)
def _schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))


def _next_message(reader: pa.BufferReader) -> pa.Message | None:
    """The next message of a stream; None at the mark that ends it, which every part has."""
    try:
        return pa.ipc.read_message(reader)
    except EOFError:
        return None


def encode_payload(parts: Sequence[Part]) -> tuple[list[memoryview | bytes], int, int]:
    """The buffers of a payload, its size, and the CRC of its table."""
    position = _up(len(parts) * _ENTRY.size, PART_ALIGNMENT)
    table: list[bytes] = []
    buffers: list[memoryview | bytes] = []
    for number, part in enumerate(parts, start=1):
        alignment = BLOCK_ALIGNMENT_BYTES if number == len(parts) else PART_ALIGNMENT
        padding = _ZEROS[: _up(position + part.size, alignment) - position - part.size]
        table.append(_ENTRY.pack(part.size, zlib.crc32(padding, part.crc), 0))
        buffers += [*part.buffers, padding]
        position += part.size + len(padding)
    front = b"".join(table)
    front += _ZEROS[: _up(len(front), PART_ALIGNMENT) - len(front)]
    return [front, *buffers], position, zlib.crc32(front)


def table_size(parts: int) -> int:
    """Bytes of the table with its padding."""
    return _up(parts * _ENTRY.size, PART_ALIGNMENT)


def decode_table(table: bytes | memoryview, parts: int, payload_size: int, crc: int) -> list[PartPlace]:
    """Where the parts are. Raises `CorruptBlock` unless the table is as it was written."""
    if len(table) != table_size(parts) or zlib.crc32(table) != crc:
        raise CorruptBlock("the table of a block's parts does not match its checksum")
    places: list[PartPlace] = []
    start = len(table)
    for number in range(parts):
        size, part_crc, _ = _ENTRY.unpack_from(table, number * _ENTRY.size)
        is_last = number == parts - 1
        stop = _up(start + size, BLOCK_ALIGNMENT_BYTES if is_last else PART_ALIGNMENT)
        places.append(PartPlace(start, size, stop, part_crc))
        start = stop
    if start != payload_size:
        raise CorruptBlock(f"a block's parts end at {start} of {payload_size} bytes")
    return places


def check_part(place: PartPlace, data: bytes | memoryview) -> memoryview:
    """A part without its padding; raises `CorruptBlock` unless every byte is as it was written."""
    if len(data) != place.stop - place.start or zlib.crc32(data) != place.crc:
        raise CorruptBlock("a part of a block does not match its checksum", part_at=place.start)
    return memoryview(data)[: place.size]


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
