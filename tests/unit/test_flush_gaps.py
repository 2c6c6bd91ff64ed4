"""Between memory and disk no row falls through.

Flushes and appends in every order, readers that lag, wait, seek back or leave, full buffers, oversized rows, disks that
stall.
"""

import errno
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BufferFull, CorruptBlock, Hole, Refetch, SharedDiskFault, SourceGap, UnknownLog
from storage.faulty_disk import Fault, FaultyDisk, NoFaults, Rule, Script
from storage.flush import FlushJob
from storage.flush_control import FlushOptions
from storage.incoming import FragmentShares
from storage.limits import FAULT_RETRY_SECONDS, FLUSH_AGE_SECONDS
from storage.memory_disk import MemoryDisk
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadSource
from storage.shape_log import Mode
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions, Trigger
from tests.unit.builders import BOTH_FILES, Rig, offsets, rows, to_journal, to_segments, transaction

MEMORY = {ReadSource.WINDOW, ReadSource.BUFFER}


def begun(rig: Rig) -> FlushJob:
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    return job


def history(rig: Rig, *transactions: int) -> list[LogOffset]:
    """Rows on disk, rows whose flush is in flight, rows in the buffer: a third of the transactions each."""
    third = len(transactions) // 3
    for index, tx in enumerate(transactions):
        rig.write(tx)
        if index == third - 1:
            rig.store.flush(demand=[1])
        if index == 2 * third - 1:
            begun(rig)
    return [LogOffset(tx, 0) for tx in transactions]


# Gaps between disk and memory.


@pytest.mark.parametrize("options", [to_journal(), to_segments()], ids=["journal", "segments"])
def test_every_position_is_followed_by_the_next_row(options: StoreOptions) -> None:
    """What a gap at a hand-over looks like: asked for 1764, the disk has up to 1763, memory goes on with 1800."""
    rig = Rig(options=options)
    expected = history(rig, *range(1, 31))
    for index, offset in enumerate(expected):
        after = expected[index - 1] if index else SNAPSHOT_END
        assert offsets(rig.read(after, 0).rows) == [offset]


def test_a_hole_between_disk_and_memory_is_an_error() -> None:
    rig = Rig()
    history(rig, 1, 2, 3)
    rig.store.log(1).state.window = None  # as if a flush had ended without its rows being anywhere
    assert offsets(rig.read(SNAPSHOT_END).rows) == [LogOffset(1, 0)]
    with pytest.raises(Hole):
        rig.read(LogOffset(1, 0))
    with pytest.raises(Hole):
        rig.read(LogOffset(1, 1))
    assert offsets(rig.read(LogOffset(2, 0)).rows) == [LogOffset(3, 0)]


@BOTH_FILES
def test_rows_appended_at_every_step_of_a_flush_are_kept_in_order(options: StoreOptions) -> None:
    rig = Rig(options=options)
    expected = []

    def append(tx: int) -> None:
        rig.write(tx, 2)
        expected.extend(transaction(tx, 2))
        assert rig.read_all() == expected

    for round_ in range(5):
        append(10 * round_ + 1)
        job = begun(rig)
        append(10 * round_ + 2)
        job.run(rig.disk)
        append(10 * round_ + 3)
        flushed = rig.store.end_flush(job)
        assert [one.last for one in flushed] == [LogOffset(10 * round_ + 1, 2)]
        append(10 * round_ + 4)
        rig.store.flush(demand=[1])
    assert rig.reopened().read_all() == expected


@BOTH_FILES
def test_a_demanded_flush_is_done_when_it_returns(options: StoreOptions) -> None:
    rig = Rig(options=options)
    for tx in (1, 2, 3):
        rig.write(tx)
        assert [one.aligned for one in rig.store.flush(demand=[1])] == [LogOffset(tx, 1)]
        assert rig.durable() == LogOffset(tx, 1)
        assert set(rig.read().sources) & MEMORY == set()


