"""From the offset that a request names to what is read for it. Pure.

    -1            chunk 0 of the base
    0_k           chunk k + 1, or the log from the base's floor, if k is the last
    above that    the log

A base without rows has one chunk, which holds its end mark only. Whether a chunk is the last is part of its answer, so
nobody gets one before that is known.
"""

from dataclasses import dataclass
from typing import TypeAlias

from storage.offset import SNAPSHOT_END, LogOffset


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """What is known of a base."""

    chunks: int
    is_complete: bool
    floor: LogOffset


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """A chunk of the base."""

    number: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Rows of the log above an offset."""

    after: LogOffset


@dataclass(frozen=True, slots=True)
class NotWritten:
    """What is asked for is still being copied."""


Place: TypeAlias = ChunkPlace | LogPlace | NotWritten


def place_of(after: LogOffset, base: BaseFacts) -> Place:
    """Where the rows above an offset are."""
    if after >= SNAPSHOT_END:
        return LogPlace(max(after, base.floor))
    number = 0 if after.tx < 0 else after.op + 1
    chunks = max(base.chunks, 1) if base.is_complete else base.chunks
    if number < chunks and (base.is_complete or number + 1 < chunks):
        return ChunkPlace(number, base.is_complete and number + 1 == chunks)
    return LogPlace(base.floor) if base.is_complete else NotWritten()


def bound_of(visible: LogOffset, last_seen: int) -> LogOffset:
    """The greatest offset that a reader can have: V, or what an `up-to-date` of an event stream tells him to ask for.

    No commit begins at `last_seen + 1`, so that is behind a whole transaction and before the next.
    """
    return max(visible, LogOffset(max(last_seen, visible.tx) + 1, 0))
