"""How far everything is durable, and so what Postgres may forget: G. Pure; time is passed in.

G is the end of the last event of the stream (a commit or a keepalive) such that every transaction up to it is durable
in every shape that it touched. No list of commits is needed for that to be exact: each pending transaction brings along
the position *before* it, so G is the least of those, or the end of the stream if nothing is pending.

Invariants:
    at <= G <= seen; within an incarnation both only grow
    G = min(bound of each shape that has one; seen)
    G <= bound <= seen for every bound: what comes later is bounded by a later position
    at <= last_end <= seen: between the two there is no commit record, says a keepalive
    D <= V <= seen for each shape, but for what an earlier life left on its disk
    open_tx is None or G <= open_tx, unless that transaction is sent again (M7)
    each shape that has a bound has exactly one entry in the heap, at or below its bound (bounds only grow)

Calls come in the order of the stream. Every call checks first and moves afterwards: one that raises changed nothing.
Costs, with n shapes: O(log n) amortized for a flush or reading G, whatever the number of commits; see each call.
"""

import heapq
from collections.abc import Callable, Hashable
from itertools import count

from flush_tracker.errors import (
    CommitsOutOfOrder,
    FloorOutOfReach,
    IncarnationRepeated,
    ShapeAttachedTwice,
    UnalignedFlush,
    UnknownShape,
)
from flush_tracker.explanation import Explanation, Hold, Holder
from flush_tracker.limits import STALE_BOUNDS_SHARE, STALE_BOUNDS_SLACK
from flush_tracker.stream import OP, TX, Commits, Position, Touched, positions_before
from flush_tracker.tracked_shape import TrackedShape
from storage.offset import SNAPSHOT_END, LogOffset, offsets_of


