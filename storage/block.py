"""A block: the unit that is written, checked and read. 128 bytes of header, then a payload, padded to 128 bytes.

The byte diagram and the reasons are in docs/storage-format.md, which changes together with this file.

Invariants of a block of rows:
    previous <= first <= last; the block before it in its log ends at `previous`
    aligned is the end of the greatest whole transaction at or below `last`, or of an earlier one if none is
    the block is committed if `last` is at or below an `aligned` of this log, here or later; else it is open
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import Final

import pyarrow as pa

from storage.errors import CorruptBlock, UnknownFormat
from storage.limits import BLOCK_ALIGNMENT_BYTES, BLOCK_PAYLOAD_BYTES_MAX
from storage.offset import LogOffset

MAGIC: Final = b"\x93SHPLOG\n"
"""Not text (first byte), and broken by whoever translates line ends (last byte)."""

FORMAT_VERSION: Final = 1

HEADER_SIZE: Final = 128

_HEADER: Final = struct.Struct("<8sHBBIQ16s16s16s16sQQQQI")
_CRC: Final = struct.Struct("<I")
_VERSION: Final = struct.Struct("<H")
_ZEROS: Final = bytes(BLOCK_ALIGNMENT_BYTES)

assert _HEADER.size + _CRC.size == HEADER_SIZE == BLOCK_ALIGNMENT_BYTES


class BlockKind(IntEnum):
    """What the payload is. Stored: the numbers never change."""

    ROWS = 1
    """Rows of one log, or none: a commit that came after its rows."""

    JOURNAL = 2
    """Shares of many logs, with a directory (`storage.journal`)."""

    BASE = 3
    """One chunk of a snapshot or of a fold."""

    BASE_END = 4
    """The last block of a complete base."""

    LEDGER = 5
    """The ranges that a compaction folded, or that a compacted source left out."""


class BlockFlag(IntFlag):
    """Facts about a block. Stored: the bits never change."""

    NONE = 0
    GAP = 1
    """Between `previous` and `first` the source left changes out, lawfully: it is compacted itself."""

    OPEN = 2
    """When it was written, its rows' transaction had not ended. Says how to recover a journal without its logs."""


_KINDS: Final = frozenset(map(int, BlockKind))  # `in BlockKind` takes no number before Python 3.12
_FLAGS: Final = sum(BlockFlag)


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The facts about a block's payload, all of them under the header's own CRC."""

    kind: BlockKind
    flags: BlockFlag
    rows: int
    payload_size: int
    previous: LogOffset
    first: LogOffset
    last: LogOffset
    aligned: LogOffset
    wire_end: int
    """Wire size of all the log's rows up to and with this block's."""
    synced_before: int
    """How much of this file had been synced when the block was written: what is damaged below was once whole."""
    log: int
    written_at: int
    """Microseconds since 1970, of the writer's clock: for people, and for retention by age."""
    payload_crc: int = 0

    @property
    def size(self) -> int:
        """Bytes of the whole block in its file."""
        return HEADER_SIZE + padded(self.payload_size)

    def encode(self) -> bytes:
        """The 128 bytes, the CRC of the first 124 at the end."""
        data = _HEADER.pack(
            MAGIC,
            FORMAT_VERSION,
            self.kind,
            self.flags,
            self.rows,
            self.payload_size,
            self.previous.to_bytes(),
            self.first.to_bytes(),
            self.last.to_bytes(),
            self.aligned.to_bytes(),
            self.wire_end,
            self.synced_before,
            self.log,
            self.written_at,
            self.payload_crc,
        )
        return data + _CRC.pack(zlib.crc32(data))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "BlockHeader":
        """Read a header; raises `UnknownFormat` for another version's and `CorruptBlock` for anything else."""
        if len(data) < HEADER_SIZE:
            raise CorruptBlock(f"a block's header is cut short: {len(data)} of {HEADER_SIZE} bytes")
        if bytes(data[:8]) != MAGIC:
            raise CorruptBlock("a block does not start with the format's magic bytes", found=bytes(data[:8]).hex())
        crc_is_right = zlib.crc32(data[: HEADER_SIZE - 4]) == _CRC.unpack_from(data, HEADER_SIZE - 4)[0]
        (version,) = _VERSION.unpack_from(data, 8)
        if crc_is_right and version != FORMAT_VERSION:
            raise UnknownFormat(f"a block has format version {version}, this program reads {FORMAT_VERSION}")
        if not crc_is_right:
            raise CorruptBlock("a block's header does not match its checksum")
        _, _, kind, flags, rows, size, previous, first, last, aligned, *rest = _HEADER.unpack_from(data)
        wire_end, synced_before, log, written_at, payload_crc = rest
        if size > BLOCK_PAYLOAD_BYTES_MAX:
            raise CorruptBlock(f"a block claims {size} bytes, above the limit of {BLOCK_PAYLOAD_BYTES_MAX}")
        if kind not in _KINDS or flags & ~_FLAGS:
            raise UnknownFormat(f"a block has kind {kind} and flags {flags}, which this program does not know")
        return cls(
            kind=BlockKind(kind),
            flags=BlockFlag(flags),
            rows=rows,
            payload_size=size,
            previous=LogOffset.from_bytes(previous),
            first=LogOffset.from_bytes(first),
            last=LogOffset.from_bytes(last),
            aligned=LogOffset.from_bytes(aligned),
            wire_end=wire_end,
            synced_before=synced_before,
            log=log,
            written_at=written_at,
            payload_crc=payload_crc,
        )


def padded(size: int) -> int:
    """The size with the padding that lets the next block start aligned."""
    return -(-size // BLOCK_ALIGNMENT_BYTES) * BLOCK_ALIGNMENT_BYTES


def encode_block(header: BlockHeader, payload: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The buffers to write for a block; sizes and checksum are filled in here. The padding is under the CRC too."""
    size = sum(len(part) for part in payload)
    parts: list[bytes | memoryview] = [*payload, _ZEROS[: padded(size) - size]]
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return [replace(header, payload_size=size, payload_crc=crc).encode(), *parts]


def check_payload(header: BlockHeader, payload: bytes | memoryview) -> memoryview:
    """The payload without its padding; raises `CorruptBlock` unless every byte is as written."""
    if len(payload) != padded(header.payload_size):
        raise CorruptBlock(f"a block is cut short: {len(payload)} of {padded(header.payload_size)} bytes")
    if zlib.crc32(payload) != header.payload_crc:
        raise CorruptBlock("a block's payload does not match its checksum", first=header.first, last=header.last)
    return memoryview(payload)[: header.payload_size]


def encode_batches(batches: Sequence[pa.RecordBatch]) -> memoryview:
    """Batches of one schema as an Arrow IPC stream, so that a block can be read with no other file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


def decode_batches(payload: memoryview) -> list[pa.RecordBatch]:
    """The batches of an IPC stream, without copying: they keep the payload alive."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
            return list(reader)
    except (pa.ArrowException, OSError) as error:  # Arrow calls an unexpected end an OSError
        raise CorruptBlock(f"a block's payload is not an Arrow stream: {error}") from None
