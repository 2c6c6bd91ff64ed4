"""An empty base after a TRUNCATE changes nothing for whoever reads on behind it, wherever the log's rows are.

A log with such a base is held against its twin, which got the same rows and no base: the same rows in the same chunks,
in this process and those that follow, while the rows move from the journal to segments, and after every crash.
"""

import errno
import threading
from collections.abc import Callable

import pytest

from storage.bases import Base
from storage.disk import Disk
from storage.errors import Misuse, Refetch, SharedDiskFault
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.flush_control import FlushOptions
from storage.folder_reader import FolderReader
from storage.memory_disk import MemoryDisk, luckiest, strictest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.retention import retire
from storage.rows import Kind
from storage.shape_log import Placement
from storage.store import StoreOptions
from storage.truncation import empty_base
from storage.write_buffer import BufferOptions
from tests.crash.harness import Acknowledge, for_each_crash
from tests.unit.builders import BOTH_FILES, NEVER_SECONDS, Rig, offsets, rows, to_journal, to_segments, transaction
from tests.unit.keyed import tiny

CHUNK_BYTES = 400
"""Some three rows."""

NOW = 5

Write = Callable[[Rig], LogOffset]
"""Writes the TRUNCATE and what follows it; where it stands."""


def alone(rig: Rig) -> LogOffset:
    """A transaction of its own, and others behind it."""
    batch = rows([(30, 0)], kind=Kind.TRUNCATE)
    rig.store.append(1, batch, after=rig.upper(), aligned=LogOffset.aligned(30, 1))
    rig.store.flush_all()
    for tx in (40, 50):
        rig.write(tx, 2)
        rig.store.flush_all()
    return LogOffset(30, 0)


def in_the_middle(rig: Rig) -> LogOffset:
    """Among other rows of its transaction, so that none of its neighbours ends a block."""
    rig.write(30, 5)
    rig.write(40)
    rig.store.flush_all()
    return LogOffset(30, 4)


def at_the_end(rig: Rig) -> LogOffset:
    """The last row, though not the last change of its transaction."""
    rig.store.append(1, rows(transaction(30, 2)), after=rig.upper(), aligned=LogOffset.aligned(30, 9))
    rig.store.flush_all()
    return LogOffset(30, 2)


PLACES = pytest.mark.parametrize("write", [alone, in_the_middle, at_the_end])


def written(write: Write, options: StoreOptions, disk: Disk | None = None) -> tuple[Rig, LogOffset]:
    rig = Rig(disk, options, chunk_bytes=CHUNK_BYTES)
    for tx in (10, 20):
        rig.write(tx, 3)
        rig.store.flush_all()
    return rig, write(rig)


def with_base(write: Write, options: StoreOptions, disk: Disk | None = None) -> tuple[Rig, Base]:
    rig, at = written(write, options, disk)
    base = empty_base(rig.store, 1, at, written_at=NOW)
    assert base is not None
    assert (base.last, base.rows) == (at, 0)
    return rig, base


def chunks(rig: Rig, after: LogOffset) -> list[list[LogOffset]]:
    return [offsets(result.rows) for result in rig.read_on(after)]


def in_segments(rig: Rig) -> Rig:
    """The next process, in which all rows go to a segment with the next flush."""
    again = Rig(rig.disk, to_segments())
    again.write(90, after=again.upper())
    again.store.flush_all()
    return again


@PLACES
@BOTH_FILES
def test_what_follows_is_as_it_was_wherever_it_is(write: Write, options: StoreOptions) -> None:
    rig, base = with_base(write, options)
    twin, at = written(write, options)
    for _ in range(3):
        assert chunks(rig, base.floor) == chunks(twin, base.floor)
        assert chunks(rig, at) == chunks(twin, at)
        assert [rig.upper(), rig.durable()] == [twin.upper(), twin.durable()]
        assert offsets(FolderReader(rig.disk).read(1, base.floor, 10_000).rows) == rig.read_all(base.floor)
        rig, twin = rig.reopened(), twin.reopened()
        assert rig.store.log(1).state.fault is None
    rig, twin = in_segments(rig), in_segments(twin)
    for _ in range(2):
        assert chunks(rig, at) == chunks(twin, at)
        assert chunks(rig, SNAPSHOT_END) == chunks(twin, SNAPSHOT_END), "what a base has may go, and need not"
        rig, twin = rig.reopened(), twin.reopened()
    assert rig.store.log(1).files.segments


@PLACES
def test_a_move_to_a_segment_in_the_same_process(write: Write) -> None:
    options = StoreOptions(
        buffer=BufferOptions(flush_age_seconds=NEVER_SECONDS), flush=FlushOptions(own_segment_bytes=10_000)
    )
    rig, base = with_base(write, options)
    twin, _ = written(write, options)
    for one in (rig, twin):
        assert not one.store.log(1).files.segments
        one.write(90, 2, text="x" * 10_000)
        one.store.flush_all()
        assert one.store.log(1).files.segments
    for _ in range(2):
        assert chunks(rig, base.last) == chunks(twin, base.last)
        rig, twin = rig.reopened(), twin.reopened()


@BOTH_FILES
def test_it_is_made_once(options: StoreOptions) -> None:
    rig, base = with_base(alone, options)
    for again in (rig, rig.reopened()):
        assert empty_base(again.store, 1, base.last, written_at=NOW) is None
        assert [one.number for one in again.store.log(1).files.bases] == [base.number]


