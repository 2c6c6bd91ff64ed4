"""The flush tracker against a trivially correct model: a list of transactions, and how far each shape is durable.

The model walks its list from the start whenever it is asked. After every step of every interleaving the two agree on
G, on who is pending and who is stalled, and the explanation names a shape that really holds G.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flush_tracker.errors import (
    CommitsOutOfOrder,
    FloorOutOfReach,
    FlushAboveVisible,
    FlushTrackerError,
    IncarnationRepeated,
    ShapeAttachedTwice,
    UnalignedFlush,
    UnknownShape,
)
from flush_tracker.explanation import Hold
from flush_tracker.limits import STALE_BOUNDS_SLACK
from flush_tracker.stream import Commits, Touched
from flush_tracker.tracker import FlushTracker
from storage.offset import OP_MAX, SNAPSHOT_END, LogOffset

GRACE = 5.0
SHAPES = range(5)


@dataclass(slots=True)
class Event:
    """A transaction that has ended, or a keepalive (`tx` is None)."""

    tx: int | None
    end: int
    changes: int = 0
    time: int = 0
    shapes: set[int] = field(default_factory=set)

    @property
    def aligned(self) -> LogOffset:
        return LogOffset.aligned(self.tx or 0, self.changes)


def batch_of(events: Sequence[Event]) -> tuple[Commits, Touched]:
    """Transactions as the tracker takes them."""

    def array(numbers: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.fromiter(numbers, dtype=np.int64)

    commits = Commits(
        array(event.tx or 0 for event in events),
        array(event.end for event in events),
        array(event.aligned.op for event in events),
        array(event.time for event in events),
    )
    shapes = sorted(set[int]().union(*(event.shapes for event in events)))
    ordinals = [[i for i, event in enumerate(events) if shape in event.shapes] for shape in shapes]
    starts = np.cumsum([0, *map(len, ordinals)], dtype=np.int64)
    return commits, Touched(array(shapes), starts, array(i for own in ordinals for i in own))


class Plan(NamedTuple):
    """A transaction to come: the gap before its commit record, the record's size, its changes, where it leaves rows."""

    gap: int
    size: int
    changes: int
    shapes: frozenset[int]


plans = st.builds(
    Plan, st.integers(0, 2), st.integers(1, 3), st.integers(1, 4), st.frozensets(st.sampled_from(SHAPES), max_size=3)
)


