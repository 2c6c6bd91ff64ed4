"""What a new shape's snapshot must have seen, against sets of whole ids; with a bound that is met, and without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shapes.snapshot_filter import halves
from shapes.streamed import Streamed
from storage.catalog_records import Snapshot


def snapshot_of(running: set[int], ended: set[int]) -> Snapshot:
    """As a server makes it: it ends behind the newest transaction that has ended, and names what runs below."""
    xmax = max(ended) + 1
    xip = tuple(sorted(xid for xid in running if xid < xmax))
    return Snapshot(xip[0] if xip else xmax, xmax, xip, 0)


class Server(RuleBasedStateMachine):
    """Transactions begin, are streamed, and become visible, in any order; looks come at any time."""

    xids_max = 10_000
    first = (1 << 32) - 20

    def __init__(self) -> None:
        super().__init__()
        self.next = self.first
        self.ended = {self.first - 1}
        self.running: set[int] = set()
        self.begin(3)
        self.began = set(self.running)
        self.begin(1)
        self.end_one(self.next - 1)  # now all that ran before is below the snapshot's end
        self.tracked = Streamed(snapshot_of(self.running, self.ended), self.xids_max)
        self.streamed: set[int] = set()

    @rule(count=st.integers(1, 5))
    def begin(self, count: int) -> None:
        self.running |= set(range(self.next, self.next + count))
        self.next += count

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def stream(self, data: st.DataObject) -> None:
        told = data.draw(st.lists(st.sampled_from(sorted(self.running)), unique=True))
        self.streamed |= set(told)
        self.tracked.add(halves(np.array(told, np.uint64)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def become_visible(self, data: st.DataObject) -> None:
        self.end_one(data.draw(st.sampled_from(sorted(self.running))))

    def end_one(self, xid: int) -> None:
        self.running.discard(xid)
        self.ended.add(xid)

    @rule()
    def look(self) -> None:
        self.tracked.forget_seen(snapshot_of(self.running, self.ended))

    @invariant()
    def what_must_be_seen_is_demanded(self) -> None:
        unseen = self.tracked.demand().unseen(snapshot_of(self.running, self.ended))
        must = (self.streamed | self.began) & self.running
        self.compare(set(unseen.tolist()), set(halves(np.array(sorted(must), np.uint64)).tolist()))

    def compare(self, unseen: set[int], must: set[int]) -> None:
        assert unseen == must


class Cramped(Server):
    """With room for a few ids only, more may be demanded, and never less; nothing is when nothing runs."""

    xids_max = 4

    def compare(self, unseen: set[int], must: set[int]) -> None:
        assert not must or unseen, "a transaction that must be seen is missing, and nobody looks again"
        running = set(halves(np.array(sorted(self.running), np.uint64)).tolist())
        assert unseen <= running
        assert len(self.tracked) <= self.xids_max


TestServer = Server.TestCase
TestServer.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCramped = Cramped.TestCase
TestCramped.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(1, 2000), max_size=30))
def test_memory_is_bounded_and_a_look_frees_it(sizes: list[int]) -> None:
    streamed = Streamed(Snapshot(3, 3, (), 0), xids_max=5000)
    at = 10
    for size in sizes:
        streamed.add(np.arange(at, at + size, dtype=np.uint32))
        at += size
        assert len(streamed) <= 5000
        is_full = len(streamed) >= 2500 or streamed.demand().upto is not None
        assert streamed.is_look_due == is_full
    streamed.forget_seen(Snapshot(at, at, (), 0))
    assert len(streamed) == 0
    assert streamed.demand().upto is None
    assert len(streamed.demand().unseen(Snapshot(5, 5, (), 0))) == 0


def test_a_demand_is_of_its_time() -> None:
    streamed = Streamed(Snapshot(3, 3, (), 0))
    streamed.add(np.array([10], np.uint32))
    demand = streamed.demand()
    streamed.add(np.array([11], np.uint32))
    streamed.forget_seen(Snapshot(12, 12, (), 0))
    assert demand.unseen(Snapshot(10, 10, (), 0)).tolist() == [10]
    assert demand.unseen(Snapshot(11, 11, (), 0)).tolist() == []


@pytest.mark.parametrize("upto", [5000, (1 << 32) - 1])
def test_a_long_writer_counts_only_when_the_room_is_gone(upto: int) -> None:
    writer = upto - 4000
    roomy, cramped = Streamed(Snapshot(3, 3, (), 0), 5000), Streamed(Snapshot(3, 3, (), 0), 100)
    for streamed in (roomy, cramped):
        streamed.add(halves(np.arange(upto - 2000, upto + 1, dtype=np.uint64)))
    present = Snapshot(writer, upto + 1, (writer,), 0)
    assert roomy.demand().unseen(present).tolist() == []
    assert cramped.demand().unseen(present).tolist() == [writer]