def test_the_next_truncate_has_one_of_its_own() -> None:
    rig, first = with_base(alone, to_journal())
    second = empty_base(rig.store, 1, LogOffset(50, 0), written_at=NOW)
    assert second is not None
    assert retire(rig.store, 1, now=NOW) == 1, "the older base goes, and no segment is there to go"
    again = rig.reopened()
    assert again.read_all(second.floor) == [LogOffset(50, 2)]
    assert again.read_all(first.floor)[-1] == LogOffset(50, 2), "its rows are still in the journal"


def test_what_lies_before_it_may_go() -> None:
    rig, base = with_base(alone, tiny())
    assert retire(rig.store, 1, now=NOW) == 3, "a segment each of 10, 20 and 30"
    assert rig.write(60) is Placement.AT
    rig.store.flush_all()
    for again in (rig, rig.reopened()):
        assert again.read_all(base.floor) == [*transaction(40, 2), *transaction(50, 2), LogOffset(60, 0)]
        with pytest.raises(Refetch):
            again.read(SNAPSHOT_END)


def test_the_log_goes_on_from_it_when_open_rows_were_all_that_followed() -> None:
    rig = Rig(options=tiny())
    rig.write(10)
    rig.store.flush_all()
    assert empty_base(rig.store, 1, LogOffset(10, 0), written_at=NOW) is not None
    rig.store.append(1, rows([(20, 0)]), after=rig.upper())
    rig.store.flush(demand=[1])
    assert retire(rig.store, 1, now=NOW) == 1
    for again in (rig.reopened(), rig):
        again.store.abandon()
        assert not again.store.log(1).files.segments
        assert again.durable() == LogOffset(10, 1)
    rig = Rig(rig.disk, to_journal())
    rig.write(20)
    rig.store.flush_all()
    assert empty_base(rig.store, 1, LogOffset(20, 0), written_at=NOW) is not None
    assert retire(rig.store, 1, now=NOW) == 1
    for again in (rig.reopened(), in_segments(rig.reopened())):
        assert again.read_all(LogOffset(10, 1))[0] == LogOffset(20, 0)


def test_not_before_it_is_durable_and_only_where_a_row_is() -> None:
    rig = Rig()
    rig.write(10)
    with pytest.raises(Misuse, match="not durable"):
        empty_base(rig.store, 1, LogOffset(10, 0), written_at=NOW)
    rig.store.flush_all()
    with pytest.raises(Misuse, match="no row there"):
        empty_base(rig.store, 1, LogOffset(10, 1), written_at=NOW)
    assert empty_base(rig.store, 1, LogOffset(10, 0), written_at=NOW) is not None


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("operation", ["create", "append", "sync", "link", "sync_folder"])
def test_a_try_that_failed_leaves_nothing(operation: str, happens: bool) -> None:
    """Whoever asks again and again while the disk is full must not fill it."""
    rule = Rule(operation, Fault(errno.ENOSPC, happens), "logs/1*", calls=3)  # type: ignore[arg-type]  # one of them
    disk = FaultyDisk(MemoryDisk(), Script(rule))
    disk.healthy = True
    rig, at = written(alone, to_journal(), disk)
    disk.healthy = False
    for _ in range(3):
        with pytest.raises(SharedDiskFault):
            empty_base(rig.store, 1, at, written_at=NOW)
    assert empty_base(rig.store, 1, at, written_at=NOW) is not None
    assert len(rig.store.log(1).files.bases) == 1
    assert not [name for name in disk.names("logs/1") if name.endswith(".tmp")]
    assert rig.reopened().read_all(at) == rig.read_all(at)


@PLACES
@BOTH_FILES
def test_a_crash_anywhere_leaves_the_log_whole(write: Write, options: StoreOptions) -> None:
    start, at = written(write, options)
    assert isinstance(start.disk, MemoryDisk)
    left = start.disk.crash_image(strictest)
    expected = start.read_all()

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[LogOffset]) -> None:
        rig = Rig(disk, options)
        base = empty_base(rig.store, 1, at, written_at=NOW)
        assert base is not None
        acknowledge(base.floor)
        rig.write(60)
        rig.store.flush_all()
        in_segments(rig)

    def check(disk: MemoryDisk, acknowledged: list[LogOffset]) -> None:
        rig = Rig(disk, options)
        files = rig.store.log(1).files
        assert len(files.bases) >= len(acknowledged)
        assert all(base.is_complete for base in files.bases)
        found = rig.read_all()
        assert found[: len(expected)] == expected
        assert empty_base(rig.store, 1, at, written_at=NOW) is None or not files.bases[:-1]
        if rig.upper().tx < 90:
            rig = in_segments(rig.reopened())
            found.append(LogOffset(90, 0))
        assert rig.reopened().read_all() == found

    assert for_each_crash(scenario, check, images=2, disk=lambda: left.crash_image(luckiest)) > 20


def test_it_waits_for_no_work_on_other_logs() -> None:
    """A fold of a large one takes an hour, and until the TRUNCATE has its base it holds G."""
    rig, at = written(alone, to_segments())
    rig.create(2)
    made: list[Base | None] = []
    making = threading.Thread(target=lambda: made.append(empty_base(rig.store, 1, at, written_at=NOW)), daemon=True)
    with rig.store.maintain(2):
        making.start()
        making.join(20)
        assert [base is not None for base in made] == [True]


def test_it_waits_for_work_on_its_own_log() -> None:
    rig, at = written(alone, to_segments())
    done: list[str] = []

    def make() -> None:
        assert empty_base(rig.store, 1, at, written_at=NOW) is not None
        done.append("base")

    making = threading.Thread(target=make, daemon=True)
    with rig.store.maintain(1):
        making.start()
        while not rig.store._maintenance._ended._waiters:  # type: ignore[attr-defined]  # nothing public says who waits
            assert making.is_alive()
        done.append("work")
    making.join(20)
    assert done == ["work", "base"]
