"""Messages of the wire protocol in a buffer of received bytes: a tag, a length that counts itself, a body.

A buffer of many CopyData messages is framed by one search for what their heads look like; that the heads found form
one unbroken chain from a known start proves that they are the messages. Whatever is not like that is walked.

Invariants:
    what is found does not depend on where the bytes were split between reads
    consumed is the start of the first message that is not whole yet
"""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from cdc.source.errors import MessageTooLarge, ProtocolError
from cdc.source.limits import MESSAGE_BYTES_MAX
from cdc.source.numbers import Bytes, Integers, every_uint32

HEAD_BYTES: Final = 5
"""Tag and length, in front of every body."""

_COPY_DATA: Final = ord("d")
_XLOG_DATA: Final = ord("w")
_LENGTH: Final = struct.Struct(">I")
SEARCH_BYTES_MIN: Final = 8 * 1024
"""Below, walking costs less than the search's fixed dozen of array operations."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is not CopyData."""

    tag: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """The whole messages of a buffer."""

    starts: Integers
    """Where the bodies of the CopyData messages start."""
    ends: Integers
    others: tuple[Message, ...]
    consumed: int
    wanted: int
    """Bytes that the message at `consumed` has in all, as far as that is known already."""


def find_messages(
    buffer: Bytes,
    start: int,
    filled: int,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    search_bytes_min: int = SEARCH_BYTES_MIN,
) -> Found:
    """Frame `buffer[start:filled]`; `start` is where a message starts."""
    if filled - start >= search_bytes_min:
        found = _search(buffer, start, filled, message_bytes_max)
        if found is not None:
            return found
    return _walk(buffer, start, filled, message_bytes_max)


def first_message(buffer: Bytes, start: int, filled: int) -> Message | None:
    """The message at `start` alone, whatever it is, or None while it is not whole."""
    if filled - start < HEAD_BYTES:
        return None
    view = buffer.data
    (length,) = _LENGTH.unpack_from(view, start + 1)
    if start + 1 + length > filled:
        return None
    return Message(chr(view[start]), bytes(view[start + HEAD_BYTES : start + 1 + length]))


def _search(buffer: Bytes, start: int, filled: int, message_bytes_max: int) -> Found | None:
    """Find the heads of CopyData with data in it; None unless they are all there is, and nothing is wrong."""
    window = buffer[start:filled]
    # A length below 16 MiB starts with a zero, which no value of text holds: few other places look like a head.
    alike = (
        (window[:-HEAD_BYTES] == _COPY_DATA) & (window[1 : 1 - HEAD_BYTES] == 0) & (window[HEAD_BYTES:] == _XLOG_DATA)
    )
    heads = np.flatnonzero(alike)
    if not len(heads) or heads[0] != 0:
        return None
    ends = heads + 1 + every_uint32(window)[heads + 1].astype(np.int64)
    sizes = ends - heads
    if (ends[:-1] != heads[1:]).any() or sizes[-1] <= HEAD_BYTES or sizes.max() > message_bytes_max:
        return None
    whole = len(ends) if ends[-1] <= len(window) else len(ends) - 1
    consumed = int(ends[whole - 1]) if whole else 0
    if whole == len(ends) and len(window) - consumed >= HEAD_BYTES:
        return None  # a head of another kind follows, or one that is whole only just
    wanted = int(ends[-1]) - consumed if whole < len(ends) else HEAD_BYTES
    return Found(heads[:whole] + (start + HEAD_BYTES), ends[:whole] + start, (), start + consumed, wanted)


def _walk(buffer: Bytes, start: int, filled: int, message_bytes_max: int) -> Found:
    view = buffer.data
    starts: list[int] = []
    ends: list[int] = []
    others: list[Message] = []
    wanted = HEAD_BYTES
    while filled - start >= HEAD_BYTES:
        tag = view[start]
        (length,) = _LENGTH.unpack_from(view, start + 1)
        if length < _LENGTH.size:
            raise ProtocolError("a message says that it is shorter than its own head", tag=tag, length=length)
        if length >= message_bytes_max:
            raise MessageTooLarge("a message is above the limit", bytes=length, limit=message_bytes_max)
        end = start + 1 + length
        if end > filled:
            wanted = end - start
            break
        if tag == _COPY_DATA:
            starts.append(start + HEAD_BYTES)
            ends.append(end)
        else:
            others.append(Message(chr(tag), bytes(view[start + HEAD_BYTES : end])))
        start = end
    return Found(np.array(starts, np.int64), np.array(ends, np.int64), tuple(others), start, wanted)