@pytest.mark.parametrize(
    ("after", "sources"),
    [
        pytest.param(SNAPSHOT_END, {ReadSource.JOURNAL, ReadSource.WINDOW, ReadSource.BUFFER}, id="all"),
        pytest.param(LogOffset(1, 0), {ReadSource.JOURNAL, ReadSource.WINDOW, ReadSource.BUFFER}, id="on disk"),
        pytest.param(LogOffset(2, 0), {ReadSource.WINDOW, ReadSource.BUFFER}, id="the last on disk"),
        pytest.param(LogOffset(2, 1), {ReadSource.WINDOW, ReadSource.BUFFER}, id="between"),
        pytest.param(LogOffset(3, 0), {ReadSource.WINDOW, ReadSource.BUFFER}, id="in flight"),
        pytest.param(LogOffset(4, 0), {ReadSource.BUFFER}, id="the last in flight"),
        pytest.param(LogOffset(5, 1), {ReadSource.BUFFER}, id="in the buffer"),
        pytest.param(LogOffset(6, 0), set(), id="the last"),
        pytest.param(LogOffset(6, 1), set(), id="at V"),
    ],
)
def test_rows_come_from_where_they_are(after: LogOffset, sources: set[ReadSource]) -> None:
    rig = Rig()
    expected = history(rig, 1, 2, 3, 4, 5, 6)
    result = rig.read(after)
    assert set(result.sources) == sources
    assert offsets(result.rows) == [offset for offset in expected if offset > after]
    assert result.at_end


def test_a_reopened_log_goes_on_from_disk_into_memory() -> None:
    rig = Rig()
    rig.write(1)
    rig.store.flush(demand=[1])
    again = rig.reopened()
    again.write(2)
    assert again.read().sources == {ReadSource.JOURNAL: 1, ReadSource.BUFFER: 1}
    assert again.read_all() == [LogOffset(1, 0), LogOffset(2, 0)]


@BOTH_FILES
def test_rows_leave_memory_when_they_are_on_disk_and_not_before(options: StoreOptions) -> None:
    """R9: below what memory holds, a read starts on disk, never at the earliest row in memory."""
    rig = Rig(options=options)
    rig.write(1)
    job = begun(rig)
    job.run(rig.disk)
    assert set(rig.read().sources) == {ReadSource.WINDOW}  # written and synced, but not settled
    rig.write(2)
    rig.store.end_flush(job)
    result = rig.read(SNAPSHOT_END)
    assert offsets(result.rows) == [LogOffset(1, 0), LogOffset(2, 0)]
    assert ReadSource.WINDOW not in result.sources


def test_a_lawful_gap_is_read_across() -> None:
    """R21: what the source left out, and said so, is no hole: neither in memory nor on disk."""
    rig = Rig(mode=Mode.COMPACTED)
    rig.write(1)
    rig.store.flush(demand=[1])
    rig.write(5, after=LogOffset(4, 0))
    assert rig.read_all() == [LogOffset(1, 0), LogOffset(5, 0)]
    assert rig.read_all(LogOffset(3, 0)) == [LogOffset(5, 0)]
    rig.store.flush(demand=[1])
    assert rig.reopened().read_all() == [LogOffset(1, 0), LogOffset(5, 0)]


def test_below_what_is_kept_a_reader_is_told_to_start_again() -> None:
    """R22: neither nothing nor a skip to the earliest row."""
    rig = Rig()
    with pytest.raises(Refetch):
        rig.read(LogOffset(-1, 0))
    rig.write(1)
    with pytest.raises(Refetch):
        rig.read(LogOffset(0, 5))


# Waiting.


def test_a_mark_is_stored_before_anybody_is_woken() -> None:
    """R7: whoever is woken, reads what it was woken for."""
    rig = Rig()
    seen: list[tuple[LogOffset, LogOffset, list[LogOffset]]] = []

    def look(_: LogOffset | None) -> None:
        seen.append((*rig.store.marks(1), rig.read_all()))

    marks = rig.store.watch(1)
    marks.visible.subscribe(SNAPSHOT_END, look)
    marks.durable.subscribe(SNAPSHOT_END, look)
    rig.write(1)
    rig.store.flush(demand=[1])
    row, end = LogOffset(1, 0), LogOffset(1, 1)
    assert seen == [(end, SNAPSHOT_END, [row]), (end, end, [row])]