class TrackerLife(RuleBasedStateMachine):
    """Commits, flushes, keepalives, shapes that come and go, connections that break, slots that are made anew."""

    @initialize(at=st.sampled_from([1, 1000, 2**63 - 2**16]))
    def start(self, at: int) -> None:
        self.tracker = FlushTracker(0, at)
        self.begin(0, at)
        self.now = 0.0

    def begin(self, incarnation: int, at: int) -> None:
        self.incarnation = incarnation
        self.at = at
        self.events: list[Event] = []
        self.durable: dict[int, LogOffset] = {}
        self.pins: dict[int, int] = {}
        self.progress_at: dict[int, float] = {}
        self.open_tx: int | None = None
        self.last_g = at

    # What the model says

    @property
    def seen(self) -> int:
        return self.events[-1].end if self.events else self.at

    def pending(self, shape: int) -> list[Event]:
        return [event for event in self.events if shape in event.shapes and event.aligned > self.durable[shape]]

    def visible(self, shape: int) -> LogOffset:
        return max([self.durable[shape], *(event.aligned for event in self.pending(shape))])

    def g(self) -> int:
        held = {id(event) for shape in self.durable for event in self.pending(shape)}
        g = self.at
        for event in self.events:
            if id(event) in held:
                break
            g = event.end
        return min([g, *self.pins.values()])

    def times(self, g: int) -> list[int]:
        return [0, *(event.time for event in self.events if event.tx is not None and event.end <= g)]

    # What happens

    def planned(self, plans: Iterable[Plan]) -> list[Event]:
        events: list[Event] = []
        end = self.seen
        for plan in plans:
            tx = end + plan.gap
            if not events and self.open_tx is not None:
                tx = self.open_tx
            end = tx + plan.size
            time = end * 31 % 97  # commits are not ordered by their time
            events.append(Event(tx, end, plan.changes, time, set(plan.shapes & self.durable.keys())))
        return events

    def take(self, events: list[Event]) -> None:
        for shape in self.durable:
            was_pending = bool(self.pending(shape))
            for event in events:
                if shape in event.shapes and event.aligned > self.durable[shape] and not was_pending:
                    self.progress_at[shape] = self.now
        self.events += events
        if events:
            self.open_tx = None

    @rule(plans=st.lists(plans, max_size=6))
    def commit(self, plans: list[Plan]) -> None:
        events = self.planned(plans)
        assert self.tracker.commits(*batch_of(events), self.now) == len(events)
        self.take(events)

    @rule(gap=st.integers(0, 2))
    def a_transaction_goes_on(self, gap: int) -> None:
        if self.open_tx is None:
            self.open_tx = self.seen + gap
        self.tracker.begin_open(self.open_tx)

    @precondition(lambda self: self.open_tx is not None)
    @rule()
    def another_commit_than_the_open_one_is_refused(self) -> None:
        assert self.open_tx is not None
        with pytest.raises(CommitsOutOfOrder):
            self.tracker.commits(*batch_of([Event(self.open_tx + 1, self.open_tx + 2, 1)]), self.now)
        with pytest.raises(CommitsOutOfOrder):
            self.tracker.begin_open(self.open_tx + 1)

    @rule(distance=st.integers(-3, 5))
    def keepalive(self, distance: int) -> None:
        wal_end = max(self.seen + distance, 0)
        counts = self.open_tx is None and distance > 0 and wal_end > self.seen
        assert self.tracker.idle_at(wal_end) is counts
        if counts:
            self.events.append(Event(None, wal_end))

    @rule(back=st.integers(1, 3), size=st.integers(1, 5))
    def a_commit_below_a_keepalive_is_refused(self, back: int, size: int) -> None:
        tx = self.seen - back
        ends = [self.at, *(event.end for event in self.events if event.tx is not None)]
        if self.open_tx is None and tx + size > ends[-1]:
            with pytest.raises(CommitsOutOfOrder):
                self.tracker.commits(*batch_of([Event(tx, tx + size, 1)]), self.now)

    @rule(back=st.integers(0, 8), plans=st.lists(plans, max_size=3), also=st.frozensets(st.sampled_from(SHAPES)))
    def reconnect_and_replay(self, back: int, plans: list[Plan], also: frozenset[int]) -> None:
        self.tracker.drop_open()
        self.open_tx = None
        sent = [event for event in self.events if event.tx is not None]
        again = [
            # Shapes that did not exist then may be named now: a transaction that was seen changes nothing.
            Event(event.tx, event.end, event.changes, event.time, (event.shapes | also) & self.durable.keys())
            for event in sent[max(len(sent) - back, 0) :]
        ]
        events = self.planned(plans)
        if again:
            assert again[0].tx is not None
            self.tracker.begin_open(again[0].tx)
        assert self.tracker.commits(*batch_of(again + events), self.now) == len(events)
        self.take(events)

    @precondition(lambda self: self.durable)
    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        shape = data.draw(st.sampled_from(sorted(self.durable)))
        ends = [event.aligned for event in self.events if shape in event.shapes]
        aligned = data.draw(st.sampled_from([self.durable[shape], SNAPSHOT_END, *ends]))  # late and doubled ones too
        moves = aligned > self.durable[shape]
        assert self.tracker.flushed(shape, aligned, self.now) is moves
        if moves:
            self.durable[shape] = aligned
            self.progress_at[shape] = self.now

    @precondition(lambda self: self.durable)
    @rule(data=st.data())
    def flush_everything_of_a_shape(self, data: st.DataObject) -> None:
        shape = data.draw(st.sampled_from(sorted(self.durable)))
        visible = self.visible(shape)
        if self.tracker.flushed(shape, visible, self.now):
            self.progress_at[shape] = self.now
        self.durable[shape] = visible

    @precondition(lambda self: self.durable)
    @rule(data=st.data(), tx=st.integers(0, 40), op=st.integers(0, 8))
    def a_flush_that_cannot_be_is_refused(self, data: st.DataObject, tx: int, op: int) -> None:
        shape = data.draw(st.sampled_from(sorted(self.durable)))
        offset = LogOffset(self.at + tx, op)
        ends = [event.aligned for event in self.pending(shape)]
        if offset <= self.durable[shape] or offset in ends:
            return
        wanted: type[FlushTrackerError] = UnalignedFlush
        if offset.tx < self.seen and offset > self.visible(shape):
            wanted = FlushAboveVisible
        with pytest.raises(wanted):
            self.tracker.flushed(shape, offset, self.now)

    @rule(shape=st.sampled_from(SHAPES))
    def a_shape_joins(self, shape: int) -> None:
        self._attach(shape, self.seen)

    @rule(shape=st.sampled_from(SHAPES), distance=st.integers(0, 5))
    def a_shape_joins_where_g_is_or_behind(self, shape: int, distance: int) -> None:
        self._attach(shape, self.g() + distance)

    def _attach(self, shape: int, floor: int) -> None:
        if shape in self.durable:
            with pytest.raises(ShapeAttachedTwice):
                self.tracker.attach(shape, self.now, floor=floor)
        elif not self.g() <= floor <= self.seen:
            with pytest.raises(FloorOutOfReach):
                self.tracker.attach(shape, self.now, floor=floor)
        else:
            self.tracker.attach(shape, self.now, floor=floor)
            self.durable[shape] = SNAPSHOT_END
            self.pins[shape] = floor
            self.progress_at[shape] = self.now

    @rule(shape=st.sampled_from(SHAPES), ahead=st.integers(-5, 10))
    def a_shape_comes_back_from_its_disk(self, shape: int, ahead: int) -> None:
        if shape not in self.durable:
            self.durable[shape] = LogOffset(max(self.seen + ahead, 1), OP_MAX)
            self.progress_at[shape] = self.now
            self.tracker.attach(shape, self.now, durable=self.durable[shape])

    @rule(shape=st.sampled_from(SHAPES))
    def a_shape_is_born(self, shape: int) -> None:
        assert self.tracker.born(shape, self.now) is (shape in self.pins)
        if self.pins.pop(shape, None) is not None:
            self.progress_at[shape] = self.now

    @rule(shape=st.sampled_from(SHAPES))
    def a_shape_ends(self, shape: int) -> None:
        assert self.tracker.detach(shape) is (shape in self.durable)
        for facts in (self.durable, self.pins, self.progress_at):
            facts.pop(shape, None)
        for event in self.events:
            event.shapes.discard(shape)
        assert not self.tracker.flushed(shape, LogOffset(self.seen, 1), self.now)

    @rule(shape=st.sampled_from(SHAPES))
    def a_row_of_a_shape_that_nobody_attached_is_refused(self, shape: int) -> None:
        if shape not in self.durable and self.open_tx is None:
            with pytest.raises(UnknownShape):
                self.tracker.commits(*batch_of([Event(self.seen, self.seen + 1, 1, shapes={shape})]), self.now)

    @rule(seconds=st.sampled_from([0.5, GRACE, 3 * GRACE]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(shape=st.sampled_from(SHAPES))
    def touch(self, shape: int) -> None:
        self.tracker.touch(shape, self.now)
        if shape in self.progress_at:
            self.progress_at[shape] = self.now

    @rule(at=st.sampled_from([1, 40, 2**63 - 2**16]))
    def the_slot_is_made_anew(self, at: int) -> None:
        with pytest.raises(IncarnationRepeated):
            self.tracker.reset(self.incarnation, at)
        self.tracker.reset(self.incarnation + 1, at)
        self.begin(self.incarnation + 1, at)

    # What must be so at all times

    @invariant()
    def g_is_exact_and_never_falls(self) -> None:
        g = self.tracker.g
        assert g.lsn == self.g()
        assert self.last_g <= g.lsn <= self.tracker.seen.lsn == self.seen
        self.last_g = g.lsn
        times = self.times(g.lsn)
        assert g.commit_time in (times if g.lsn in self.pins.values() else times[-1:])

    @invariant()
    def the_same_shapes_are_pending_and_stalled(self) -> None:
        pending = [shape for shape in self.durable if self.pending(shape)]
        assert [shape for shape in SHAPES if self.tracker.is_pending(shape)] == sorted(pending)
        late = [shape for shape in pending if self.now - self.progress_at[shape] > GRACE and shape not in self.pins]
        assert sorted(self.tracker.stalled(self.now, GRACE)) == sorted(late)

    @invariant()
    def the_explanation_is_true(self) -> None:
        told = self.tracker.explain(self.now, lambda shape: 100 + shape)
        assert told.g == self.tracker.g
        assert told.open_tx == self.open_tx
        assert told.shapes_pending == sum(bool(self.pending(shape)) for shape in self.durable)
        if told.holder is None:
            assert told.g == told.seen
            assert told.hold is (Hold.NOTHING if self.open_tx is None else Hold.OPEN_TRANSACTION)
            return
        pending = self.pending(told.holder.shape)
        assert told.holder.bytes_pending == 100 + told.holder.shape
        assert told.holder.transactions_pending == len(pending)
        if told.hold is Hold.JOINING:
            assert self.pins[told.holder.shape] == told.g.lsn
            return
        assert told.hold is Hold.ROWS
        first = pending[0]
        assert told.holder.first is not None
        assert (told.holder.first.aligned, told.holder.first.commit_time) == (first.aligned, first.time)
        before = self.events.index(first) - 1
        assert told.g.lsn == (self.events[before].end if before >= 0 else self.at)

    @invariant()
    def nothing_is_kept_that_no_pending_row_needs(self) -> None:
        rows = sum(shape.transactions_count for shape in self.tracker._shapes.values())
        assert rows == sum(len(self.pending(shape)) for shape in self.durable)
        assert len(self.tracker._bounds) <= 3 * len(self.durable) + STALE_BOUNDS_SLACK


TestTrackerLife = TrackerLife.TestCase


def test_every_error_has_its_own_code_and_a_hint() -> None:
    kinds = FlushTrackerError.__subclasses__()
    assert len({kind.code for kind in kinds} | {FlushTrackerError.code}) == len(kinds) + 1
    assert all(kind.hint for kind in kinds)
