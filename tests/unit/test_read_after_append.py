"""What was appended can be read at once, and from then on without a break.

Out of the buffer, out of a flush in flight, out of the files: the oldest first, each row once, whatever becomes of the
flush.
"""

import errno
import threading

import pytest

from storage.errors import AboveUpper, FileVanished, Hole
from storage.faulty_disk import Fault, FaultyDisk, NoFaults, Operation, Rule, Script
from storage.memory_disk import MemoryDisk
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadSource
from storage.store import StoreOptions
from tests.unit.builders import BOTH_FILES, Rig, offsets, rows, to_journal, to_segments, transaction

MEMORY = {ReadSource.WINDOW, ReadSource.BUFFER}
FILES = {ReadSource.SEGMENT, ReadSource.JOURNAL}


def written(rig: Rig, *transactions: int) -> list[LogOffset]:
    """Append a row for each transaction."""
    for tx in transactions:
        rig.write(tx)
    return [LogOffset(tx, 0) for tx in transactions]


def assert_readable_from_everywhere(rig: Rig, expected: list[LogOffset]) -> None:
    """From the start and from every row: what follows, all of it, in order."""
    for start, after in enumerate([SNAPSHOT_END, *expected]):
        assert rig.read_all(after) == expected[start:]


# What can be read, and from where.


def test_every_row_can_be_read_before_any_flush() -> None:
    rig = Rig()
    expected = written(rig, *range(1, 40))
    assert_readable_from_everywhere(rig, expected)
    assert set(rig.read().sources) == {ReadSource.BUFFER}


def test_the_marks_say_what_is_visible_and_what_is_durable() -> None:
    # R6: a reader learns which of its rows a crash could take back.
    rig = Rig()
    rig.write(1)
    rig.store.flush(demand=[1])
    rig.write(2)
    result = rig.read()
    assert (result.visible, result.durable) == (LogOffset(2, 1), LogOffset(1, 1))
    assert (result.visible, result.durable) == rig.store.marks(1)
    assert offsets(result.rows)[-1] > result.durable


@BOTH_FILES
def test_flushed_after_every_append_the_buffer_serves_nothing(options: StoreOptions) -> None:
    rig = Rig(options=options)
    for tx in range(1, 20):
        rig.write(tx)
        rig.store.flush_all()
        visible, durable = rig.store.marks(1)
        assert visible == durable == LogOffset(tx, 1)
        assert rig.read_all()[-1] == LogOffset(tx, 0)
    assert not any(rig.store.metrics.value(Metric.READS, source.value) for source in MEMORY)


@BOTH_FILES
def test_rows_can_be_read_while_their_flush_is_in_flight(options: StoreOptions) -> None:
    rig = Rig(options=options)
    expected = written(rig, 1, 2, 3)
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    assert set(rig.read().sources) == {ReadSource.WINDOW}
    assert_readable_from_everywhere(rig, expected)
    job.run(rig.disk)
    assert_readable_from_everywhere(rig, expected)
    rig.store.end_flush(job)
    assert set(rig.read().sources) <= FILES
    assert_readable_from_everywhere(rig, expected)


@BOTH_FILES
def test_every_row_can_be_read_over_many_flushes(options: StoreOptions) -> None:
    rig = Rig(options=options)
    expected = []
    for tx in range(1, 31):
        expected += written(rig, tx)
        if tx % 3 == 0:
            rig.store.flush(demand=[1])
    assert_readable_from_everywhere(rig, expected)
    assert_readable_from_everywhere(rig.reopened(), expected)


@BOTH_FILES
def test_after_a_flush_memory_is_empty(options: StoreOptions) -> None:
    rig = Rig(options=options)
    written(rig, 1, 2, 3)
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] > 0
    rig.store.flush(demand=[1])
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    assert rig.store.log(1).state.in_memory() == []


