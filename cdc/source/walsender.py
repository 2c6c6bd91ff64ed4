"""The frames that a walsender and its reader exchange inside COPY BOTH, whole batches of them at a time.

    from the server   'w' start of the data u64, end of WAL u64, clock i64, then a message of the output plugin
                      'k' end of WAL u64, clock i64, wants a reply u8
    from us           'r' received u64, flushed u64, applied u64, clock i64, wants a reply u8

Clocks count microseconds since 2000. All numbers are big-endian.

Invariants:
    received never falls: the greatest place that the server spoke of
    many keepalives of a batch become one, behind the batch's data: later is always safe, earlier never is (A1)
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cdc.source.errors import ProtocolError
from cdc.source.fragments import KeepAlive
from cdc.source.lsn import LSN_ZERO, Lsn
from cdc.source.numbers import Bytes, Integers, take_uint64

EPOCH_MICROSECONDS: Final = 946_684_800_000_000
"""Postgres counts its clocks from the start of 2000: this much after 1970."""

_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")
_DATA_HEADER_BYTES: Final = 25
_KEEPALIVE_BYTES: Final = 18
_STATUS: Final = struct.Struct(">cQQQqB")


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Frames as they came off the connection: frame i is `buffer[starts[i]:ends[i]]`, in order, not overlapping.

    Whoever decodes it copies what it keeps: the buffer is used again for the next batch.
    """

    buffer: Bytes
    starts: Integers
    ends: Integers

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def join(cls, frames: Sequence[bytes | memoryview]) -> "CopyBatch":
        """A batch of frames that came one by one."""
        ends = np.fromiter(map(len, frames), np.int64, len(frames)).cumsum()
        starts = np.empty_like(ends)
        starts[:1] = 0
        starts[1:] = ends[:-1]
        return cls(np.frombuffer(b"".join(frames), np.uint8), starts, ends)


@dataclass(frozen=True, slots=True)
class Frames:
    """A batch sorted by what it holds."""

    messages: CopyBatch
    """The output plugin's messages, without the walsender's header."""
    keepalive: KeepAlive | None
    received: Lsn


@dataclass(frozen=True, slots=True)
class Status:
    """What we tell the server. `flushed` is what it may forget, so nobody but the flush tracker knows it."""

    received: Lsn
    flushed: Lsn
    wants_reply: bool = False

    def encode(self, now_us: int) -> bytes:
        """The frame; `now_us` in microseconds since 1970."""
        # Applied is the same as flushed: a slot moves by flushed alone.
        clock = now_us - EPOCH_MICROSECONDS
        return _STATUS.pack(b"r", self.received, self.flushed, self.flushed, clock, self.wants_reply)

    @classmethod
    def decode(cls, frame: bytes | memoryview) -> "Status":
        """Read a frame of ours, as the server does."""
        try:
            tag, received, flushed, _, _, wants_reply = _STATUS.unpack(frame)
        except struct.error:
            raise ProtocolError("a status frame has another size", size=len(frame)) from None
        if tag != b"r":
            raise ProtocolError("this is no status frame", tag=tag)
        return cls(Lsn(received), Lsn(flushed), bool(wants_reply))


def sort_frames(batch: CopyBatch) -> Frames:
    """Take the walsender's headers off a batch; raises `ProtocolError` for any other frame."""
    buffer, starts, ends = batch.buffer, batch.starts, batch.ends
    sizes = ends - starts
    if not len(starts):
        return Frames(batch, None, LSN_ZERO)
    if sizes.min() < 1:
        raise ProtocolError("a frame of the stream is empty")
    tags = buffer[starts]
    is_data = tags == _DATA
    keepalive = None
    received = 0
    if not is_data.all():
        is_keepalive = tags == _KEEPALIVE
        if not (is_data | is_keepalive).all():
            raise ProtocolError("a frame of the stream has an unknown tag", tag=int(tags[~(is_data | is_keepalive)][0]))
        if (sizes[is_keepalive] != _KEEPALIVE_BYTES).any():
            raise ProtocolError("a keepalive has another size", sizes=sizes[is_keepalive].tolist()[:8])
        at = starts[is_keepalive]
        wal_end = Lsn(int(take_uint64(buffer, at + 1).max()))
        keepalive = KeepAlive(wal_end, bool(buffer[at + 17].any()))
        received = wal_end
        starts, ends, sizes = starts[is_data], ends[is_data], sizes[is_data]
    if len(starts):
        if sizes.min() < _DATA_HEADER_BYTES:
            raise ProtocolError("a frame of data is shorter than its header", size=int(sizes.min()))
        received = max(received, int(take_uint64(buffer, starts + 1).max()))
    return Frames(CopyBatch(buffer, starts + _DATA_HEADER_BYTES, ends), keepalive, Lsn(received))
