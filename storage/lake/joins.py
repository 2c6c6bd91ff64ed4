"""Which files of a table of changes are written as one: small ones that lie side by side. Pure.

A day of small batches is thousands of files; they are joined in tiers, so a row is rewritten a few times only.

Invariants:
    files of a join are neighbours, so the range of offsets of the new file has no gap
    a join is larger than `JOINED_BYTES_MAX` by no more than one file
    after joins there are never so many small neighbours as a tier says
"""

from collections.abc import Iterator, Sequence
from typing import Final

from storage.lake.limits import CHANGES_TIERS_BYTES, JOINED_BYTES_MAX

ALL_SMALL: Final = ((JOINED_BYTES_MAX, 2),)
"""The tier with which nothing is left that can be joined."""


def joins(
    sizes: Sequence[int],
    tiers: Sequence[tuple[int, int]] = CHANGES_TIERS_BYTES,
    joined_bytes: int = JOINED_BYTES_MAX,
) -> list[range]:
    """Runs of files to be joined, by the numbers of the files in their order; none overlaps another."""
    for bytes_max, count_min in tiers:
        found = [run for run in _runs(sizes, bytes_max) if len(run) >= count_min]
        if found:
            return [part for run in found for part in _parts(sizes, run, joined_bytes)]
    return []


def _runs(sizes: Sequence[int], bytes_max: int) -> Iterator[range]:
    """Neighbours that are each smaller than this."""
    start = 0
    for number in range(len(sizes) + 1):
        if number == len(sizes) or sizes[number] >= bytes_max:
            if number > start:
                yield range(start, number)
            start = number + 1


def _parts(sizes: Sequence[int], run: range, joined_bytes: int) -> Iterator[range]:
    """A run in parts of about a size; the last one is what is left."""
    start, total = run.start, 0
    for number in run:
        total += sizes[number]
        if total >= joined_bytes or number + 1 == run.stop:
            if number > start:
                yield range(start, number + 1)
            start, total = number + 1, 0
