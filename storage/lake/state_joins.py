"""Which files of a state are joined although no key of theirs changes: deletes leave full files half empty. Pure.

Neighbours are looked at in windows, and a window that can be fewer files is written anew. One that cannot is nearly
full, and so is a file with which none begins: whatever went before, a joined state has few files for its rows.

Invariants:
    ranges do not overlap, and each becomes fewer files than it was
    of rows that are narrow enough, files have nine tenths of their target in the mean, but for the last window
    what one task joins is bounded in rows and bytes, unless one file is larger
"""

from collections.abc import Sequence
from typing import Final

from storage.lake.limits import (
    STATE_FILE_BYTES,
    STATE_FILE_ROWS,
    STATE_FILES_FEW,
    STATE_FILES_SPARE,
    STATE_JOINED_BYTES_MAX,
    STATE_JOINED_FILES_MAX,
)
from storage.lake.state import Rewrite, StateFile, files_for

_ENOUGH: Final = 0.9
"""Of the target: no window begins with such a file, and none takes it along for nothing."""


def share_of(file: StateFile) -> float:
    """How much of a full file it is."""
    return max(file.rows / STATE_FILE_ROWS, file.bytes / STATE_FILE_BYTES)


def state_joins(files: Sequence[StateFile]) -> list[Rewrite]:
    """Ranges of neighbours that become fewer files."""
    ordered = sorted(files, key=lambda file: file.low)
    shares = [share_of(file) for file in ordered]
    found, start = list[Rewrite](), 0
    while start < len(ordered):
        if shares[start] >= _ENOUGH:
            start += 1
            continue
        stop = _end_of_window(ordered, shares, start)
        gain = _gain(shares[start:stop])
        while stop - start > 1 and shares[stop - 1] >= _ENOUGH and _gain(shares[start : stop - 1]) >= gain:
            stop -= 1
        if gain > 0:
            low = ordered[start].low if start else None
            high = ordered[stop].low if stop < len(ordered) else None
            found.append(Rewrite(tuple(file.path for file in ordered[start:stop]), low, high))
        start = stop
    return found


def is_scattered(files: Sequence[StateFile]) -> bool:
    """Whether a state has so many files for its rows that it is joined without being asked."""
    return len(files) > STATE_FILES_FEW + STATE_FILES_SPARE * sum(map(share_of, files)) and bool(state_joins(files))


def _end_of_window(files: Sequence[StateFile], shares: Sequence[float], start: int) -> int:
    stop, total, size = start, 0.0, 0
    while stop < len(files):
        total, size = total + shares[stop], size + files[stop].bytes
        if stop > start and (total > STATE_JOINED_FILES_MAX or size > STATE_JOINED_BYTES_MAX):
            break
        stop += 1
    return stop


def _gain(shares: Sequence[float]) -> int:
    """Files that there would be fewer."""
    return len(shares) - files_for(sum(shares))
