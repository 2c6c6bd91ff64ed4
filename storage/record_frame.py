"""The bytes of a record log: frames one behind the other, and what a scan makes of them.

     0   8  magic
     8   2  format version
    10   1  kind: a record, or a mark
    11   1  zero
    12   4  length of the payload
    16   8  synced before: bytes of the file that were on the disk when this frame was written
    24   4  CRC32 of the payload
    28   4  CRC32 of the 28 bytes above
    32      payload

A *mark* has no payload. It is written after the sync of the records before it has returned, so it proves to another
process that they are durable; it is not synced itself, and nothing is lost with it.

Invariants:
    synced_before <= the frame's own position; the frames below `synced_before` were whole once
    a damaged frame with proof behind it (`synced_before` above its position) is damage; without proof it is a torn tail
    no JSON text contains the magic bytes: they are not UTF-8, and a line end is escaped
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from storage.errors import CorruptRecord, UnknownFormat
from storage.limits import RECORD_BYTES_MAX

MAGIC: Final = b"\x93SHPREC\n"

FORMAT_VERSION: Final = 1

FRAME_SIZE: Final = 32
"""Bytes of a frame without its payload."""

_FRAME: Final = struct.Struct("<8sHBxIQI")
_CRC: Final = struct.Struct("<I")

assert _FRAME.size + _CRC.size == FRAME_SIZE


class FrameKind(IntEnum):
    """What a frame is. Stored: the numbers never change."""

    RECORD = 1
    MARK = 2


_KINDS: Final = frozenset(int(kind) for kind in FrameKind)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame, as read."""

    kind: FrameKind
    synced_before: int
    payload: bytes
    end: int
    """Where the next frame starts."""


@dataclass(slots=True)
class Scan:
    """What a run of bytes holds: whole records, where the frames cease to be whole, and where to be proven durable."""

    end: int
    proven: int
    records: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where each record ends."""
    is_marked: bool = False

    def proven_records(self) -> list[bytes]:
        """The records that are known to be on the disk."""
        return [record for record, end in zip(self.records, self.ends, strict=True) if end <= self.proven]


def encode_frame(kind: FrameKind, synced_before: int, payload: bytes = b"") -> bytes:
    """One frame."""
    head = _FRAME.pack(MAGIC, FORMAT_VERSION, kind, len(payload), synced_before, zlib.crc32(payload))
    return head + _CRC.pack(zlib.crc32(head)) + payload


def encode_records(payloads: Sequence[bytes], synced_before: int) -> bytes:
    """Records one behind the other, to be written at once."""
    return b"".join(encode_frame(FrameKind.RECORD, synced_before, payload) for payload in payloads)


def encode_mark(synced_before: int) -> bytes:
    """The proof that so many bytes are on the disk."""
    return encode_frame(FrameKind.MARK, synced_before)


def decode_frame(data: bytes, at: int, position: int) -> Frame | None:
    """The frame that `data` has at index `at`, which is `position` in the file; None if no whole frame is there."""
    head = data[at : at + FRAME_SIZE]
    if len(head) < FRAME_SIZE or not head.startswith(MAGIC):
        return None
    if zlib.crc32(head[: _FRAME.size]) != _CRC.unpack_from(head, _FRAME.size)[0]:
        return None
    _, version, kind, length, synced_before, payload_crc = _FRAME.unpack_from(head)
    if version != FORMAT_VERSION or kind not in _KINDS:
        raise UnknownFormat(f"a record has format version {version} and kind {kind}; this program reads others")
    payload = data[at + FRAME_SIZE : at + FRAME_SIZE + length]
    is_whole = length <= RECORD_BYTES_MAX and len(payload) == length and zlib.crc32(payload) == payload_crc
    if not is_whole or synced_before > position:
        return None
    return Frame(FrameKind(kind), synced_before, payload, position + FRAME_SIZE + length)


def scan(data: bytes, start: int = 0) -> Scan:
    """Read frames up to the first that is not whole; raises `CorruptRecord` if that one is proven to have been whole.

    `data` is the file from position `start` on, where a frame starts.
    """
    found = Scan(end=start, proven=start)
    while (frame := decode_frame(data, found.end - start, found.end)) is not None:
        found.end = frame.end
        found.proven = max(found.proven, frame.synced_before)
        if frame.kind is FrameKind.MARK:
            found.is_marked = True
        else:
            found.records.append(frame.payload)
            found.ends.append(frame.end)
    for later in _frames_behind(data, start, found.end):
        if later.synced_before > found.end:
            raise CorruptRecord("a record was whole once and is not now", at=found.end, proof_ends_at=later.end)
    return found


def _frames_behind(data: bytes, start: int, position: int) -> Iterator[Frame]:
    """Whole frames behind a position where none is."""
    at = position - start
    while (at := data.find(MAGIC, at + 1)) >= 0:
        frame = decode_frame(data, at, start + at)
        if frame is not None:
            yield frame