def test_readers_beside_a_writer_see_a_growing_prefix() -> None:
    # R1: at every moment the rows up to V, without a gap and none twice.
    rig = Rig(options=to_segments())
    last = 150
    failures: list[BaseException] = []

    def follow(max_bytes: int | None) -> None:
        seen: list[LogOffset] = []
        try:
            while len(seen) < last:
                after = seen[-1] if seen else SNAPSHOT_END
                result = rig.reader.wait_and_read(1, after, 30, max_bytes)
                assert result.rows, "the writer is alive, so data comes"
                seen += offsets(result.rows)
                assert seen[-1] <= result.visible
            assert seen == [LogOffset(tx, 0) for tx in range(1, last + 1)]
        except BaseException as failure:  # noqa: BLE001 - told to the main thread
            failures.append(failure)

    readers = [threading.Thread(target=follow, args=(limit,)) for limit in (None, 0, 1, 200, 1000, None, 350, 10**9)]
    for reader in readers:
        reader.start()
    for tx in range(1, last + 1):
        rig.write(tx)
        if tx % 7 == 0:
            rig.store.flush(demand=[1])
    for reader in readers:
        reader.join(60)
    assert failures == []
    assert not any(reader.is_alive() for reader in readers)


@pytest.mark.parametrize("flushed", [0, 2, 4], ids=["in memory", "half on disk", "on disk"])
@pytest.mark.parametrize(
    ("max_bytes", "after", "expected"),
    [
        pytest.param(0, 0, [1], id="no bytes are one row"),
        pytest.param(-1, 0, [1], id="fewer than none as well"),
        pytest.param(1, 0, [1], id="less than a row"),
        pytest.param(10**12, 0, [1, 2, 3, 4], id="more than there is"),
        pytest.param(0, 2, [3], id="from the middle"),
        pytest.param(10**12, 3, [4], id="to the end"),
        pytest.param(10**12, 4, [], id="at the end"),
    ],
)
def test_limits_of_a_read(flushed: int, max_bytes: int, after: int, expected: list[int]) -> None:
    rig = Rig()
    for tx in (1, 2, 3, 4):
        rig.write(tx)
        if tx == flushed:
            rig.store.flush(demand=[1])
    result = rig.read(LogOffset(after, 0) if after else SNAPSHOT_END, max_bytes)
    assert offsets(result.rows) == [LogOffset(tx, 0) for tx in expected]
    assert result.at_end == (not expected or expected[-1] == 4)


def test_a_read_above_everything_is_told_so() -> None:
    rig = Rig()
    rig.write(4)
    assert rig.read(rig.upper()).at_end
    with pytest.raises(AboveUpper):
        rig.read(LogOffset(4, 2))


# The defects that such buffers had.


@BOTH_FILES
def test_the_window_is_read_before_the_buffer(options: StoreOptions) -> None:
    """A read that asks the newest rows first would skip those whose flush is in flight."""
    rig = Rig(options=options)
    expected = written(rig, 1, 2, 3, 4)
    assert rig.store.begin_flush(demand=[1]) is not None
    expected += written(rig, 5)
    result = rig.read(LogOffset(2, 0))
    assert offsets(result.rows) == expected[2:]
    assert list(result.sources) == [ReadSource.WINDOW, ReadSource.BUFFER]


FAILURES = [
    pytest.param("append", Fault(errno.ENOSPC), id="write refused"),
    pytest.param("append", Fault(errno.ENOSPC, happens=True, appended=200), id="half written"),
    pytest.param("append", Fault(errno.EIO, happens=True), id="written but denied"),
    pytest.param("sync", Fault(errno.EIO), id="sync failed"),
    pytest.param("sync", Fault(errno.EIO, happens=True), id="synced but denied"),
]


@pytest.mark.parametrize(("operation", "fault"), FAILURES)
@pytest.mark.parametrize("options", [to_journal(), to_segments()], ids=["journal", "segments"])
def test_a_failed_flush_loses_nothing_and_acknowledges_nothing(
    operation: Operation, fault: Fault, options: StoreOptions
) -> None:
    """R2, R12: D moves for success only; the rows are where they were, before those that came meanwhile."""
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, options)
    expected = written(rig, 1, 2)
    rig.store.flush(demand=[1])
    expected += written(rig, 3, 4)
    disk.plan = Script(Rule(operation, fault))
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    expected += written(rig, 5)
    job.run(disk)
    assert rig.store.end_flush(job) == []
    assert rig.durable() == LogOffset(2, 1)
    assert rig.is_paused()
    assert_readable_from_everywhere(rig, expected)

    # Another producer's flush finds nothing that it could acknowledge in the first one's place.
    assert rig.store.flush(demand=[1]) == []
    assert rig.durable() == LogOffset(2, 1)

    rig.clock.seconds += 10
    flushed = rig.store.flush(demand=[1])
    assert [one.aligned for one in flushed] == [LogOffset(5, 1)]
    assert not rig.is_paused()
    assert_readable_from_everywhere(rig, expected)
    assert_readable_from_everywhere(rig.reopened(), expected)


