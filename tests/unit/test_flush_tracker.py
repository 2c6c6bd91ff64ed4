"""The flush tracker, behaviour by behaviour: the acceptance table of `docs/flush-tracker.md`.

The commit record of transaction n begins at 10 n and ends at 10 n + 5, and its aligned offset is (10 n, 11). Where the
reference confirms one transaction behind, or takes a flush that ends inside a transaction, the comment `reference:`
says what it does instead.
"""

import numpy as np
import pytest

from flush_tracker.errors import CommitsOutOfOrder, FloorOutOfReach, FlushAboveVisible, InvalidTouches, UnalignedFlush
from flush_tracker.explanation import Hold, PendingTransaction
from flush_tracker.stream import Commits, Position, Touched
from flush_tracker.tracker import FlushTracker
from storage.offset import LogOffset
from tests.unit.calls import calls_of
from tests.unit.test_flush_tracker_model import Event, batch_of

CHANGES = 6
GRACE = 60.0
S1, S2, S3 = 1, 2, 3


def begin(n: int) -> int:
    return 10 * n


def end(n: int) -> int:
    return 10 * n + 5


def aligned(n: int) -> LogOffset:
    return LogOffset.aligned(begin(n), CHANGES)


def inside(n: int, op: int) -> LogOffset:
    return LogOffset(begin(n), op)


def transaction(n: int, *shapes: int) -> Event:
    return Event(begin(n), end(n), CHANGES, 1000 + n, set(shapes))


class Loop:
    """A tracker, and the clock of whoever calls it."""

    def __init__(self, at: int = 0, shapes: tuple[int, ...] = (S1, S2, S3)) -> None:
        self.tracker = FlushTracker("first", at)
        self.now = 0.0
        for shape in shapes:
            self.tracker.attach(shape, self.now)

    def commit(self, *transactions: Event) -> int:
        """Hand on one batch; returns G."""
        self.tracker.commits(*batch_of(transactions), self.now)
        return self.g

    def flush(self, shape: int, to: LogOffset) -> int:
        """Report a flush; returns G."""
        self.tracker.flushed(shape, to, self.now)
        return self.g

    @property
    def g(self) -> int:
        return self.tracker.g.lsn

    @property
    def stalled(self) -> list[int]:
        return self.tracker.stalled(self.now, GRACE)


@pytest.fixture
def loop() -> Loop:
    return Loop()


# FT: what the reference's own tests pin


def test_ft1_a_commit_that_touches_no_shape_moves_g_at_once(loop: Loop) -> None:
    assert loop.commit(transaction(1)) == end(1)


def test_ft2_a_commit_that_touches_a_shape_does_not(loop: Loop) -> None:
    assert loop.commit(transaction(1, S1)) == 0


@pytest.mark.parametrize("shapes", [(), (S1,)])
def test_ft3_ft4_a_transaction_without_its_commit_is_no_commit(loop: Loop, shapes: tuple[int, ...]) -> None:
    loop.tracker.begin_open(begin(1))
    assert loop.g == 0
    assert not loop.tracker.is_pending(S1)
    with pytest.raises(CommitsOutOfOrder):
        loop.commit(transaction(2, *shapes))
    assert loop.commit(transaction(1)) == end(1)


