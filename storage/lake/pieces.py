"""A log's range of offsets in pieces that tasks can take: each ends where a transaction ends, as blocks' headers say.

A piece holds about as much as is asked for; a transaction is never divided, so one may be larger.
"""

from collections.abc import Iterator
from itertools import pairwise

from storage.disk import Disk
from storage.errors import CorruptBlock
from storage.lake.limits import CHANGES_FILE_BYTES
from storage.offset import LogOffset
from storage.segments import list_segments

Range = tuple[LogOffset, LogOffset]
"""Rows above the first and up to the second."""


def pieces(
    disk: Disk, log: int, after: LogOffset, upto: LogOffset, wire_bytes: int = CHANGES_FILE_BYTES
) -> list[Range]:
    """The range as pieces, in order. What cannot be seen in headers (the journal) belongs to the last one."""
    bounds = [after, *_bounds(disk, log, after, upto, wire_bytes), upto]
    return [(start, stop) for start, stop in pairwise(bounds) if start < stop]


def _bounds(disk: Disk, log: int, after: LogOffset, upto: LogOffset, wire_bytes: int) -> Iterator[LogOffset]:
    begun: int | None = None
    try:
        for segment in list_segments(disk, log)[0]:
            segment.load(disk)
            for header in (ref.header for ref in segment.refs):
                if header.last <= after:
                    begun = header.wire_end
                    continue
                if header.aligned >= upto:
                    return
                begun = 0 if begun is None else begun
                if header.wire_end - begun >= wire_bytes and header.aligned > after:
                    yield header.aligned
                    begun = header.wire_end
    except (FileNotFoundError, CorruptBlock):
        return  # the writer is at work there: the rest is one piece