def test_a_hole_between_files_is_an_error_and_no_skip() -> None:
    rig = Rig(options=to_segments())
    for tx in (1, 2, 3):
        rig.write(tx)
        rig.store.flush(demand=[1])
        rig.store.log(1).files.segments[-1].closed = True
    first, middle, _ = (segment.path for segment in rig.store.log(1).files.segments)
    rig.disk.remove(middle)
    with pytest.raises(FileVanished):
        rig.read()
    reopened = rig.reopened()
    with pytest.raises(Hole):
        reopened.read(LogOffset(1, 0))
    assert offsets(reopened.read(SNAPSHOT_END, 0).rows) == [LogOffset(1, 0)]  # what lies before can be read
    reopened.disk.remove(first)
    with pytest.raises(Hole):
        reopened.reopened().read()


def test_a_flush_of_nothing_acknowledges_nothing() -> None:
    """A mark made from the next offset would take in what is appended while the empty flush runs."""
    rig = Rig()
    assert rig.store.begin_flush(demand=[1]) is None
    assert rig.store.flush(demand=[1]) == []
    rig.write(1)
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    rig.write(2)
    job.run(rig.disk)
    assert [one.aligned for one in rig.store.end_flush(job)] == [LogOffset(1, 1)]
    assert rig.durable() == LogOffset(1, 1)


def test_a_waiting_reader_is_woken_by_the_append_itself() -> None:
    """No polling, and no wait for a flush."""
    rig = Rig()
    woken: list[LogOffset | None] = []
    rig.store.watch(1).visible.subscribe(SNAPSHOT_END, woken.append)
    rig.store.append(1, rows(transaction(1, 1)), after=SNAPSHOT_END)
    assert woken == []  # the transaction is still open
    rig.store.commit(1, LogOffset(1, 1))
    assert woken == [LogOffset(1, 1)]


def test_a_read_waits_for_data() -> None:
    rig = Rig()
    results = []
    reader = threading.Thread(target=lambda: results.append(rig.reader.wait_and_read(1, SNAPSHOT_END, 30)))
    reader.start()
    rig.write(7)
    reader.join(60)
    assert [offsets(result.rows) for result in results] == [[LogOffset(7, 0)]]


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_a_read_without_data_ends_when_its_time_is_up(seconds: float) -> None:
    # R10, where there is nothing and nothing comes.
    result = Rig().reader.wait_and_read(1, SNAPSHOT_END, seconds)
    assert (result.rows, result.at_end, result.next) == ([], True, SNAPSHOT_END)


# Crashes.


@BOTH_FILES
def test_after_a_crash_v_falls_back_to_d_and_no_further(options: StoreOptions) -> None:
    """R4: and the rows above D come again, at the same offsets, none of them twice."""
    disk = MemoryDisk()
    rig = Rig(disk, options)
    expected = written(rig, 1, 2)
    rig.store.flush(demand=[1])
    expected += written(rig, 3)
    again = rig.reopened(disk.crash_image(lambda _: 0))
    assert again.store.marks(1) == (LogOffset(2, 1), LogOffset(2, 1))
    assert again.read_all() == expected[:2]
    for tx in (1, 2, 3):  # the source begins again before D, which storage recognises
        again.write(tx, after=LogOffset(tx - 1, 1) if tx > 1 else SNAPSHOT_END)
    assert again.read_all() == expected


@BOTH_FILES
def test_only_the_end_of_a_whole_transaction_is_acknowledged(options: StoreOptions) -> None:
    """R3: rows of an open transaction may be flushed; D stays at the transaction before, until its commit is synced."""
    rig = Rig(options=options)
    rig.write(1)
    rig.store.append(1, rows([(2, 0), (2, 2)]), after=rig.upper())
    assert [one.aligned for one in rig.store.flush(demand=[1])] == [LogOffset(1, 1)]
    assert rig.store.log(1).state.has_open_rows_on_disk
    rig.store.commit(1, LogOffset(2, 5))
    assert rig.durable() == LogOffset(1, 1)
    assert [one.aligned for one in rig.store.flush()] == [LogOffset(2, 5)]  # nobody appended: the commit is news enough
    assert rig.reopened().durable() == LogOffset(2, 5)
