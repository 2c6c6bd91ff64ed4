"""Rows of many shares out of the journal: each part that holds some is read, checked and decoded once, then let go.

Only the rows asked for stay in memory. A part has those of thousands of logs, and a flush wants some of them.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from storage.disk import Disk
from storage.errors import StorageError
from storage.journal import JournalShare
from storage.journal_block import part_of_share
from storage.parts import decode_batches
from storage.scan import read_part

Found: TypeAlias = pa.RecordBatch | OSError | StorageError
"""A share's rows, or why they cannot be had, which is its log's fault and no other's."""


def rows_of_shares(disk: Disk, shares: Sequence[JournalShare]) -> list[Found | None]:
    """For each share its rows; None for one without rows."""
    found: list[Found | None] = [None] * len(shares)
    by_part: dict[tuple[str, int, int], list[int]] = {}
    for index, share in enumerate(shares):
        if share.entry.rows:
            key = (share.ref.path, share.ref.position, part_of_share(share.entry))
            by_part.setdefault(key, []).append(index)
    for indexes in by_part.values():
        try:
            copied = _copied([shares[index] for index in indexes], disk)
        except (OSError, StorageError) as error:
            for index in indexes:
                found[index] = error
            continue
        start = 0
        for index in indexes:
            rows = shares[index].entry.rows
            found[index] = copied.slice(start, rows)
            start += rows
    return found


def _copied(shares: Sequence[JournalShare], disk: Disk) -> pa.RecordBatch:
    """The rows of shares of one part, one after the other, in memory of their own."""
    first = shares[0]
    (part,) = decode_batches(read_part(disk, first.ref, part_of_share(first.entry)))
    firsts = np.array([share.entry.row for share in shares], np.int64)
    counts = np.array([share.entry.rows for share in shares], np.int64)
    before = np.cumsum(counts) - counts
    return part.take(pa.array(np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))))
