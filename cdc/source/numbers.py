"""Numbers of the wire: big-endian, read at many places of a buffer at once, and the array types that we use for them.

A read goes through a view of the buffer whose elements overlap (one starts at every byte), so that one indexing
operation fetches and assembles all of them: four times as fast as gathering bytes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cdc.source.errors import ProtocolError

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]


def take_uint64(buffer: Bytes, at: Integers) -> Unsigned:
    """The 8 bytes at each place; `ProtocolError` if they do not lie within the buffer."""
    return _take(buffer, at, ">u8").astype(np.uint64)


def take_uint32(buffer: Bytes, at: Integers) -> Words:
    """The 4 bytes at each place; `ProtocolError` if they do not lie within the buffer."""
    return _take(buffer, at, ">u4").astype(np.uint32)


def take_uint16(buffer: Bytes, at: Integers) -> npt.NDArray[np.uint16]:
    """The 2 bytes at each place; `ProtocolError` if they do not lie within the buffer."""
    return _take(buffer, at, ">u2").astype(np.uint16)


def every_uint32(buffer: Bytes) -> Words:
    """A number at every byte of the buffer, big-endian and overlapping: index it, never copy it whole."""
    return _every(buffer, ">u4")


def _take(buffer: Bytes, at: Integers, number: str) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = _every(buffer, number)[at]
    except IndexError:
        raise ProtocolError("a message is cut short") from None
    return found


def _every(buffer: Bytes, number: str) -> npt.NDArray[Any]:
    dtype = np.dtype(number)
    count = max(len(buffer) - dtype.itemsize + 1, 0)
    return np.ndarray((count,), dtype, buffer if count else None, strides=(1,) if count else None)
