"""What the stream has already told, and a snapshot of a new shape must therefore have seen (A6). Pure.

A commit is streamed before it is visible, for long where a standby must confirm it; once it was confirmed to the slot
it is never sent again. A snapshot that does not see such a commit would lose it: its rows are not in the base, and
they will never be in the stream. Two kinds of transactions may be such:

    (a) those whose commit this process streamed before the shape joined
    (b) those that ran when this process began to stream: an earlier one may have streamed and confirmed their commit

Both are kept here until a snapshot is known that has seen them; every later snapshot then has, too.

Invariants:
    `demand()` covers each transaction of (a) and (b) that no snapshot given to `forget_seen` has seen
    never more than `xids_max` ids are kept: when they would be more, all that is known so far becomes one bound, below
        which everything is demanded. That demands too much (an ordinary long writer then counts), never too little
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from cdc.source.numbers import Flags, Words
from shapes.limits import STREAMED_XIDS_MAX
from shapes.snapshot_filter import halves, is_seen
from storage.catalog_records import Snapshot

_ROOM_MIN: Final = 1024


@dataclass(frozen=True, slots=True)
class Demand:
    """What a snapshot must have seen before a shape may be born from it."""

    xids: Words
    upto: int | None = None
    """All transactions up to this id are demanded, too."""

    def unseen(self, snapshot: Snapshot) -> Words:
        """The transactions that force another look; none if the snapshot will do."""
        missing = self.xids[~is_seen(snapshot, self.xids)]
        if self.upto is not None and not _is_above(snapshot.xmin, self.upto):
            running = halves(snapshot.xip)
            running = running[~_are_above(running, self.upto)]
            # What lies at or above xmax ran, too, and is in no list; the bound itself stands for it.
            beyond = [] if _is_above(snapshot.xmax, self.upto) else [self.upto]
            missing = np.concatenate((missing, running, np.array(beyond, np.uint32)))
        return np.unique(missing)


class Streamed:
    """The transactions that are streamed and perhaps not visible yet."""

    def __init__(self, began: Snapshot, xids_max: int = STREAMED_XIDS_MAX) -> None:
        """`began` is a snapshot from the time when this process began to stream, with all that ran then in its xip."""
        self._xids_max = max(xids_max, 1)
        self._xids: Words = np.empty(_ROOM_MIN, np.uint32)
        self._count = 0
        self._upto: int | None = None
        self.add(halves(began.xip))

    def __len__(self) -> int:
        return self._count

    @property
    def is_look_due(self) -> bool:
        """Half of the room is taken: a look at what the server shows by now would free it."""
        return self._upto is not None or 2 * self._count >= self._xids_max

    def add(self, xids: Words) -> None:
        """Transactions ended in the stream."""
        if self._count + len(xids) > self._xids_max:
            self._bound(xids)
            return
        end = self._count + len(xids)
        if end > len(self._xids):
            grown = np.empty(min(max(2 * len(self._xids), end), max(self._xids_max, end)), np.uint32)
            grown[: self._count] = self._xids[: self._count]
            self._xids = grown
        self._xids[self._count : end] = xids
        self._count = end

    def forget_seen(self, snapshot: Snapshot) -> None:
        """A snapshot, taken at any time since, shows how far the server is."""
        present = self._xids[: self._count]
        still = present[~is_seen(snapshot, present)]
        room = max(_ROOM_MIN, 2 * len(still))
        if room < len(self._xids):
            self._xids = np.empty(room, np.uint32)
        self._xids[: len(still)] = still
        self._count = len(still)
        if self._upto is not None and _is_above(snapshot.xmin, self._upto):
            self._upto = None

    def demand(self) -> Demand:
        """What a shape that joins now must find in its snapshot."""
        return Demand(self._xids[: self._count].copy(), self._upto)

    def _bound(self, xids: Words) -> None:
        """One bound takes the place of all ids."""
        known = [self._xids[: self._count], xids]
        if self._upto is not None:
            known.append(np.array([self._upto], np.uint32))
        every = np.concatenate(known)
        # The newest, by differences as everywhere: none is further than 2^31 from another.
        self._upto = int(every[np.argmax((every - every[0]).astype(np.int32))])
        self._count = 0


def _is_above(xid: int, bound: int) -> bool:
    """Whether an id lies above a bound, modulo 2^32."""
    return bool(_are_above(halves([xid]), bound)[0])


def _are_above(xids: Words, bound: int) -> Flags:
    above: Flags = (xids - halves([bound])).astype(np.int32) > 0
    return above