def test_data_and_durability_are_waited_for_apart() -> None:
    """R11: an append wakes nobody who waits for the disk, a flush nobody who waits for data."""
    rig = Rig()
    woken: list[str] = []
    marks = rig.store.watch(1)
    marks.visible.subscribe(SNAPSHOT_END, lambda _: woken.append("data"))
    marks.durable.subscribe(SNAPSHOT_END, lambda _: woken.append("durable"))
    rig.write(1)
    assert woken == ["data"]
    marks.visible.subscribe(rig.upper(), lambda _: woken.append("more data"))
    rig.store.flush(demand=[1])
    assert woken == ["data", "durable"]


def test_a_failed_flush_wakes_nobody() -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk)
    woken: list[LogOffset | None] = []
    rig.store.watch(1).durable.subscribe(SNAPSHOT_END, woken.append)
    rig.write(1)
    disk.plan = Script(Rule("sync", Fault(errno.EIO)))
    rig.store.flush(demand=[1])
    assert woken == []
    rig.clock.seconds += FAULT_RETRY_SECONDS
    rig.store.flush(demand=[1])
    assert woken == [LogOffset(1, 1)]


def test_removing_a_log_wakes_its_readers() -> None:
    rig = Rig()
    woken: list[LogOffset | None] = []
    marks = rig.store.watch(1)
    marks.visible.subscribe(SNAPSHOT_END, woken.append)
    marks.durable.subscribe(SNAPSHOT_END, woken.append)
    rig.write(1)
    begun(rig)
    rig.store.remove_log(1)
    assert woken == [LogOffset(1, 1), None]
    with pytest.raises(UnknownLog):
        rig.read()


def test_who_left_is_not_woken() -> None:
    rig = Rig()
    woken: list[LogOffset | None] = []
    subscription = rig.store.watch(1).visible.subscribe(SNAPSHOT_END, woken.append)
    assert subscription.cancel()
    rig.write(1)
    assert woken == []


# Readers at their own pace.


@pytest.mark.parametrize("max_bytes", [0, 1, 250, 10_000, None])
def test_the_backlog_and_then_what_is_live_each_row_once(max_bytes: int | None) -> None:
    rig = Rig()
    expected = history(rig, *range(1, 10))
    seen: list[LogOffset] = []
    tx = 100
    for _ in range(40):
        result = rig.read(seen[-1] if seen else SNAPSHOT_END, max_bytes)
        seen += offsets(result.rows)
        if tx < 105:
            rig.write(tx)
            expected.append(LogOffset(tx, 0))
            tx += 1
    assert seen == expected


def test_a_slow_reader_meets_every_row_while_its_rows_move() -> None:
    """From memory to the journal, there to joined shares, and to a segment: under a reader that is far behind."""
    flush = FlushOptions(
        own_segment_bytes=2**40, journal_bytes_max=8_000, journal_joined_bytes_max=4_000, journal_file_bytes_max=2_000
    )
    options = StoreOptions(buffer=BufferOptions(flush_age_seconds=0.0), flush=flush)
    rig = Rig(options=options)
    seen: list[LogOffset] = []
    were_joined = False
    for tx in range(1, 61):
        rig.write(tx)
        rig.store.flush()
        were_joined = were_joined or bool(rig.store.logs.index.joined_files)
        if tx % 3 == 0:
            seen += offsets(rig.read(seen[-1] if seen else SNAPSHOT_END, 0).rows)
    assert were_joined
    assert rig.store.log(1).files.segments, "rows have moved"
    seen += rig.read_all(seen[-1])
    assert seen == [LogOffset(tx, 0) for tx in range(1, 61)]


def test_reading_at_the_same_place_gives_the_same() -> None:
    rig = Rig()
    expected = history(rig, *range(1, 10))
    for after in [SNAPSHOT_END, *expected]:
        first, second = rig.read(after), rig.read(after)
        assert offsets(first.rows) == offsets(second.rows)
        assert first.next == second.next


def test_seeking_back_while_rows_come() -> None:
    rig = Rig()
    expected: list[LogOffset] = []
    for tx in range(1, 25):
        rig.write(tx)
        expected.append(LogOffset(tx, 0))
        if tx % 5 == 0:
            rig.store.flush(demand=[1])
        for start in range(0, tx, 3):
            after = expected[start - 1] if start else SNAPSHOT_END
            assert rig.read_all(after) == expected[start:]


def test_many_readers_share_one_copy() -> None:
    rig = Rig()
    rig.write(1)
    rig.store.flush(demand=[1])
    first, second = (rig.read().rows[0].column("tx").buffers()[1].address for _ in range(2))
    assert first == second


