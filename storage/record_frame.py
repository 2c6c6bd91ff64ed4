"""The bytes of a record log: frames one behind the other, and what a scan makes of them.

     0   8  magic
     8   2  format version
    10   1  kind: a record, or a mark
    11   1  zero
    12   4  length of the payload
    16   8  synced before: bytes of the file that were on the disk when this frame was written
    24   4  link: the last field of the frame before this one, 0 in the first
    28   4  CRC32 of the payload
    32   4  CRC32 of the 32 bytes above
    36      payload

A *mark* has no payload. It is written after the sync of the records before it has returned, so it proves to another
process that they are durable; it is not synced itself, and nothing is lost with it.

Invariants:
    each frame links to the one before it: what was cut and stands up again behind other records is not taken for one
    synced_before is the end of a frame; the frames below it were whole once
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

FRAME_SIZE: Final = 36
"""Bytes of a frame without its payload."""

_FRAME: Final = struct.Struct("<8sHBxIQII")
_CRC: Final = struct.Struct("<I")

assert _FRAME.size + _CRC.size == FRAME_SIZE


class FrameKind(IntEnum):
    """What a frame is. Stored: the numbers never change."""

    RECORD = 1
    MARK = 2


_KINDS: Final = frozenset(int(kind) for kind in FrameKind)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame ends, and so the next one starts."""

    position: int
    link: int


START: Final = Place(0, 0)


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame, as read."""

    kind: FrameKind
    synced_before: int
    link: int
    payload: bytes
    end: Place


@dataclass(slots=True)
class Scan:
    """What a run of bytes holds: whole records, where the frames cease to be whole, and where to be proven durable."""

    end: Place
    proven: Place
    records: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where each record ends."""
    is_marked: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether every record is known to be on the disk."""
        return not self.ends or self.ends[-1] <= self.proven.position

    def proven_records(self) -> list[bytes]:
        """The records that are known to be on the disk."""
        return [record for record, end in zip(self.records, self.ends, strict=True) if end <= self.proven.position]


def encode_frame(kind: FrameKind, place: Place, synced_before: int, payload: bytes = b"") -> tuple[bytes, Place]:
    """One frame for a place, and the place behind it."""
    head = _FRAME.pack(MAGIC, FORMAT_VERSION, kind, len(payload), synced_before, place.link, zlib.crc32(payload))
    crc = zlib.crc32(head)
    data = head + _CRC.pack(crc) + payload
    return data, Place(place.position + len(data), crc)


def encode_records(payloads: Sequence[bytes], place: Place, synced_before: int) -> tuple[bytes, Place]:
    """Records one behind the other, to be written at once, and the place behind them."""
    frames = []
    for payload in payloads:
        data, place = encode_frame(FrameKind.RECORD, place, synced_before, payload)
        frames.append(data)
    return b"".join(frames), place


def encode_mark(place: Place) -> tuple[bytes, Place]:
    """The proof that all before the place is on the disk."""
    return encode_frame(FrameKind.MARK, place, place.position)


def decode_frame(data: bytes, at: int, position: int) -> Frame | None:
    """The frame that `data` has at index `at`, which is `position` in the file; None if no whole frame is there."""
    head = data[at : at + FRAME_SIZE]
    if len(head) < FRAME_SIZE or not head.startswith(MAGIC):
        return None
    (crc,) = _CRC.unpack_from(head, _FRAME.size)
    if zlib.crc32(head[: _FRAME.size]) != crc:
        return None
    _, version, kind, length, synced_before, link, payload_crc = _FRAME.unpack_from(head)
    if version != FORMAT_VERSION or kind not in _KINDS:
        raise UnknownFormat(f"a record has format version {version} and kind {kind}; this program reads others")
    payload = data[at + FRAME_SIZE : at + FRAME_SIZE + length]
    if length > RECORD_BYTES_MAX or len(payload) != length or zlib.crc32(payload) != payload_crc:
        return None
    end = Place(position + FRAME_SIZE + length, crc)
    return Frame(FrameKind(kind), synced_before, link, payload, end)


def scan(data: bytes, start: Place = START) -> Scan:
    """Read frames up to the first that is not whole; raises `CorruptRecord` if that one is proven to have been whole.

    `data` is the file from `start` on.
    """
    found = Scan(end=start, proven=start)
    ends = {start.position: start}
    while (frame := _frame_at(data, start, found.end)) is not None:
        found.end = frame.end
        ends[frame.end.position] = frame.end
        found.proven = max(found.proven, ends.get(frame.synced_before, start), key=lambda place: place.position)
        if frame.kind is FrameKind.MARK:
            found.is_marked = True
        else:
            found.records.append(frame.payload)
            found.ends.append(frame.end.position)
    for later in _frames_behind(data, start.position, found.end.position):
        if later.synced_before > found.end.position:
            raise CorruptRecord(
                "a record was whole once and is not now", at=found.end.position, proof=later.end.position
            )
    return found


def _frame_at(data: bytes, start: Place, place: Place) -> Frame | None:
    """The frame that continues the chain."""
    frame = decode_frame(data, place.position - start.position, place.position)
    return frame if frame is not None and frame.link == place.link else None


def _frames_behind(data: bytes, start: int, position: int) -> Iterator[Frame]:
    """Whole frames behind a position where none is."""
    at = position - start
    while (at := data.find(MAGIC, at + 1)) >= 0:
        frame = decode_frame(data, at, start + at)
        if frame is not None:
            yield frame
