"""A block: the unit that is written, checked and read. 128 bytes of header, then parts, padded to 128 bytes.

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

from storage.errors import CorruptBlock, UnknownFormat
from storage.limits import BLOCK_ALIGNMENT_BYTES, BLOCK_PAYLOAD_BYTES_MAX
from storage.offset import LogOffset
from storage.parts import Part, check_part, decode_table, encode_payload, table_size

MAGIC: Final = b"\x93SHPLOG\n"
"""Not text (first byte), and broken by whoever translates line ends (last byte)."""

FORMAT_VERSION: Final = 1

HEADER_SIZE: Final = 128

_HEADER: Final = struct.Struct("<8sHBBIQ16s16s16s16sQQIIQI")
_CRC: Final = struct.Struct("<I")
_VERSION: Final = struct.Struct("<H")

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
    """The ranges that a compaction folded. Those that a compacted source left out are told by `BlockFlag.GAP`."""


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
    parts: int = 0
    table_crc: int = 0
    """Of the table that leads the payload and holds the parts' own."""

    @property
    def size(self) -> int:
        """Bytes of the whole block in its file."""
        return HEADER_SIZE + self.payload_size

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
            self.parts,
            self.written_at,
            self.table_crc,
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
        wire_end, synced_before, log, parts, written_at, table_crc = rest
        if size > BLOCK_PAYLOAD_BYTES_MAX or size % BLOCK_ALIGNMENT_BYTES or table_size(parts) > size:
            raise CorruptBlock(f"a block claims {size} bytes for {parts} parts; at most {BLOCK_PAYLOAD_BYTES_MAX} fit")
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
            parts=parts,
            table_crc=table_crc,
        )


def encode_block(header: BlockHeader, parts: Sequence[Part]) -> list[bytes | memoryview]:
    """The buffers to write for a block; sizes and checksums are filled in here."""
    payload, size, table_crc = encode_payload(parts)
    return [replace(header, payload_size=size, parts=len(parts), table_crc=table_crc).encode(), *payload]


def check_payload(header: BlockHeader, payload: bytes | memoryview) -> list[memoryview]:
    """The parts of a payload; raises `CorruptBlock` unless every byte is as it was written."""
    if len(payload) != header.payload_size:
        raise CorruptBlock(f"a block is cut short: {len(payload)} of {header.payload_size} bytes")
    view = memoryview(payload)
    places = decode_table(view[: table_size(header.parts)], header.parts, header.payload_size, header.table_crc)
    return [check_part(place, view[place.start : place.stop]) for place in places]