@given(
    st.lists(st.sampled_from(["append", "begin", "end", "flush", "fail", "reopen"]), max_size=20),
    st.sampled_from(["journal", "segments"]),
    st.integers(0, 600),
)
def test_reads_from_anywhere_are_what_was_appended(steps: list[str], to: str, max_bytes: int) -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, {"journal": to_journal(), "segments": to_segments()}[to])
    expected: list[LogOffset] = []
    durable: list[LogOffset] = []
    job: FlushJob | None = None
    for number, step in enumerate(steps, start=1):
        match step:
            case "append":
                rig.write(number, 2)
                expected += transaction(number, 2)
            case "begin" if job is None:
                rig.clock.seconds += FAULT_RETRY_SECONDS
                job = rig.store.begin_flush(demand=[1])
            case "end" if job is not None:
                job.run(disk)
                rig.store.end_flush(job)
                job = None
            case "flush" if job is None:
                rig.clock.seconds += FAULT_RETRY_SECONDS
                rig.store.flush(demand=[1])
            case "fail" if job is None:
                disk.plan = Script(Rule("sync", Fault(errno.EIO)))
                rig.store.flush(demand=[1])
                disk.plan = NoFaults()
            case "reopen":
                rig, job = rig.reopened(), None
                found = rig.read_all()  # with luck more than was durable: a failed sync says nothing
                assert len(found) >= len(durable)
                assert found == expected[: len(found)]
                expected = found
        durable = [offset for offset in expected if offset <= rig.durable()]
        for start in range(0, len(expected) + 1, 3):
            assert rig.read_all(expected[start - 1] if start else SNAPSHOT_END, max_bytes) == expected[start:]


# Bounds: full buffers, oversized rows, quiet tails, disks that stall.


def rig_with_room_for(size: int, **buffer: int) -> Rig:
    return Rig(options=to_journal(bytes_max=size, log_bytes_max=size, **buffer))


def write_until_full(rig: Rig) -> int:
    """Append and try to flush; the last transaction that was taken."""
    for tx in range(1, 1000):
        try:
            rig.write(tx, text="x" * 490)
        except BufferFull:
            return tx - 1
        rig.clock.seconds += FLUSH_AGE_SECONDS
        rig.store.flush()
    raise AssertionError("the buffer takes everything")


def test_the_buffer_is_bounded_in_bytes() -> None:
    """R8: and what is refused leaves nothing behind."""
    rig = rig_with_room_for(20_000)
    taken = write_until_full(rig)
    assert 5 < taken < 40
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] < 21_000
    assert rig.upper() == LogOffset(taken, 1)
    assert rig.read_all() == [LogOffset(tx, 0) for tx in range(1, taken + 1)]


def test_what_was_refused_cannot_be_overtaken() -> None:
    """Smaller rows that would fit do not slip in before those that did not."""
    rig = rig_with_room_for(20_000)
    rig.write(1, text="x" * 10_000)
    with pytest.raises(BufferFull):
        rig.write(2, text="x" * 15_000)
    with pytest.raises(SourceGap):
        rig.write(3, after=LogOffset(2, 1))
    rig.store.flush(demand=[1])
    rig.write(2, text="x" * 15_000)
    assert rig.read_all() == [LogOffset(1, 0), LogOffset(2, 0)]


def test_one_append_larger_than_the_buffer_is_taken_alone() -> None:
    """An oversized row must not wedge the log: it is taken, flushed, and leaves the buffer as it was."""
    rig = rig_with_room_for(20_000)
    rig.write(1)
    with pytest.raises(BufferFull):
        rig.write(2, text="x" * 100_000)
    rig.store.flush(demand=[1])
    rig.write(2, text="x" * 100_000)
    with pytest.raises(BufferFull):
        rig.write(3)
    assert [one.aligned for one in rig.store.flush()] == [LogOffset(2, 1)]  # due by itself: the buffer is full
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    rig.write(3)
    assert rig.read_all() == [LogOffset(tx, 0) for tx in (1, 2, 3)]


