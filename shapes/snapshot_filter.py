"""Which transactions a snapshot has seen (A7). Pure, over arrays.

A snapshot speaks in 64-bit transaction ids, the stream in the lower half of them. Both are of one time: a server never
lets two ids that matter lie further apart than 2^31. So a 32-bit id is the one that is nearest to the snapshot's end.

Invariants:
    an id is seen iff it is below xmax and not among those that ran (xip)
    a row is appended iff its commit lies at or above the birth, or the snapshot has not seen it: never both in the
        base and in the log, never in neither; for the shape's whole life, replays included
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cdc.source.numbers import Flags, Integers, Unsigned, Words
from storage.catalog_records import Snapshot

Ids = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
"""Transaction ids: of the stream, or whole ones. Only the lower half is looked at."""

_HALF_MASK = 0xFFFF_FFFF


def is_seen(snapshot: Snapshot, xids: Ids) -> Flags:
    """For each transaction that has ended, whether the snapshot has it."""
    distances = _distances(xids, snapshot.xmax)
    seen: Flags = distances < 0
    if snapshot.xip:
        running = _distances(np.array(snapshot.xip, np.uint64), snapshot.xmax)
        seen &= ~np.isin(distances, running)
    return seen


def is_to_append(snapshot: Snapshot, commit_lsn: Unsigned, xids: Ids) -> Flags:
    """For each transaction of the stream, whether its rows belong in the log; the others are in the base."""
    late: Flags = commit_lsn >= np.uint64(snapshot.birth)
    if late.all():
        return late
    return late | ~is_seen(snapshot, xids)


def halves(xids: "npt.ArrayLike") -> Words:
    """Whole ids as the stream has them."""
    return (np.asarray(xids, np.uint64) & np.uint64(_HALF_MASK)).astype(np.uint32)


def parse_snapshot(text: str, birth: int) -> Snapshot:
    """What `pg_current_snapshot()` says (`xmin:xmax:xip,..`), and the place of the WAL that was read after it."""
    xmin, xmax, xip = text.split(":")
    return Snapshot(int(xmin), int(xmax), tuple(int(one) for one in xip.split(",") if one), birth)


def _distances(xids: npt.NDArray[Any], xmax: int) -> Integers:
    """How far each id lies above xmax; negative below it. Differences modulo 2^32 are what ids are compared by."""
    modular = halves(xids) - np.uint32(xmax & _HALF_MASK)
    return modular.astype(np.int32).astype(np.int64)