def test_ft5_only_touched_shapes_are_pending_and_stay_so(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.commit(transaction(2))
    assert [loop.tracker.is_pending(shape) for shape in (S1, S2)] == [True, False]


def test_ft6_the_flush_of_the_only_pending_shape_moves_g(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    assert loop.flush(S1, aligned(1)) == end(1)
    assert not loop.tracker.is_pending(S1)


def test_ft7_g_moves_on_to_the_last_commit_seen(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(3))
    assert loop.flush(S1, aligned(1)) == end(3)


def test_ft8_a_flush_inside_a_transaction_is_refused_and_g_is_already_before_it(loop: Loop) -> None:
    loop.commit(transaction(4), transaction(5, S1))
    assert loop.g == end(4)  # reference: only the partial flush brings it to 4
    with pytest.raises(UnalignedFlush):
        loop.flush(S1, inside(5, 5))
    assert loop.g == end(4)


def test_ft9_g_is_exact_at_every_flush() -> None:
    loop = Loop(at=end(4))
    loop.commit(transaction(5, S1, S2), transaction(6, S1), transaction(7, S2))
    assert loop.flush(S2, aligned(5)) == end(4)
    assert loop.flush(S1, aligned(5)) == end(5)
    assert loop.flush(S1, aligned(6)) == end(6)
    assert loop.flush(S2, aligned(7)) == end(7)


def test_ft10_two_shapes_in_the_same_transactions() -> None:
    loop = Loop(at=end(3))
    loop.commit(transaction(5, S1, S2), transaction(6, S1, S2))
    assert loop.flush(S1, aligned(5)) == end(3)
    assert loop.flush(S2, aligned(5)) == end(5)  # reference: 4, and 5 only after both began to flush 6
    assert loop.flush(S2, aligned(6)) == end(5)
    assert loop.flush(S1, aligned(6)) == end(6)


def test_ft11_transactions_of_nobody_between_those_of_shapes(loop: Loop) -> None:
    assert loop.commit(transaction(7)) == end(7)
    loop.commit(transaction(10, S1), transaction(11), transaction(12, S2))
    assert loop.flush(S1, aligned(10)) == end(11)  # reference: 10
    assert loop.flush(S2, aligned(12)) == end(12)
    assert loop.tracker.explain(0.0).hold is Hold.NOTHING


def test_ft12_shapes_that_never_rest_do_not_starve_g() -> None:
    loop = Loop(at=end(8))
    loop.commit(transaction(9, S1))
    for n in range(10, 30):
        shape, other = (S2, S1) if n % 2 == 0 else (S1, S2)
        assert loop.commit(transaction(n, shape)) == end(n - 2)
        assert loop.flush(other, aligned(n - 1)) == end(n - 1)


def test_ft13_removing_the_only_pending_shape_moves_g_to_the_last_commit(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2))
    loop.tracker.detach(S1)
    assert loop.g == end(2)


def test_ft14_ft15_ft16_a_dead_shape_holds_g_until_it_is_removed(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2, S2), transaction(3, S3))
    assert loop.flush(S3, aligned(3)) == 0
    loop.tracker.detach(S1)
    assert loop.g == end(1)  # the next of the dead holds it now
    loop.tracker.detach(S2)
    assert loop.g == end(3)


def test_ft17_ft18_grace_runs_from_the_first_pending_commit_and_is_strict(loop: Loop) -> None:
    loop.now = 100.0
    loop.commit(transaction(1, S1))
    loop.now += GRACE
    assert loop.stalled == []
    loop.now += 0.001
    assert loop.stalled == [S1]


def test_ft19_further_commits_are_no_progress(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.now = GRACE
    loop.commit(transaction(2, S1))
    loop.now += 1.0
    assert loop.stalled == [S1]


def test_ft20_a_flush_of_some_transactions_is_progress(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2, S1))
    loop.now = GRACE
    loop.flush(S1, aligned(1))
    loop.now += GRACE
    assert loop.stalled == []
    loop.now += 1.0
    assert loop.stalled == [S1]


