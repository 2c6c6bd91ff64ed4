"""A log's range of offsets in pieces that tasks can take: each ends where a transaction ends, as blocks' headers say.

A piece holds about as much as is asked for; a transaction is never divided, so one may be larger.
"""

from collections.abc import Iterator
from itertools import pairwise

from storage.errors import StorageError
from storage.folder_reader import FolderReader
from storage.lake.limits import CHANGES_FILE_BYTES
from storage.offset import LogOffset

Range = tuple[LogOffset, LogOffset]
"""Rows above the first and up to the second."""


def pieces(
    reader: FolderReader, log: int, after: LogOffset, upto: LogOffset, wire_bytes: int = CHANGES_FILE_BYTES
) -> list[Range]:
    """The range as pieces, in order. What cannot be seen in headers (the journal) belongs to the last one."""
    bounds = [after, *_bounds(reader, log, after, upto, wire_bytes), upto]
    return [(start, stop) for start, stop in pairwise(bounds) if start < stop]


def _bounds(reader: FolderReader, log: int, after: LogOffset, upto: LogOffset, wire_bytes: int) -> Iterator[LogOffset]:
    try:
        headers = reader.headers(log, after)
    except StorageError:
        return  # the writer is at work there, or the log is gone: who reads it finds out
    begun: int | None = None
    for header in headers:
        if header.last <= after:
            begun = header.wire_end
            continue
        if header.aligned >= upto:
            return
        begun = 0 if begun is None else begun
        if header.wire_end - begun >= wire_bytes and header.aligned > after:
            yield header.aligned
            begun = header.wire_end