def test_a_full_buffer_makes_a_flush_due() -> None:
    rig = rig_with_room_for(20_000)
    assert rig.store.next_flush_at() is None or rig.store.next_flush_at() == 0
    while rig.store.gauges()[Metric.BUFFERED_BYTES] < 20_000:
        rig.store.append(1, rows([(int(rig.upper().tx) + 1, 0)]), after=rig.upper())
        rig.store.commit(1, LogOffset(rig.upper().tx, 1))
    assert rig.store.next_flush_at() == 0.0
    rig.store.flush()
    assert rig.store.metrics.value(Metric.FLUSHES, Trigger.PRESSURE.value) == 1


def test_while_the_disk_stalls_appends_are_refused_and_then_all_is_written_once() -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, to_journal(bytes_max=20_000, flush_age_seconds=FLUSH_AGE_SECONDS))
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC), calls=None))
    tx = write_until_full(rig)
    assert not rig.store.wait_for_room(1000, 0)
    assert rig.is_paused()
    assert rig.durable() == SNAPSHOT_END

    disk.plan = NoFaults()
    assert rig.store.flush() == []  # not tried again at once
    rig.clock.seconds = rig.store.next_flush_at() or 0
    rig.store.flush()
    assert rig.store.wait_for_room(1000, 0)
    assert not rig.is_paused()
    rig.write(tx + 1)
    assert rig.read_all() == rig.read_all(SNAPSHOT_END, 0) == [LogOffset(one, 0) for one in range(1, tx + 2)]
    assert rig.reopened().read_all() == [LogOffset(one, 0) for one in range(1, tx + 1)]


def test_a_quiet_tail_is_flushed_by_its_age() -> None:
    """R5, R23: no append comes after it, and yet the log does not hold anything back for longer."""
    rig = Rig(options=StoreOptions())
    assert rig.store.next_flush_at() is None
    rig.write(1)
    written_at = rig.clock.seconds
    assert rig.store.next_flush_at() == written_at + FLUSH_AGE_SECONDS
    assert rig.store.flush() == []
    rig.clock.seconds = written_at + FLUSH_AGE_SECONDS
    assert [one.aligned for one in rig.store.flush()] == [LogOffset(1, 1)]
    assert rig.store.metrics.value(Metric.FLUSHES, Trigger.AGE.value) == 1
    assert rig.store.next_flush_at() is None


def test_the_age_is_that_of_the_oldest_row() -> None:
    rig = Rig(options=StoreOptions())
    rig.create(2)
    started_at = rig.clock.seconds
    for step in range(5):  # appends that come and come do not put the flush off
        rig.write(step + 1, log=1 + step % 2)
        assert rig.store.next_flush_at() == started_at + FLUSH_AGE_SECONDS
        rig.clock.seconds += FLUSH_AGE_SECONDS / 10


def test_a_commit_after_its_rows_were_flushed_is_a_reason_to_flush() -> None:
    """A5: no row will follow, so the commit itself does it."""
    rig = Rig()
    rig.store.append(1, rows([(1, 0)]), after=SNAPSHOT_END)
    rig.store.flush(demand=[1])
    assert rig.store.next_flush_at() is None
    rig.store.commit(1, LogOffset(1, 3))
    assert rig.store.next_flush_at() == 0.0
    assert [one.aligned for one in rig.store.flush()] == [LogOffset(1, 3)]
    assert rig.store.metrics.value(Metric.FLUSHES, Trigger.COMMIT.value) == 1


def test_a_commit_while_its_rows_are_in_flight_is_a_reason_too() -> None:
    rig = Rig()
    rig.store.append(1, rows([(1, 0)]), after=SNAPSHOT_END)
    job = begun(rig)
    rig.store.commit(1, LogOffset(1, 3))
    job.run(rig.disk)
    assert rig.store.end_flush(job) == []  # the block that was synced does not say it
    assert rig.store.next_flush_at() == 0.0
    assert [one.aligned for one in rig.store.flush()] == [LogOffset(1, 3)]
    assert rig.reopened().durable() == LogOffset(1, 3)


def test_the_last_flush_leaves_nothing_behind() -> None:
    """A stop that races a full buffer writes all of it, or says why not."""
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk)
    rig.create(2)
    for tx in range(1, 20):
        rig.write(tx, log=1 + tx % 2)
    disk.plan = Script(Rule("sync", Fault(errno.EIO)))
    with pytest.raises(SharedDiskFault):
        rig.store.flush_all()
    rig.clock.seconds += FAULT_RETRY_SECONDS
    rig.store.flush_all()
    again = rig.reopened()
    assert sorted(again.read_all() + again.read_all(log=2)) == [LogOffset(tx, 0) for tx in range(1, 20)]