def test_ft21_what_is_durable_is_never_stalled(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.flush(S1, aligned(1))
    loop.now = 1000 * GRACE
    assert loop.stalled == []
    loop.commit(transaction(2, S1))
    assert loop.stalled == []


def test_ft22_touch_gives_another_grace(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.now = GRACE + 1.0
    loop.tracker.touch(S1, loop.now)
    assert loop.stalled == []
    loop.now += GRACE + 1.0
    assert loop.stalled == [S1]


def test_ft23_touching_what_nobody_tracks_does_nothing(loop: Loop) -> None:
    loop.tracker.touch(99, 1.0)
    assert not loop.tracker.is_pending(99)
    loop.now = 10 * GRACE
    assert loop.stalled == []
    loop.tracker.attach(99, loop.now)
    assert loop.commit(transaction(1)) == end(1)


def test_ft24_only_the_old_ones_are_stalled(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.now = GRACE
    loop.commit(transaction(2, S2))
    loop.now += 1.0
    assert loop.stalled == [S1]


# M: the mapping and the late notification


def test_m1_only_whole_transactions_are_told_to_the_tracker(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2, S1))
    for offset in (inside(1, 0), inside(1, 10), inside(2, 4), inside(1, 13), LogOffset(begin(1) + 1, 0)):
        with pytest.raises(UnalignedFlush):
            loop.flush(S1, offset)
    assert loop.flush(S1, aligned(1)) == end(1)


def test_m2_a_flush_before_the_commit_is_refused_and_the_marker_behind_it_is_enough(loop: Loop) -> None:
    loop.commit(transaction(1))
    loop.tracker.begin_open(begin(2))
    for early in (inside(2, 4), aligned(2)):
        with pytest.raises(UnalignedFlush):
            loop.flush(S1, early)
    assert loop.commit(transaction(2, S1)) == end(1)
    # No row follows: storage writes a block that says no more than "up to here".
    assert loop.flush(S1, aligned(2)) == end(2)


def test_m3_commits_of_nobody_and_keepalives_move_g(loop: Loop) -> None:
    assert loop.commit(transaction(1)) == end(1)
    assert loop.tracker.idle_at(end(1) + 100)
    assert loop.tracker.g == Position(end(1) + 100, 1001)


def test_m4_an_aborted_transaction_held_nothing(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.tracker.begin_open(begin(2))
    loop.tracker.drop_open()
    loop.commit(transaction(3))
    assert loop.flush(S1, aligned(1)) == end(3)


def test_m5_a_joining_shape_holds_g_at_its_floor_until_it_is_born(loop: Loop) -> None:
    loop.commit(transaction(1))
    loop.tracker.attach(9, 0.0, floor=end(1))
    assert loop.commit(transaction(2), transaction(3, 9), transaction(4)) == end(1)
    loop.now = 10 * GRACE
    assert loop.stalled == []  # its rows wait for the birth, not for the disk
    loop.tracker.born(9, loop.now)
    assert loop.g == end(2)  # rows since it joined are pending like any others
    assert loop.stalled == []  # and the disk has had no time for them yet
    loop.now += GRACE + 1
    assert loop.stalled == [9]
    assert loop.flush(9, aligned(3)) == end(4)


def test_m5_a_shape_that_gives_up_joining_lets_go(loop: Loop) -> None:
    loop.tracker.attach(9, 0.0, floor=0)
    assert loop.commit(transaction(1, 9)) == 0
    loop.tracker.detach(9)
    assert loop.g == end(1)


def test_m5_nobody_joins_below_g_or_above_the_stream(loop: Loop) -> None:
    loop.commit(transaction(1))
    for floor in (end(1) - 1, end(1) + 1):
        with pytest.raises(FloorOutOfReach):
            loop.tracker.attach(9, 0.0, floor=floor)


def test_m6_a_new_slot_sets_g_and_does_not_raise_it() -> None:
    loop = Loop(at=100)
    loop.tracker.reset("second", 40)
    assert loop.g == 40
    assert not loop.tracker.detach(S1)  # shapes that go on are attached again
    assert loop.commit(transaction(5)) == end(5)


def test_m7_g_stays_at_or_below_the_commit_of_an_open_transaction(loop: Loop) -> None:
    loop.commit(transaction(1))
    loop.tracker.begin_open(begin(2))
    assert not loop.tracker.idle_at(begin(2) + 3)
    assert loop.g == end(1)


def test_m8_a_commit_record_may_begin_where_the_one_before_ended(loop: Loop) -> None:
    loop.commit(Event(10, 15, 1, 1, {S1}), Event(15, 20, 1, 2, {S1}))
    assert loop.flush(S1, LogOffset(10, 1)) == 15
    assert loop.flush(S1, LogOffset(15, 1)) == 20


def test_m9_g_is_the_end_of_the_commit_record_neither_its_start_nor_one_more(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2, S1))
    assert loop.flush(S1, aligned(1)) == end(1)


# B: where the reference broke


def test_b1_a_keepalive_is_confirmed_exactly_since_a_commit_may_begin_there(loop: Loop) -> None:
    loop.tracker.idle_at(begin(1))
    assert loop.g == begin(1)
    assert loop.commit(transaction(1, S1)) == begin(1)
    assert loop.tracker.is_pending(S1)


def test_b1_a_keepalive_counts_only_when_what_came_before_it_is_durable(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.tracker.idle_at(end(1) + 2)
    assert loop.g == 0
    assert loop.flush(S1, aligned(1)) == end(1) + 2


def test_b1_a_commit_below_a_keepalive_is_refused_and_not_taken_for_known(loop: Loop) -> None:
    loop.commit(transaction(1))
    loop.tracker.idle_at(begin(4))
    for late in (transaction(2, S1), transaction(3, S1), Event(begin(4) - 1, begin(4) + 9, 1)):
        with pytest.raises(CommitsOutOfOrder):
            loop.commit(late)
    assert loop.commit(transaction(1, S1), transaction(4)) == end(4)


def test_b2_a_transaction_that_streams_for_longer_than_the_grace_is_no_stall(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.tracker.begin_open(begin(2))
    loop.flush(S1, aligned(1))  # comes while the next one is streamed, and is not held back for it
    loop.now = 100 * GRACE
    assert loop.stalled == []
    assert loop.tracker.explain(loop.now).hold is Hold.OPEN_TRANSACTION
    loop.commit(transaction(2, S1))
    loop.now += GRACE
    assert loop.stalled == []


def test_b7_what_is_sent_again_changes_nothing(loop: Loop) -> None:
    loop.commit(transaction(1), transaction(2, S1), transaction(3, S1))
    loop.flush(S1, aligned(2))
    loop.tracker.begin_open(begin(4))
    loop.tracker.drop_open()
    for again in (1, 2, 3):
        assert loop.commit(transaction(again, S1, S2)) == end(2)
    assert loop.tracker.seen.lsn == end(3)
    assert not loop.tracker.is_pending(S2)
    assert loop.commit(transaction(3, S1, S2), transaction(4)) == end(2)  # one known, one new
    assert loop.flush(S1, aligned(3)) == end(4)


def test_b7_a_transaction_sent_again_in_part_is_open_all_the_same(loop: Loop) -> None:
    loop.commit(transaction(1))
    loop.tracker.drop_open()
    loop.tracker.begin_open(begin(1))
    assert not loop.tracker.idle_at(end(9))
    assert loop.commit(transaction(1)) == end(1)
    assert loop.tracker.idle_at(end(9))


def test_b8_a_storm_of_flushes_is_one_move_of_g() -> None:
    shapes = tuple(range(10_000))
    loop = Loop(shapes=shapes)
    assert loop.commit(transaction(1, *shapes)) == 0
    seen = {loop.flush(shape, aligned(1)) for shape in shapes[:-1]}
    assert seen == {0}
    assert loop.flush(shapes[-1], aligned(1)) == end(1)


# What nobody had tested


def test_a_flush_of_one_transaction_comes_while_later_ones_wait(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.commit(transaction(2, S1))
    loop.tracker.begin_open(begin(3))
    assert loop.flush(S1, aligned(1)) == end(1)
    loop.commit(transaction(3, S1))
    assert loop.flush(S1, aligned(3)) == end(3)  # at or above completes all


def test_flushes_that_are_doubled_late_or_of_the_gone_move_nothing(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2, S1))
    assert loop.flush(S1, aligned(2)) == end(2)
    assert not loop.tracker.flushed(S1, aligned(2), 0.0)
    assert not loop.tracker.flushed(S1, aligned(1), 0.0)
    loop.tracker.detach(S1)
    assert not loop.tracker.flushed(S1, aligned(7), 0.0)
    assert not loop.tracker.detach(S1)


def test_a_flush_above_what_the_shape_was_given_is_a_defect(loop: Loop) -> None:
    loop.commit(transaction(1, S1), transaction(2, S2))
    with pytest.raises(FlushAboveVisible) as refused:
        loop.flush(S1, aligned(2))
    assert refused.value.facts == {"shape": S1, "flushed": aligned(2), "visible": aligned(1)}
    assert loop.g == 0


def test_a_shape_removed_in_mid_transaction_holds_nothing(loop: Loop) -> None:
    loop.commit(transaction(1, S1, S2))
    loop.tracker.begin_open(begin(2))
    loop.tracker.detach(S1)
    loop.commit(transaction(2, S2))
    assert loop.flush(S2, aligned(2)) == end(2)


def test_a_shape_that_was_removed_comes_back_as_another(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    loop.tracker.detach(S1)
    loop.tracker.attach(S1, 0.0, durable=aligned(1))
    assert loop.commit(transaction(2, S1)) == end(1)
    assert loop.flush(S1, aligned(2)) == end(2)


def test_what_a_shape_had_on_disk_before_a_restart_is_not_pending_when_it_is_sent_again() -> None:
    loop = Loop(at=end(1), shapes=())
    loop.tracker.attach(S1, 0.0, durable=aligned(3))
    assert loop.commit(transaction(2, S1), transaction(3, S1)) == end(3)
    assert loop.commit(transaction(4, S1)) == end(3)


def test_what_is_durable_and_comes_again_with_other_numbers_is_no_news() -> None:
    """Old servers may count its changes otherwise on another connection, and a log says so once more."""
    loop = Loop(at=end(1), shapes=())
    loop.tracker.attach(S1, 0.0, durable=aligned(3))
    loop.commit(transaction(2, S1), transaction(3, S1))
    renumbered = LogOffset(aligned(3).tx, aligned(3).op + 24)
    assert not loop.tracker.flushed(S1, renumbered, loop.now)
    assert loop.commit(transaction(4, S1)) == end(3)
    assert loop.flush(S1, aligned(4)) == end(4)


def test_lsns_near_the_greatest() -> None:
    top = 2**63 - 1
    loop = Loop(at=top - 20)
    loop.commit(Event(top - 20, top - 10, 2**62, 1, {S1}), Event(top - 10, top, 0, 2, {S1}))
    assert loop.flush(S1, LogOffset(top - 20, 2**63 - 1)) == top - 10
    assert loop.flush(S1, LogOffset(top - 10, 0)) == top


def test_shapes_that_come_and_go_leave_nothing_behind_while_g_is_held(loop: Loop) -> None:
    loop.commit(transaction(1, S1))
    for n in range(2, 2000):
        loop.tracker.attach(n + 100, 0.0)
        loop.commit(transaction(n, n + 100))
        loop.tracker.detach(n + 100)
    assert len(loop.tracker._bounds) < 100
    assert loop.flush(S1, aligned(1)) == end(1999)


@pytest.mark.parametrize("moved", [1, 20, 100, 199])
def test_g_is_the_least_bound_however_many_moved_since_the_last_look(moved: int) -> None:
    shapes = range(200)
    loop = Loop(shapes=tuple(shapes))
    loop.commit(*(transaction(1 + n, n % 200) for n in range(400)))
    for shape in reversed(shapes[:moved]):
        loop.tracker.flushed(shape, aligned(1 + shape), 0.0)
    assert loop.g == end(moved)
    for shape in shapes[50:]:
        loop.tracker.flushed(shape, aligned(201 + shape), 0.0)
    assert loop.g == end(moved if moved < 50 else 200)
    for shape in shapes[:50]:
        loop.tracker.flushed(shape, aligned(201 + shape), 0.0)
    assert loop.g == end(400)
    loop.commit(transaction(401, 7), transaction(402, 100))
    assert (loop.g, loop.flush(7, aligned(401))) == (end(400), end(401))


def test_a_shape_that_was_flushed_before_a_sweep_holds_g_again(loop: Loop) -> None:
    """Its entry in the heap stayed behind that of another, and went in the sweep."""
    loop.commit(transaction(1, S1), transaction(2, S2))
    loop.flush(S2, aligned(2))
    for n in range(3, 200):
        loop.tracker.attach(n + 100, 0.0)
        loop.commit(transaction(n, n + 100))
        loop.tracker.detach(n + 100)
    loop.commit(transaction(200, S2))
    assert loop.flush(S1, aligned(1)) == end(199)
    assert loop.flush(S2, aligned(200)) == end(200)


def test_one_slow_shape_does_not_keep_the_rows_of_the_others(loop: Loop) -> None:
    loop.commit(*(transaction(n, S1 if n == 1 else S2) for n in range(1, 1000)))
    loop.flush(S2, aligned(999))
    (run,) = loop.tracker._shapes[S1].runs
    assert run.rows.base is None, "a view of the whole batch"
    assert len(run.rows) == 1


def test_the_explanation_names_shape_transaction_time_and_way_out(loop: Loop) -> None:
    loop.now = 50.0
    loop.commit(transaction(1), transaction(2, S2), transaction(3, S1, S2))
    told = loop.tracker.explain(60.0, {S2: 4096}.get)
    assert told.holder is not None
    assert (told.g, told.seen) == (Position(end(1), 1001), Position(end(3), 1003))
    assert (told.hold, told.holder.shape, told.shapes_pending) == (Hold.ROWS, S2, 2)
    assert told.holder.first == PendingTransaction(aligned(2), 1002)
    assert (told.holder.since, told.holder.seconds) == (50.0, 10.0)
    assert (told.holder.transactions_pending, told.holder.bytes_pending) == (2, 4096)
    assert "flush of the shape" in told.freed_by


def test_the_explanation_of_a_joining_shape_and_of_rest(loop: Loop) -> None:
    assert loop.tracker.explain(0.0).freed_by == "the next commit or keepalive"
    loop.tracker.attach(9, 3.0, floor=0)
    told = loop.tracker.explain(5.0)
    assert told.hold is Hold.JOINING
    assert told.holder is not None
    assert (told.holder.shape, told.holder.first, told.holder.seconds) == (9, None, 2.0)
    assert told.holder.bytes_pending is None


def arrays(*columns: list[int]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], ...]:
    return tuple(np.array(column, dtype=np.int64) for column in columns)


@pytest.mark.parametrize(
    ("final", "ends"),
    [([10, 14], [15, 20]), ([20, 10], [25, 15]), ([10], [10]), ([3], [9]), ([10, 20], [15])],
    ids=["overlap", "backwards", "empty record", "begins below what was seen", "lengths differ"],
)
def test_commits_that_cannot_follow_are_refused(final: list[int], ends: list[int]) -> None:
    tracker = FlushTracker("first", 5)
    final_lsn, end_lsn, zeros = arrays(final, ends, [0] * len(final))
    with pytest.raises(CommitsOutOfOrder):
        tracker.commits(Commits(final_lsn, end_lsn, zeros, zeros), Touched.nothing(), 0.0)
    assert tracker.g == tracker.seen == Position(5, 0)


@pytest.mark.parametrize(
    ("shapes", "starts", "ordinals"),
    [
        ([S1], [0, 2], [1, 0]),
        ([S1], [0, 1], [2]),
        ([S1], [0, 1], [-1]),
        ([S1, S1], [0, 1, 2], [0, 1]),
        ([S1, S2], [0, 0, 1], [0]),
        ([S1], [0, 2], [0]),
        ([S1], [0], []),
    ],
    ids=["descends", "no such commit", "negative", "twice", "no commit", "starts too long", "starts too short"],
)
def test_touches_that_contradict_themselves_are_refused(
    loop: Loop, shapes: list[int], starts: list[int], ordinals: list[int]
) -> None:
    commits, _ = batch_of([transaction(1), transaction(2)])
    with pytest.raises(InvalidTouches):
        loop.tracker.commits(commits, Touched(*arrays(shapes, starts, ordinals)), 0.0)
    assert loop.tracker.seen.lsn == 0


# Cost


def even_batch(commits_count: int, shapes_count: int, first: int = 0) -> tuple[Commits, Touched]:
    """Commits that touch one shape each, in turns."""
    final = 10 * (first + np.arange(commits_count, dtype=np.int64))
    ordinals = np.arange(commits_count, dtype=np.int64).reshape(-1, shapes_count).T.ravel()
    starts = np.arange(shapes_count + 1, dtype=np.int64) * (commits_count // shapes_count)
    shapes = np.arange(shapes_count, dtype=np.int64)
    return Commits(final, final + 10, np.ones_like(final), final), Touched(shapes, starts, ordinals)


def test_a_batch_costs_steps_for_its_shapes_and_none_for_its_commits() -> None:
    def cost(commits_count: int, shapes_count: int) -> int:
        tracker = FlushTracker("first", 0)
        for shape in range(shapes_count):
            tracker.attach(shape, 0.0)
        commits, touched = even_batch(commits_count, shapes_count)
        return calls_of(lambda: tracker.commits(commits, touched, 0.0))

    assert cost(3_000, 100) == cost(300_000, 100)
    assert cost(3_000, 1000) < 11 * cost(3_000, 100)


def test_a_flush_costs_steps_for_neither_commits_nor_shapes() -> None:
    batches, per_batch, shapes_count = 334, 3_000, 100  # a million commits
    tracker = FlushTracker("first", 0)
    for shape in range(shapes_count):
        tracker.attach(shape, 0.0)
    for n in range(batches):
        tracker.commits(*even_batch(per_batch, shapes_count, n * per_batch), 0.0)
    last = batches * per_batch - shapes_count  # of shape 0

    def flush_and_look(shape: int, number: int) -> int:
        return calls_of(lambda: (tracker.flushed(shape, LogOffset(10 * number, 1), 0.0), tracker.g))

    # In the middle: the batches passed are dropped once, a few calls each, which their arrival has paid for.
    middle = 5_000 * shapes_count
    assert flush_and_look(0, middle) < 4 * batches
    assert flush_and_look(0, middle + shapes_count) < 100
    for shape in range(shapes_count):
        assert flush_and_look(shape, last + shape) < 100
    assert tracker.g == tracker.seen
