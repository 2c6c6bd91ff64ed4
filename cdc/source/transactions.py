"""Where the messages of a stream stand: in which transaction, at which op. Begin and Commit, columns at a time.

    'B' commit LSN u64, commit time i64, xid u32
    'C' flags u8, commit LSN u64, end LSN u64, commit time i64

Invariants:
    a Begin comes outside a transaction; a Commit, an Origin and a change inside
    a Commit ends the transaction that began last: their commit LSNs are equal
"""

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from cdc.source.errors import ProtocolError
from cdc.source.numbers import Bytes, Integers, Unsigned, Words, take_uint32, take_uint64
from cdc.source.walsender import EPOCH_MICROSECONDS, CopyBatch

T = TypeVar("T", bound=np.generic)

BEGIN, COMMIT = map(ord, "BC")

_BEGIN_BYTES: Final = 21
_COMMIT_BYTES: Final = 26
_COMMIT_TIME_AT: Final = 18


def read_commit_time(message: bytes) -> int:
    """Of one Commit that came by itself: microseconds since 1970."""
    if len(message) != _COMMIT_BYTES or message[0] != COMMIT:
        raise ProtocolError("this is no Commit", bytes=len(message))
    return int.from_bytes(message[_COMMIT_TIME_AT:], "big", signed=True) + EPOCH_MICROSECONDS


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that a run of messages ended in."""

    xid: int
    commit_lsn: int
    commit_time: int
    changes: int
    """Seen so far."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A run of messages with their places."""

    ordinal: Integers
    """For each message, the index of the last transaction that began at or before it; -1 before the first."""
    inside: Integers
    """For each message, 1 inside a transaction (its Commit excluded), else 0."""
    row_number: Integers
    """For each message, how many changes of its transaction came before it."""
    xid: Words
    commit_lsn: Unsigned
    end_lsn: Unsigned
    commit_time: Integers
    changes: Integers
    open_after: OpenTransaction | None


def place(messages: CopyBatch, tags: Bytes, is_change: Integers, opened: OpenTransaction | None) -> Placed:
    """Find the places of all messages; `is_change` is 1 for what takes an op, `opened` what the last run left open."""
    buffer, starts, sizes = messages.buffer, messages.starts, messages.ends - messages.starts
    carried = 0 if opened is None else 1
    is_begin, is_commit = tags == BEGIN, tags == COMMIT
    if (sizes[is_begin] != _BEGIN_BYTES).any() or (sizes[is_commit] != _COMMIT_BYTES).any():
        raise ProtocolError("a Begin or Commit has another size")
    begun = carried + np.cumsum(is_begin)
    inside = begun - np.cumsum(is_commit)
    if len(inside) and (inside.min() < 0 or inside.max() > 1):
        raise ProtocolError("Begin and Commit do not take turns")
    if (is_change > inside).any():
        raise ProtocolError("a change came outside a transaction")
    ordinal = begun - 1

    begins, commits = starts[is_begin], starts[is_commit]
    xid = _joined(opened.xid if opened else None, take_uint32(buffer, begins + 17))
    commit_lsn = _joined(opened.commit_lsn if opened else None, take_uint64(buffer, begins + 1))
    commit_time = _joined(
        opened.commit_time if opened else None, take_uint64(buffer, begins + 9).astype(np.int64) + EPOCH_MICROSECONDS
    )
    ended = ordinal[is_commit]
    if (take_uint64(buffer, commits + 2) != commit_lsn[ended]).any():
        raise ProtocolError("a Commit does not belong to the transaction that is open")
    end_lsn = np.zeros(len(xid), np.uint64)
    end_lsn[ended] = take_uint64(buffer, commits + 10)

    before = np.cumsum(is_change) - is_change
    first = np.zeros(len(xid), np.int64)
    first[carried:] = before[is_begin]
    if opened is not None:
        first[0] = -opened.changes
    row_number = before - first[ordinal] if len(xid) else before
    changes = np.append(first[1:], before[-1:] + is_change[-1:]) - first if len(xid) else first
    open_after = None
    if len(xid) > len(ended):
        open_after = OpenTransaction(int(xid[-1]), int(commit_lsn[-1]), int(commit_time[-1]), int(changes[-1]))
    return Placed(ordinal, inside, row_number, xid, commit_lsn, end_lsn, commit_time, changes, open_after)


def _joined(first: int | None, rest: npt.NDArray[T]) -> npt.NDArray[T]:
    if first is None:
        return rest
    joined: npt.NDArray[T] = np.concatenate([np.array([first], rest.dtype), rest])
    return joined