class FlushTracker:
    """Takes what the stream sends and what the disk has; tells what may be confirmed."""

    def __init__(self, incarnation: Hashable, at: int, commit_time: int = 0) -> None:
        self._start(incarnation, at, commit_time)

    def _start(self, incarnation: Hashable, at: int, commit_time: int) -> None:
        self.incarnation = incarnation
        self.seen = Position(at, commit_time)
        """How far the stream has come: the end of its last commit or keepalive."""
        self._last_end = at
        """The end of its last commit: what lies at or below was sent before."""
        self.open_tx: int | None = None
        """The commit LSN of the transaction that is being received."""
        self._shapes: dict[int, TrackedShape] = {}
        self._bounds: list[tuple[int, int, TrackedShape]] = []
        self._serials = count()

    # The stream

    def commits(self, commits: Commits, touched: Touched, now: float) -> int:
        """Transactions ended, and left rows in these shapes. Returns how many of them are news.

        Those up to the last commit seen were sent again, and change nothing. A transaction that touched a shape without
        leaving a row is not listed for it. O(shapes touched) steps, and array operations over commits and touches.
        """
        known = commits.known(self._last_end, self.seen.lsn)
        touched.check(len(commits))
        if self.open_tx is not None and len(commits) and commits.final_lsn[0] != self.open_tx:
            raise CommitsOutOfOrder("not the open transaction", tx=int(commits.final_lsn[0]), open_tx=self.open_tx)
        commits, touched = commits.since(known), touched.since(known)
        numbers = touched.shapes.tolist()
        unknown = [number for number in numbers if number not in self._shapes]
        if unknown:
            raise UnknownShape("a commit touched shapes that are not attached", shapes=unknown)
        if numbers:
            self._add_pending(numbers, commits, touched, now)
        if known or len(commits):
            self.open_tx = None
        if len(commits):
            self.seen = commits.end
            self._last_end = self.seen.lsn
        return len(commits)

    def _add_pending(self, numbers: list[int], commits: Commits, touched: Touched, now: float) -> None:
        rows = commits.pending_rows(self.seen)[touched.ordinals]
        starts, ends = touched.starts[:-1], touched.starts[1:]
        # Plain integers for the loop: a look into an array costs more than a shape's whole step.
        first_txs = rows[starts, TX].tolist()
        befores = positions_before(rows[starts])
        visibles = offsets_of(rows[ends - 1, TX].tolist(), rows[ends - 1, OP].tolist())
        columns = zip(numbers, starts.tolist(), ends.tolist(), first_txs, befores, visibles, strict=True)
        for number, start, end, first_tx, before, visible in columns:
            shape = self._shapes[number]
            own = rows[start:end]
            first = before
            if first_tx <= shape.durable.tx:
                own = shape.rows_above_durable(own)
                if not len(own):
                    continue
                (first,) = positions_before(own[:1])
            # A copy, or one slow shape would keep the rows of all others of its batches.
            shape.take(own.copy(), first, visible, now)
            if not shape.is_queued:
                self._queue(shape)

    def begin_open(self, tx: int) -> None:
        """The stream is inside a transaction whose COMMIT has not come: no keepalive counts until it has. O(1)."""
        if self.open_tx not in (None, tx):
            raise CommitsOutOfOrder("a transaction within a transaction", tx=tx, open_tx=self.open_tx)
        self.open_tx = tx

    def drop_open(self) -> None:
        """The connection ended, or the transaction was aborted: it held nothing, and is sent again whole. O(1)."""
        self.open_tx = None

    def idle_at(self, wal_end: int) -> bool:
        """A keepalive, in its place behind the data: nothing more was committed below `wal_end`. O(1).

        An event like a commit that touched nothing. G may come to exactly `wal_end`, never above: a commit record can
        begin there (B1).
        """
        if self.open_tx is not None or wal_end <= self.seen.lsn:
            return False
        self.seen = Position(wal_end, self.seen.commit_time)
        return True

    def reset(self, incarnation: Hashable, at: int, commit_time: int = 0) -> None:
        """Another life of the slot: G is set, not raised (M6); shapes that go on are attached again with their D."""
        if incarnation == self.incarnation:
            raise IncarnationRepeated("G would fall within an incarnation", incarnation=incarnation)
        self._start(incarnation, at, commit_time)

    # The disk

    def flushed(self, shape: int, aligned: LogOffset, now: float) -> bool:
        """A synced header says that the shape is durable up to `aligned`. Whether that is news.

        Old news and shapes that are gone move nothing. O(log n) amortized.
        """
        tracked = self._shapes.get(shape)
        # A transaction is durable as a whole: one that came again may end at another number than it did before.
        if tracked is None or aligned.tx <= tracked.durable.tx:
            return False
        if aligned.tx >= self.seen.lsn:
            raise UnalignedFlush(
                "a flush above the last commit", shape=shape, flushed=aligned, seen=self.seen.lsn, open_tx=self.open_tx
            )
        tracked.flush(aligned, now)
        return True

    def end_of(self, shape: int, tx: int) -> LogOffset | None:
        """How the end of a transaction was told that is pending in the shape."""
        tracked = self._shapes.get(shape)
        return None if tracked is None else tracked.end_of(tx)

    # The shapes

    def attach(self, shape: int, now: float, *, durable: LogOffset = SNAPSHOT_END, floor: int | None = None) -> None:
        """Track a shape whose log is durable up to `durable`. O(log n).

        A shape that joins gives its `floor`, where the stream is when it joins: G does not pass it until `born` (M5).
        """
        if shape in self._shapes:
            raise ShapeAttachedTwice("the shape is attached", shape=shape)
        pin = None
        if floor is not None:
            g = self.g
            if not g.lsn <= floor <= self.seen.lsn:
                raise FloorOutOfReach("no such place to join", shape=shape, floor=floor, g=g.lsn, seen=self.seen.lsn)
            # Between the two nobody knows the time any more; that of G belongs to a commit below the floor too.
            pin = self.seen if floor == self.seen.lsn else Position(floor, g.commit_time)
        tracked = self._shapes[shape] = TrackedShape(shape, durable, pin, now)
        if pin is not None:
            self._queue(tracked)

    def born(self, shape: int, now: float) -> bool:
        """The shape's identity is on disk: from now on it holds G by its rows only, those since it joined included."""
        tracked = self._shapes.get(shape)
        if tracked is None or tracked.pin is None:
            return False
        tracked.release(now)
        return True

    def detach(self, shape: int) -> bool:
        """The shape has ended, on disk before this is called (A11): let go of all that it held. O(1) amortized."""
        tracked = self._shapes.pop(shape, None)
        if tracked is None:
            return False
        tracked.detach()
        if len(self._bounds) > 2 * len(self._shapes) + STALE_BOUNDS_SLACK:
            self._sweep()
        return True

    # Questions

    @property
    def g(self) -> Position:
        """What may be confirmed, once it is itself on disk. O(log n) amortized over the flushes since the last look."""
        holder = self._holder()
        return self.seen if holder is None or holder.bound is None else holder.bound

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was received waits for anything: G grows no further until more comes. As costly as G."""
        return self.open_tx is None and self.g == self.seen

    def is_pending(self, shape: int) -> bool:
        """Whether the shape has rows that are not durable. O(1)."""
        tracked = self._shapes.get(shape)
        return tracked is not None and bool(tracked.runs)

    def stalled(self, now: float, grace: float) -> list[int]:
        """Shapes with something to flush that became no more durable for longer than `grace`. O(shapes).

        Rows of a transaction that is still open are nobody's debt, however long it takes (B2).
        """
        return [shape.number for shape in self._shapes.values() if shape.is_stalled(now, grace)]

    def touch(self, shape: int, now: float) -> None:
        """Give the shape another `grace`. O(1)."""
        tracked = self._shapes.get(shape)
        if tracked is not None:
            tracked.progress_at = now

    def explain(self, now: float, bytes_pending: Callable[[int], int | None] = lambda _: None) -> Explanation:
        """Who holds G, and what would free it; `bytes_pending` is asked for the holder's share. O(shapes)."""
        shape = self._holder()
        holder = None
        hold = Hold.NOTHING if self.open_tx is None else Hold.OPEN_TRANSACTION
        if shape is not None:
            holder = Holder.of(shape, now, bytes_pending(shape.number))
            hold = Hold.ROWS if shape.pin is None else Hold.JOINING
        return Explanation(
            g=self.g,
            seen=self.seen,
            hold=hold,
            holder=holder,
            open_tx=self.open_tx,
            shapes_pending=sum(bool(shape.runs) for shape in self._shapes.values()),
        )

    # The heap of bounds

    def _holder(self) -> TrackedShape | None:
        """The shape with the least bound. Entries are renewed where they are in the way; if many are, all of them."""
        bounds, stale_max = self._bounds, len(self._bounds) // STALE_BOUNDS_SHARE
        while bounds:
            lsn, serial, shape = bounds[0]
            if shape.bound is not None and shape.bound.lsn <= lsn:
                return shape
            stale_max -= 1
            if stale_max == 0:
                self._sweep()
                bounds = self._bounds
            elif shape.bound is None:
                heapq.heappop(bounds)
                shape.is_queued = False
            else:
                heapq.heapreplace(bounds, (shape.bound.lsn, serial, shape))
        return None

    def _queue(self, shape: TrackedShape) -> None:
        if not shape.is_queued and shape.bound is not None:
            heapq.heappush(self._bounds, (shape.bound.lsn, next(self._serials), shape))
            shape.is_queued = True

    def _sweep(self) -> None:
        """Bring all entries up to date, and drop those of shapes without a bound. O(n), paid for by O(n) calls."""
        kept = []
        for _, serial, shape in self._bounds:
            shape.is_queued = shape.bound is not None
            if shape.bound is not None:
                kept.append((shape.bound.lsn, serial, shape))
        self._bounds = kept
        heapq.heapify(kept)
