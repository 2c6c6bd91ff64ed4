"""The state of one log: where batches stand, what is visible, what is durable, whatever flushes do in between."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Hole, LogPoisoned, SourceGap, WentBackwards
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.shape_log import Mode, Placement, Recovered, ShapeLog, place
from storage.share import Share, Source
from tests.unit.builders import rows

offsets = st.builds(LogOffset, st.integers(0, 6), st.integers(0, 6))


def share(*at: tuple[int, int], seconds: float = 0.0) -> Share:
    return Share(Source(rows(at)), None, at=seconds)


def new_log(mode: Mode = Mode.APPEND) -> ShapeLog:
    return ShapeLog(1, "a-handle", mode, Recovered())


def put(log: ShapeLog, *at: tuple[int, int], seconds: float = 0.0) -> Share:
    """Take rows that follow what is there."""
    taken = share(*at, seconds=seconds)
    assert log.place(log.upper, taken.first, taken.last, BEFORE_ALL) is Placement.AT
    log.take(taken, seconds)
    return taken


# Where a batch stands.


@given(offsets, offsets, st.lists(offsets, min_size=1, max_size=4, unique=True).map(sorted))
def test_a_batch_is_classified_by_what_is_new_in_it(upper: LogOffset, after: LogOffset, batch: list[LogOffset]) -> None:
    """Against sets: what the batch covers, and what the log has."""
    if batch[0] <= after:
        return  # such a batch is refused before
    known = [offset for offset in batch if offset <= upper]
    found = place(upper, after, batch[0], batch[-1])
    if len(known) == len(batch):
        assert found is Placement.BELOW
    elif known:
        assert found is Placement.OVERLAP
    else:
        assert found is (Placement.ABOVE if after > upper else Placement.AT)


def test_a_new_log_ends_where_its_base_does() -> None:
    log = new_log()
    assert log.upper == log.visible == log.durable == SNAPSHOT_END
    assert not log.dirty
    assert not log.has_open_rows


def test_a_gap_is_refused_in_append_mode_and_placed_in_compacted_mode() -> None:
    arguments = (LogOffset(5, 0), LogOffset(6, 0), LogOffset(6, 2), BEFORE_ALL)
    with pytest.raises(SourceGap):
        new_log().place(*arguments)
    assert new_log(Mode.COMPACTED).place(*arguments) is Placement.ABOVE


@pytest.mark.parametrize("mode", Mode)
def test_what_the_stream_covered_is_no_gap(mode: Mode) -> None:
    log = new_log(mode)
    assert log.place(LogOffset(5, 0), LogOffset(6, 0), LogOffset(6, 2), covered=LogOffset(5, 0)) is Placement.AT


@pytest.mark.parametrize("mode", Mode)
def test_rows_that_the_log_lacks_are_never_taken_for_known(mode: Mode) -> None:
    """A second table of a fragment may hold rows below what the first one covered."""
    log = new_log(mode)
    assert log.place(LogOffset(5, 0), LogOffset(6, 0), LogOffset(6, 2), covered=LogOffset(9, 0)) is Placement.AT


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("first", [LogOffset(5, 0), LogOffset(4, 9)])
def test_rows_at_or_below_what_they_follow_are_backwards(mode: Mode, first: LogOffset) -> None:
    with pytest.raises(WentBackwards):
        new_log(mode).place(LogOffset(5, 0), first, LogOffset(9, 0), BEFORE_ALL)


def test_a_poisoned_log_takes_nothing_and_says_why() -> None:
    log = new_log()
    put(log, (1, 0))
    log.commit(LogOffset(1, 1))
    taken = put(log, (2, 0))
    fault = Hole("a file is missing")
    assert taken in log.poison(fault)
    with pytest.raises(LogPoisoned, match="a file is missing"):
        log.place(log.upper, LogOffset(9, 0), LogOffset(9, 0), BEFORE_ALL)
    assert log.visible == log.durable == SNAPSHOT_END
    assert log.in_memory() == []
    assert not log.dirty


# Commits.


def test_rows_are_visible_when_their_transaction_ends() -> None:
    log = new_log()
    put(log, (1, 0), (1, 2))
    assert (log.visible, log.has_open_rows) == (SNAPSHOT_END, True)
    assert log.commit(LogOffset(1, 5))
    assert (log.visible, log.has_open_rows, log.upper) == (LogOffset(1, 5), False, LogOffset(1, 5))


def test_of_a_whole_transaction_nothing_is_taken_again_whatever_its_number() -> None:
    """It comes again with other numbers: more of its changes are sent now, since a table of theirs was published."""
    log = new_log()
    put(log, (1, 0), (1, 2))
    log.commit(LogOffset(1, 3))
    assert log.place(SNAPSHOT_END, LogOffset(1, 2), LogOffset(1, 6), BEFORE_ALL) is Placement.BELOW
    assert log.commit(LogOffset(1, 7)), "who waits for its end waits for the one that it has now"
    assert log.place(LogOffset(1, 7), LogOffset(2, 0), LogOffset(2, 2), BEFORE_ALL) is Placement.AT


def test_a_known_commit_changes_nothing() -> None:
    log = new_log()
    put(log, (1, 0))
    assert log.commit(LogOffset(1, 1))
    put(log, (2, 0))
    assert not log.commit(LogOffset(1, 1))
    assert not log.commit(SNAPSHOT_END)
    assert log.has_open_rows


def test_a_transaction_cannot_end_before_its_rows() -> None:
    log = new_log()
    put(log, (1, 0), (1, 2))
    with pytest.raises(WentBackwards):
        log.commit(LogOffset(1, 1))
    assert log.visible == SNAPSHOT_END


# Flushes.


def test_a_drain_parts_whole_transactions_from_the_open_one() -> None:
    log = new_log()
    first = put(log, (1, 0))
    log.commit(LogOffset(1, 1))
    second = put(log, (2, 0))
    third = put(log, (2, 2))
    drained = log.drain()
    assert (drained.committed, drained.open) == ([first], [second, third])
    assert (drained.previous, drained.aligned, drained.durable) == (SNAPSHOT_END, LogOffset(1, 1), SNAPSHOT_END)
    assert log.pending == []
    assert (log.pending_size, log.pending_rows) == (0, 0)
    assert [held for held, in_flight in log.in_memory() if in_flight] == [first, second, third]


def test_a_flush_moves_d_to_what_was_visible_when_it_began() -> None:
    log = new_log()
    put(log, (1, 0))
    log.commit(LogOffset(1, 1))
    log.drain()
    put(log, (2, 0))
    log.commit(LogOffset(2, 1))
    assert log.flushed(wire_end=100)
    assert (log.durable, log.visible, log.stored) == (LogOffset(1, 1), LogOffset(2, 1), LogOffset(1, 0))
    assert log.dirty
    assert not log.owes_commit_block  # a row is there to carry the news


def test_a_commit_behind_its_rows_is_owed() -> None:
    log = new_log()
    put(log, (1, 0))
    log.drain()
    log.commit(LogOffset(1, 3))
    assert (log.dirty, log.owes_commit_block) == (True, False)  # while the flush is in flight, nobody can write it
    assert not log.flushed(wire_end=100)
    assert (log.dirty, log.owes_commit_block, log.has_open_rows_on_disk) == (True, True, False)
    log.drain()
    assert log.flushed(wire_end=100)
    assert not log.dirty


def test_failed_flushes_put_their_rows_back_in_front() -> None:
    log = new_log()
    first = put(log, (1, 0), seconds=1.0)
    log.drain()
    second = put(log, (2, 0), seconds=5.0)
    log.failed()
    assert log.pending == [first, second]
    assert log.pending_since == 1.0
    assert log.pending_rows == 2
    assert log.pending_size == first.size + second.size
    assert log.durable == SNAPSHOT_END


def test_one_flush_is_in_flight_at_a_time() -> None:
    log = new_log()
    put(log, (1, 0))
    log.drain()
    with pytest.raises(AssertionError):
        log.drain()
    log.failed()
    with pytest.raises(AssertionError):
        log.failed()


# A lost connection.


def test_open_rows_are_dropped_and_taken_again() -> None:
    log = new_log()
    put(log, (1, 0))
    log.commit(LogOffset(1, 1))
    kept = put(log, (2, 0))
    log.commit(LogOffset(2, 1))
    dropped = put(log, (3, 0))
    assert log.drop_open_rows() == [dropped]
    assert log.pending[-1] is kept
    assert log.upper == LogOffset(2, 1)
    put(log, (3, 0))


def test_open_rows_on_disk_are_counted_out_when_they_are_cut() -> None:
    log = new_log()
    put(log, (1, 0))
    log.commit(LogOffset(1, 1))
    log.drain()
    log.flushed(wire_end=100)
    put(log, (2, 0))
    log.drain()
    log.flushed(wire_end=200)
    log.drop_open_rows()
    assert (log.stored, log.has_open_rows_on_disk) == (LogOffset(2, 0), True)
    log.open_rows_were_cut(wire_end=100)
    assert (log.stored, log.has_open_rows_on_disk) == (LogOffset(1, 0), False)
    assert log.stored_wire_end == 100


# Against plain lists.

STEPS = st.lists(
    st.sampled_from(["row", "row", "commit", "drain", "flushed", "failed", "abandon"]), min_size=1, max_size=40
)


@given(STEPS)
def test_the_marks_follow_the_plain_lists(steps: list[str]) -> None:
    """One list of rows with what is committed; a copy of its start for the disk. R2: D <= V, both only grow."""
    log = new_log()
    everything: list[LogOffset] = []  # appended and not dropped
    committed = 0  # of them
    end = SNAPSHOT_END  # of the last whole transaction
    disk, in_flight = 0, None  # rows on disk; what the flush in flight will make of that, and its D
    durable = SNAPSHOT_END
    transaction = itertools.count(1)
    tx, op = next(transaction), 0
    for step in steps:
        before = (log.visible, log.durable)
        match step:
            case "row":
                put(log, (tx, op))
                everything.append(LogOffset(tx, op))
                op += 2
            case "commit":
                assert log.commit(LogOffset(tx, op + 1))
                committed, end = len(everything), LogOffset(tx, op + 1)
                tx, op = next(transaction), 0
            case "drain" if in_flight is None:
                drained = log.drain()
                taken = [one.last for one in drained.shares]
                assert taken == everything[disk:]
                assert [one.last for one in drained.committed] == everything[disk:committed]
                in_flight = (len(everything), end)
            case "flushed" if in_flight is not None:
                moved = log.flushed(wire_end=0)
                assert moved == (in_flight[1] > durable)
                disk, durable = in_flight
                in_flight = None
            case "failed" if in_flight is not None:
                log.failed()
                in_flight = None
            case "abandon" if in_flight is None:
                log.drop_open_rows()
                del everything[committed:]
                if log.has_open_rows_on_disk:
                    log.open_rows_were_cut(wire_end=0)
                disk = min(disk, committed)
                op = 0
        assert before <= (log.visible, log.durable)
        assert (log.visible, log.durable) == (end, durable)
        assert log.durable <= log.visible <= log.upper
        assert log.upper == max([end, *everything])
        assert log.dirty == (end > durable)
        assert log.has_open_rows == (committed < len(everything))
        assert [held.last for held, _ in log.in_memory()] == everything[disk:]
        assert log.pending_rows == len(log.pending)
        assert log.owes_commit_block == (log.dirty and len(everything) == disk and in_flight is None)