def test_the_last_flush_leaves_out_what_is_being_removed() -> None:
    rig = Rig()
    rig.create(2)
    rig.write(1)
    rig.write(1, log=2)
    with rig.store.maintain(1):
        rig.store.remove_log(1)
        rig.store.flush_all()
        assert rig.durable(log=2) == LogOffset(1, 1)
    assert not rig.disk.exists("logs/1")


def test_the_last_flush_goes_on_beside_readers_that_open_logs() -> None:
    rig = Rig()
    for log in range(2, 120):
        rig.create(log)
    again = rig.reopened()
    again.write(1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=lambda: [again.read(log=log) for log in range(2, 120)])
    try:
        reader.start()
        while reader.is_alive():
            again.store.flush_all()
    finally:
        sys.setswitchinterval(interval)
        reader.join()
    again.store.flush_all()  # should the reader have been faster
    assert again.durable() == LogOffset(1, 1)


def test_logs_that_share_a_batch_are_not_copied_all_at_once() -> None:
    """In the buffer the batch counts once; in a journal block each log has its own copy of its rows."""
    logs = range(1, 41)
    options = StoreOptions(
        BufferOptions(flush_age_seconds=1.0), FlushOptions(own_segment_bytes=2**40, journal_flush_bytes_max=20_000)
    )
    rig = Rig(options=options)
    for log in logs[1:]:
        rig.create(log)
    end = LogOffset(1, 3)
    everything = np.tile(np.arange(2), len(logs))
    parts = FragmentShares(logs, everything, [2 * log for log in logs], [2] * len(logs), [end] * len(logs))
    rig.store.append_fragment(rows(transaction(1, 2), text="x" * 1_000), parts, after=SNAPSHOT_END, upto=end)
    rig.clock.seconds += 1.0
    flushes = 0
    durable: list[int] = []
    while rig.store.next_flush_at() is not None:
        flushed = rig.store.flush()
        durable += [one.log for one in flushed]
        flushes += 1
        assert 1 <= len(flushed) <= 10
    assert flushes >= 4
    assert sorted(durable) == list(logs)
    again = rig.reopened()
    assert all(again.read_all(log=log) == transaction(1, 2) for log in logs)


# Damage is told, never skipped.


@BOTH_FILES
def test_what_cannot_be_read_is_never_skipped(options: StoreOptions) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, options)
    for tx in (1, 2, 3):
        rig.write(tx)
        rig.store.flush(demand=[1])
    path, content = next((path, content) for path, content in disk.contents().items() if b"2.0" in content)
    flip(disk, path, content.index(b"2.0"))
    result = rig.read()
    assert offsets(result.rows) == [LogOffset(1, 0)]
    assert not result.at_end
    for _ in range(2):
        with pytest.raises(CorruptBlock):
            rig.read(result.next)


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    content = bytearray(disk.contents()[path])
    content[position] ^= 1
    disk.truncate(path, 0)
    disk.append(path, [content])


OUT_OF_BAND: list[tuple[StoreOptions, Callable[[Rig], str]]] = [
    (to_segments(), lambda rig: f"logs/1/{1:016x}_{0:016x}.segment"),
    (to_journal(), lambda rig: f"journal/{1:020d}.journal"),
]


@pytest.mark.parametrize(("options", "path_of"), OUT_OF_BAND, ids=["segments", "journal"])
def test_somebody_elses_file_is_never_overwritten_and_never_removed(
    options: StoreOptions, path_of: Callable[[Rig], str]
) -> None:
    """R24: a name that is taken is another writer's acknowledged data, for all we know."""
    disk = MemoryDisk()
    rig = Rig(disk, options)
    path = path_of(rig)
    disk.create(path)
    disk.append(path, [b"somebody else's"])
    rig.write(1)
    assert rig.store.flush(demand=[1]) == []
    rig.clock.seconds += FAULT_RETRY_SECONDS
    rig.store.flush()
    rig.store.abandon()
    assert disk.contents()[path] == b"somebody else's"
