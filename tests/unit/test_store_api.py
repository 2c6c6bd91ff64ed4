"""What a store offers besides append, flush and read: births and ends of logs, bases, waiting, fragments, gauges.

Invariants:
    a fragment leaves in each log what appends of its shares would have left, also after errors and repetitions
    a removed log is unknown from that moment on; its files go when nobody uses them, and what it held is let go
    whoever waits is woken by what it waits for, or by the log's end, or by the time
    what is done for a log is done when the log is first used, in a few operations
"""

import contextlib
import errno
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import layout
from storage.clocks import Clocks
from storage.disk import Disk
from storage.errors import (
    BufferFull,
    InvalidRows,
    LogFault,
    Misuse,
    SharedDiskFault,
    SourceGap,
    UnknownLog,
    WentBackwards,
)
from storage.faulty_disk import Fault, FaultyDisk, Operation, Rule, Script
from storage.folder_reader import FolderReader
from storage.incoming import FragmentShares
from storage.limits import FAULT_RETRY_SECONDS
from storage.log_counts import flush_in_flight
from storage.log_facts import LogFacts, write_log
from storage.memory_disk import MemoryDisk, strictest
from storage.metrics import Metric
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.shape_log import Mode, Placement
from storage.store import Store, StoreOptions
from storage.write_buffer import BufferOptions, Trigger
from tests.unit.builders import BOTH_FILES, Rig, offsets, rows, to_journal, to_segments, transaction
from tests.unit.hooked_disk import hooked

NOW = 1_000_000
HANG_SECONDS = 60.0
MANY = 10_000

Found = TypeVar("Found")


# Births and ends.


def test_a_log_is_there_for_everybody_once_it_was_created() -> None:
    rig = Rig()
    rig.store.create_log(LogFacts(2, "other", key_columns=("id",), mode=Mode.COMPACTED, more={"x": 1}))
    image = rig.disk.crash_image(lambda count: 0) if isinstance(rig.disk, MemoryDisk) else rig.disk
    for disk in (rig.disk, image):
        reader = FolderReader(disk)
        assert reader.logs() == [1, 2]
        assert reader.facts(2) == LogFacts(2, "other", key_columns=("id",), mode=Mode.COMPACTED, more={"x": 1})
    assert rig.store.marks(2) == (SNAPSHOT_END, SNAPSHOT_END)


def test_a_number_is_used_once() -> None:
    rig = Rig()
    for store in (rig.store, rig.reopened().store):
        with pytest.raises(Misuse):
            store.create_log(LogFacts(1, "again"))


BIRTH: list[Operation] = ["make_folder", "create", "append", "sync", "rename", "sync_folder", "exists", "remove"]


@pytest.mark.parametrize("operation", BIRTH)
@pytest.mark.parametrize("happens", [False, True])
def test_a_log_that_could_not_be_created_can_be_created_later(operation: Operation, happens: bool) -> None:
    """Under its number, if it is not there; else it is there whole, and can be removed."""
    for first in range(1, 4):
        disk = FaultyDisk(MemoryDisk(), Script())
        rig = Rig(disk)
        disk.plan = Script(Rule(operation, Fault(errno.ENOSPC, happens), path="*logs*", first=first))
        with contextlib.suppress(SharedDiskFault):
            rig.create(2)
        disk.healthy = True
        log = 2
        if 2 in FolderReader(disk).logs():
            if disk.log:
                rig.store.remove_log(2)
                log = 3
                rig.create(3)
        else:
            rig.create(2)
        rig.write(1, log=log)
        rig.store.flush_all()
        assert offsets(FolderReader(disk).read(log, SNAPSHOT_END).rows) == [LogOffset(1, 0)]


def test_a_log_that_was_removed_is_unknown() -> None:
    rig = Rig()
    rig.create(2)
    rig.write(1)
    rig.store.flush_all()
    rig.write(2)
    rig.store.remove_log(1)
    calls: list[Callable[[], object]] = [
        rig.read,
        lambda: rig.write(3),
        lambda: rig.store.commit(1, LogOffset(9, 0)),
        lambda: rig.store.marks(1),
        lambda: rig.store.watch(1),
        lambda: rig.store.new_base(1),
        lambda: rig.store.flush(demand=[1]),
        lambda: rig.reader.read_chunk(1, 0, 0),
        lambda: rig.store.wait_visible(1, SNAPSHOT_END, 0),
        lambda: FolderReader(rig.disk).read(1, SNAPSHOT_END),
        lambda: Store(rig.disk, Clocks()).marks(1),
    ]
    for call in calls:
        with pytest.raises(UnknownLog):
            call()
    assert not rig.disk.exists("logs/1")
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    assert rig.store.flush_all() == []
    assert FolderReader(rig.disk).logs() == [2]


def test_a_removal_may_be_repeated() -> None:
    rig = Rig()
    for _ in range(2):
        rig.store.remove_log(1)
        rig.store.remove_log(77)
    assert rig.disk.names("logs") == []


@BOTH_FILES
def test_a_removal_while_its_rows_are_on_their_way(options: StoreOptions) -> None:
    rig = Rig(options=options)
    rig.create(2)
    for log in (1, 2):
        rig.write(1, log=log)
    job = rig.store.begin_flush(demand=[1, 2])
    assert job is not None
    rig.write(2)
    rig.store.remove_log(1)
    with pytest.raises(UnknownLog):
        rig.read()
    assert rig.disk.exists("logs/1"), "the flush may be writing to it"
    job.run(rig.disk)
    assert [one.log for one in rig.store.end_flush(job) if one.log == 2] == [2]
    assert not rig.disk.exists("logs/1")
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    assert rig.read_all(log=2) == [LogOffset(1, 0)]
    again = Store(rig.disk, Clocks())
    assert again.marks(2) == (LogOffset(1, 1), LogOffset(1, 1))
    with pytest.raises(UnknownLog):
        again.marks(1)


def test_what_became_durable_is_told_although_a_removal_fails() -> None:
    disk = FaultyDisk(MemoryDisk(), Script(Rule("remove", Fault(errno.EIO), path="logs/1/*")))
    rig = Rig(disk)
    rig.create(2)
    for log in (1, 2):
        rig.write(1, log=log)
    job = rig.store.begin_flush(demand=[1, 2])
    assert job is not None
    rig.store.remove_log(1)
    job.run(rig.disk)
    assert 2 in [one.log for one in rig.store.end_flush(job)]
    assert disk.exists("logs/1")
    rig.write(2, log=2)
    rig.store.flush_all()
    assert not disk.exists("logs/1"), "it was tried again"


def test_a_removal_that_fails_says_so_and_can_be_repeated() -> None:
    disk = FaultyDisk(MemoryDisk(), Script(Rule("remove", Fault(errno.EIO), path="logs/1/*")))
    rig = Rig(disk)
    woken = threading.Event()
    rig.store.watch(1).visible.subscribe(SNAPSHOT_END, lambda _: woken.set())
    with pytest.raises(SharedDiskFault):
        rig.store.remove_log(1)
    assert woken.is_set()
    with pytest.raises(UnknownLog):
        rig.read()
    rig.store.remove_log(1)
    assert not disk.exists("logs/1")


def test_the_number_of_a_log_whose_files_are_still_there_is_not_free() -> None:
    rig = Rig()
    rig.write(1)
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    rig.store.remove_log(1)
    with pytest.raises(Misuse):
        rig.create(1)
    job.run(rig.disk)
    rig.store.end_flush(job)


# Bases.


def test_a_base_is_written_chunk_by_chunk_and_read_meanwhile() -> None:
    rig = Rig()
    base = rig.store.new_base(1)
    for number in range(3):
        assert rig.reader.read_chunk(1, 0, number) is None
        base.chunk(rows([(0, number)]), written_at=NOW)
        chunk = rig.reader.read_chunk(1, 0, number)
        assert chunk is not None
        assert offsets([chunk]) == [LogOffset(0, number)]
    rig.write(5)
    assert rig.read_all() == [LogOffset(5, 0)], "the log goes on while its snapshot is copied"
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    for one in (rig, rig.reopened()):
        assert [one.reader.read_chunk(1, 0, number) is None for number in range(4)] == [False, False, False, True]
    for call in (
        lambda: base.chunk(rows([(0, 3)]), written_at=NOW),
        lambda: base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW),
        lambda: rig.reader.read_chunk(1, 1, 0),
    ):
        with pytest.raises(Misuse):
            call()


def test_a_base_that_failed_does_not_stand_in_the_way_of_the_next() -> None:
    disk = FaultyDisk(MemoryDisk(), Script())
    rig = Rig(disk)
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC, happens=True, appended=100), path="*.base.tmp"))
    with pytest.raises(SharedDiskFault):
        rig.store.new_base(1).chunk(rows([(0, 0)]), written_at=NOW)
    base = rig.store.new_base(1)
    assert base.base.number == 1
    base.chunk(rows([(0, 0)]), written_at=NOW)
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    again = rig.reopened()
    assert [base.number for base in again.store.log(1).files.bases] == [1]
    assert again.reader.read_chunk(1, 1, 0) is not None


def test_a_log_that_was_not_made_for_certain_is_made_again() -> None:
    """The last sync of its making failed: its rows would go with its name."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory, Script())
    rig = Rig(disk)
    disk.plan = Script(Rule("sync_folder", Fault(errno.EIO), path=layout.LOGS))
    with pytest.raises(SharedDiskFault):
        rig.create(2)
    with pytest.raises(UnknownLog):
        rig.write(10, log=2, after=SNAPSHOT_END)
    rig.create(2)
    rig.write(10, log=2)
    rig.store.flush_all()
    assert rig.reopened(memory.crash_image(strictest)).read_all(log=2) == [LogOffset(10, 0)]
    with pytest.raises(Misuse):
        rig.create(2)


@BOTH_FILES
def test_a_quiet_log_is_opened_without_a_sync(options: StoreOptions) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, options)
    for log in range(2, 12):
        rig.create(log)
        base = rig.store.new_base(log)
        base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
        rig.write(10, log=log)
    rig.store.flush_all()
    again = rig.reopened(confirmed_tx=11)
    operations = disk.operations
    for log in range(2, 12):
        assert again.durable(log) == LogOffset(10, 1)
    assert disk.operations == operations


def test_a_log_with_nothing_but_a_snapshot_stands_where_it_stood() -> None:
    """Whoever read the snapshot comes back after a restart, and is at the end."""
    rig = Rig()
    base = rig.store.new_base(1)
    base.chunk(rows([(0, 0)]), written_at=NOW)
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    rig.store.resume(LogOffset(50, OP_INFINITE))
    for one in (rig, rig.reopened(), rig.reopened(confirmed_tx=51)):
        assert one.store.marks(1) == (SNAPSHOT_END, SNAPSHOT_END)
        result = one.read(SNAPSHOT_END)
        assert (result.rows, result.next, result.at_end) == ([], SNAPSHOT_END, True)
        chunk = one.reader.read_chunk(1, 0, 0)
        assert chunk is not None
        assert offsets([chunk]) == [LogOffset(0, 0)]
    again = rig.reopened(confirmed_tx=51)
    again.write(60)
    assert again.read_all() == [LogOffset(60, 0)]


def test_what_comes_within_a_period_is_one_flush_and_then_there_is_none() -> None:
    rig = Rig(options=StoreOptions(BufferOptions(flush_age_seconds=1.0)))
    for tx in range(1, 6):
        assert rig.store.begin_flush() is None
        rig.write(tx)
        rig.clock.seconds += 0.15
    rig.clock.seconds += 0.5  # the first is older than the period, the last is not
    job = rig.store.begin_flush()
    assert job is not None
    job.run(rig.disk)
    rig.store.end_flush(job)
    assert rig.durable() == LogOffset(5, 1)
    rig.clock.seconds += 100.0
    assert rig.store.begin_flush() is None
    assert rig.store.metrics.value(Metric.FLUSHES, Trigger.AGE.value) == 1


def test_a_flush_under_way_is_known_by_its_number() -> None:
    """Who looks from time to time keeps that, and not the flush with all of its rows."""
    rig = Rig()
    seen: list[int | None] = []
    for tx in (1, 2):
        rig.write(tx)
        job = rig.store.begin_flush(demand=[1])
        assert job is not None
        seen += [flush_in_flight(rig.store), flush_in_flight(rig.store)]
        job.run(rig.disk)
        rig.store.end_flush(job)
        seen.append(flush_in_flight(rig.store))
    assert seen == [1, 1, None, 2, 2, None]


# Waiting.


def test_nobody_waits_for_what_is_there() -> None:
    rig = Rig()
    rig.write(1)
    assert rig.store.wait_visible(1, SNAPSHOT_END, 0) == LogOffset(1, 1)
    assert rig.store.wait_durable(1, SNAPSHOT_END, 0) is None
    rig.store.flush_all()
    assert rig.store.wait_durable(1, SNAPSHOT_END, 0) == LogOffset(1, 1)
    assert rig.store.wait_visible(1, LogOffset(1, 1), 0) is None


def in_a_thread(wait: Callable[..., Found], *arguments: object) -> tuple[threading.Thread, list[Found]]:
    found: list[Found] = []
    thread = threading.Thread(target=lambda: found.append(wait(*arguments)))
    thread.start()
    return thread, found


def test_data_and_durability_wake_their_own_waiters() -> None:
    rig = Rig()
    data, visible = in_a_thread(rig.store.wait_visible, 1, SNAPSHOT_END, HANG_SECONDS)
    sync, durable = in_a_thread(rig.store.wait_durable, 1, SNAPSHOT_END, HANG_SECONDS)
    rig.store.append(1, rows(transaction(1, 2)), after=SNAPSHOT_END)
    rig.store.flush(demand=[1])
    assert data.is_alive(), "rows of an open transaction are no data"
    rig.store.commit(1, LogOffset(1, 3))
    data.join(HANG_SECONDS)
    assert visible == [LogOffset(1, 3)]
    assert sync.is_alive()
    rig.store.flush()
    sync.join(HANG_SECONDS)
    assert durable == [LogOffset(1, 3)]


def test_who_waits_is_woken_by_a_fragment_and_by_the_end_of_the_log() -> None:
    rig = Rig()
    data, visible = in_a_thread(rig.store.wait_visible, 1, SNAPSHOT_END, HANG_SECONDS)
    rig.store.append_fragment(*fragment([(1, 0, [1])], ends=[1]), after=SNAPSHOT_END, upto=LogOffset(1, 1))
    data.join(HANG_SECONDS)
    assert visible == [LogOffset(1, 1)]
    last, nothing = in_a_thread(rig.store.wait_visible, 1, LogOffset(1, 1), HANG_SECONDS)
    rig.store.watch(1)
    rig.store.remove_log(1)
    last.join(HANG_SECONDS)
    assert nothing == [None]


def test_waiting_for_room() -> None:
    rig = Rig(options=to_journal(bytes_max=10_000, log_bytes_max=6_000))
    assert rig.store.wait_for_room(10**9, 0), "alone, anything is let in"
    rig.write(1, text="x" * 3000)
    size = int(rig.store.gauges()[Metric.BUFFERED_BYTES])
    assert rig.store.wait_for_room(10_000 - size, 0)
    assert not rig.store.wait_for_room(10_001 - size, 0)
    assert not rig.store.wait_for_room(6_000, 0, log=1)
    with pytest.raises(BufferFull):
        rig.write(2, text="x" * 6000)
    thread, _ = in_a_thread(rig.store.wait_for_room, 9_000, HANG_SECONDS)
    rig.store.flush_all()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    rig.write(2, text="x" * 6000)
    with pytest.raises(UnknownLog):
        rig.store.wait_for_room(1, 0, log=9)


def test_what_has_no_room_says_what_to_wait_for() -> None:
    """Whoever waited for less than is wanted would be told at once to come again, and never rest."""
    rig = Rig(options=to_journal(bytes_max=10_000, log_bytes_max=6_000))
    rig.create(2)
    rig.write(1, text="x" * 5_000)
    for log, text, names in ((1, "x" * 3_000, {"size", "log", "handle"}), (2, "x" * 9_000, {"size"})):
        with pytest.raises(BufferFull) as full:
            rig.write(2, log=log, text=text)
        assert full.value.facts.keys() == names
        size, bounded = full.value.facts["size"], full.value.facts.get("log")
        assert not rig.store.wait_for_room(size, 0, log=bounded)
        thread, found = in_a_thread(partial(rig.store.wait_for_room, log=bounded), size, HANG_SECONDS)
        rig.store.flush_all()
        thread.join(HANG_SECONDS)
        assert found == [True]
        rig.write(2, log=log, text=text)


def test_rows_that_are_dropped_make_room() -> None:
    rig = Rig(options=to_journal(bytes_max=10_000))
    rig.create(2)
    for make_room in (rig.store.abandon, lambda: rig.store.remove_log(2)):
        rig.store.append(2, rows(transaction(1, 1), text="x" * 9_000), after=SNAPSHOT_END)
        thread, found = in_a_thread(rig.store.wait_for_room, 9_000, HANG_SECONDS)
        make_room()
        thread.join(HANG_SECONDS)
        assert found == [True]


def test_when_the_next_flush_is_due() -> None:
    rig = Rig(options=to_journal(flush_age_seconds=5.0))
    assert rig.store.next_flush_at() is None
    rig.write(1)
    rig.clock.seconds += 3
    rig.write(2)
    assert rig.store.next_flush_at() == 1005.0
    assert rig.store.begin_flush() is None
    rig.store.wait_until_due(0)
    rig.clock.seconds = 1005.0
    job = rig.store.begin_flush()
    assert job is not None
    assert rig.store.next_flush_at() is None, "it is in flight"
    assert rig.store.begin_flush() is None
    job.run(rig.disk)
    assert [one.aligned for one in rig.store.end_flush(job)] == [LogOffset(2, 1)]
    assert rig.store.next_flush_at() is None


# Gauges.


def test_gauges_say_what_is_held() -> None:
    disk = FaultyDisk(MemoryDisk(), Script())
    rig = Rig(disk)
    assert set(rig.store.gauges().values()) == {0, 1}
    assert rig.store.gauges()[Metric.OPEN_LOGS] == 1
    rig.write(1)
    rig.clock.seconds += 7
    gauges = rig.store.gauges()
    assert gauges[Metric.OLDEST_UNFLUSHED_SECONDS] == 7
    assert gauges[Metric.BUFFERED_BYTES] > 0
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC)))
    rig.store.flush(demand=[1])
    assert rig.store.gauges()[Metric.FAULT] == 1
    assert rig.store.gauges()[Metric.OLDEST_UNFLUSHED_SECONDS] == 7
    rig.clock.seconds += FAULT_RETRY_SECONDS
    rig.store.flush(demand=[1])
    gauges = rig.store.gauges()
    assert gauges[Metric.FAULT] == 0
    assert gauges[Metric.OLDEST_UNFLUSHED_SECONDS] == gauges[Metric.BUFFERED_BYTES] == 0
    assert gauges[Metric.JOURNAL_BYTES] == disk.size("journal/00000000000000000002.journal")


# Fragments.

Change = tuple[int, int, Sequence[int]]
"""The transaction, the op, and the logs that get this row."""


def fragment(
    changes: Sequence[Change], ends: Sequence[int], before: Sequence[Change] = ()
) -> tuple[pa.RecordBatch, FragmentShares]:
    """Rows as a fragment; `ends` are the transactions that end in it, `before` what was sent of them earlier."""
    batch = rows([(tx, op) for tx, op, _ in changes])
    last_op = {tx: op for tx, op, _ in changes}
    picked: dict[int, list[int]] = {}
    ended: dict[int, int] = {}
    for row, (tx, _, touched) in enumerate([*changes, *before]):
        for log in touched:
            picked.setdefault(log, [])
            if row < len(changes):
                picked[log].append(row)
            if tx in ends:
                ended[log] = max(tx, ended.get(log, 0))
    logs = sorted(picked)
    return batch, FragmentShares(
        logs=logs,
        rows=np.array([row for log in logs for row in picked[log]], dtype=np.int64),
        ends=np.cumsum([len(picked[log]) for log in logs]).tolist(),
        committed=[sum(changes[row][0] in ends for row in picked[log]) for log in logs],
        aligned=[LogOffset(ended[log], last_op[ended[log]] + 1) if log in ended else None for log in logs],
    )


def send(
    rig: Rig, changes: Sequence[Change], ends: Sequence[int], after: LogOffset, before: Sequence[Change] = ()
) -> LogOffset:
    """A fragment as the stream hands it over; where it ends."""
    batch, shares = fragment(changes, ends, before)
    tx, op, _ = changes[-1]
    upto = LogOffset(tx, op + 1) if tx in ends else LogOffset(tx, op)
    rig.store.append_fragment(batch, shares, after=after, upto=upto)
    return upto


CHANGES = st.lists(st.lists(st.sets(st.integers(1, 3), max_size=3), min_size=1, max_size=4), min_size=1, max_size=8)


@given(CHANGES, st.data())
def test_fragments_leave_what_appends_would_have_left(transactions: list[list[set[int]]], data: st.DataObject) -> None:
    """Cut anywhere, with BufferFull in the middle, and each fragment sent again."""
    changes = [
        (10 * (number + 1), 2 * index, sorted(touched))
        for number, one in enumerate(transactions)
        for index, touched in enumerate(one)
    ]
    rig = Rig(options=to_segments(log_bytes_max=200) if data.draw(st.booleans()) else to_journal())
    for log in (2, 3):
        rig.create(log)
    after = SNAPSHOT_END
    start = 0
    while start < len(changes):
        stop = data.draw(st.integers(start + 1, len(changes)))
        part = changes[start:stop]
        ends = sorted({tx for tx, _, _ in part} - ({changes[stop][0]} if stop < len(changes) else set()))
        before = [change for change in changes[:start] if change[0] in ends]
        for _ in range(20):
            try:
                upto = send(rig, part, ends, after, before)
                break
            except BufferFull:
                rig.store.flush_all()
        else:
            raise AssertionError("flushes make room")
        if data.draw(st.booleans()):
            assert send(rig, part, ends, after, before) == upto
        for log in (1, 2, 3):
            seen = [LogOffset(tx, op) for tx, op, touched in changes[:stop] if log in touched]
            visible = [row for row in seen if row.tx <= max(ends, default=part[0][0] - 1)]
            assert rig.read_all(log=log) == visible
        if data.draw(st.booleans()):
            rig.store.flush_all()
        after, start = upto, stop
    for log in (1, 2, 3):
        expected = [LogOffset(tx, op) for tx, op, touched in changes if log in touched]
        assert rig.read_all(log=log) == expected
        assert rig.store.log(log).state.last == (expected[-1] if expected else SNAPSHOT_END)


def test_a_fragment_may_be_repeated_after_it_found_no_room() -> None:
    rig = Rig(options=to_journal(log_bytes_max=1000))
    rig.create(2)
    rig.write(1, log=2, text="x" * 1000)
    rig.store.resume(LogOffset(1, 1))
    changes: list[Change] = [(5, 0, [1]), (5, 2, [1, 2]), (6, 0, [2])]
    with pytest.raises(BufferFull):
        send(rig, changes, [5, 6], LogOffset(1, 1))
    assert rig.read_all() == [LogOffset(5, 0), LogOffset(5, 2)], "the first log took its rows"
    assert rig.store.flush_wanted.is_set(), "and the flusher knows of them"
    rig.store.flush_all()
    assert send(rig, changes, [5, 6], LogOffset(1, 1)) == LogOffset(6, 1)
    assert rig.read_all() == [LogOffset(5, 0), LogOffset(5, 2)]
    assert rig.read_all(log=2) == [LogOffset(1, 0), LogOffset(5, 2), LogOffset(6, 0)]
    assert rig.store.metrics.value(Metric.REPLAYED_ROWS) == 2


def test_an_unknown_log_in_the_middle_of_a_fragment() -> None:
    """Those before it have their rows, and who waits for them knows; without it, the fragment may be repeated."""
    rig = Rig()
    rig.create(3)
    woken: list[LogOffset | None] = []
    rig.store.watch(1).visible.subscribe(SNAPSHOT_END, woken.append)
    with pytest.raises(UnknownLog):
        send(rig, [(5, 0, [1, 2, 3])], [5], SNAPSHOT_END)
    assert woken == [LogOffset(5, 1)]
    assert rig.read_all(log=3) == []
    send(rig, [(5, 0, [1, 3])], [5], SNAPSHOT_END)
    assert rig.read_all() == rig.read_all(log=3) == [LogOffset(5, 0)]


def test_a_fragment_covers_the_logs_that_it_does_not_touch() -> None:
    rig = Rig()
    rig.create(2)
    end = send(rig, [(5, 0, [1])], [5], SNAPSHOT_END)
    end = send(rig, [(6, 0, [1])], [6], end)
    send(rig, [(7, 0, [2])], [7], end)
    assert rig.read_all(log=2) == [LogOffset(7, 0)]
    with pytest.raises(SourceGap):
        send(rig, [(9, 0, [2])], [9], LogOffset(8, 1))


def test_an_open_transaction_over_fragments_is_seen_when_it_ends() -> None:
    rig = Rig()
    rig.create(2)
    end = send(rig, [(5, 0, [1]), (6, 0, [1, 2])], [5], SNAPSHOT_END)
    assert rig.read_all() == [LogOffset(5, 0)]
    assert rig.read_all(log=2) == []
    end = send(rig, [(6, 2, [2])], [], end)
    rig.store.flush_all()
    # Its end is told to each log that it touched, also to one that gets no row here.
    send(rig, [(6, 4, [2])], [6], end, before=[(6, 0, [1, 2]), (6, 2, [2])])
    assert rig.read_all(log=2) == [LogOffset(6, 0), LogOffset(6, 2), LogOffset(6, 4)]
    assert rig.read_all() == [LogOffset(5, 0), LogOffset(6, 0)]


def test_after_an_abandon_nothing_is_taken_for_known_that_was_dropped() -> None:
    """The fragment had covered the open transaction; when it is sent again, its rows are news."""
    rig = Rig()
    rig.create(2)
    end = send(rig, [(5, 0, [1, 2])], [5], SNAPSHOT_END)
    send(rig, [(6, 0, [1]), (6, 2, [1])], [], end)
    rig.store.abandon()
    send(rig, [(6, 0, [1]), (6, 2, [2])], [6], end)
    assert rig.read_all() == [LogOffset(5, 0), LogOffset(6, 0)]
    assert rig.read_all(log=2) == [LogOffset(5, 0), LogOffset(6, 2)]


# Misuse, and what cannot be right.


def test_rows_that_no_log_can_take() -> None:
    rig = Rig()
    before = rig.store.gauges()
    good = rows([(1, 0), (1, 2)])
    cases = [
        (rows([]), InvalidRows),
        (good.drop_columns(["kind"]), InvalidRows),
        (good.drop_columns(["new"]), InvalidRows),
        (rows([(1, 2), (1, 0)]), WentBackwards),
        (rows([(1, 0), (1, 0)]), WentBackwards),
    ]
    for batch, error in cases:
        with pytest.raises(error):
            rig.store.append(1, batch, after=SNAPSHOT_END)
    with pytest.raises(WentBackwards):
        rig.store.append(1, good, after=LogOffset(1, 0))
    with pytest.raises(WentBackwards):
        rig.store.append(1, good, after=SNAPSHOT_END, aligned=LogOffset(1, 1))
    assert rig.store.gauges() == before
    assert rig.store.append(1, good, after=SNAPSHOT_END) is Placement.AT


def test_nothing_is_abandoned_while_a_flush_is_in_flight() -> None:
    rig = Rig()
    rig.write(1)
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    with pytest.raises(Misuse):
        rig.store.abandon()
    job.run(rig.disk)
    rig.store.end_flush(job)
    rig.store.abandon()
    assert rig.read_all() == [LogOffset(1, 0)]


def test_nothing_is_taken_before_an_abandon_has_succeeded() -> None:
    disk = FaultyDisk(MemoryDisk(), Script())
    rig = Rig(disk, to_segments())
    rig.store.append(1, rows(transaction(1, 2)), after=SNAPSHOT_END)
    rig.store.flush(demand=[1])
    disk.plan = Script(Rule("remove", Fault(errno.EIO), path="*.segment"))
    with pytest.raises(SharedDiskFault):
        rig.store.abandon()
    with pytest.raises(Misuse):
        rig.write(1)
    with pytest.raises(Misuse):
        rig.store.commit(1, LogOffset(1, 3))
    rig.store.abandon()
    rig.write(1, 2)
    rig.store.flush_all()
    assert rig.reopened().read_all() == transaction(1, 2)


def test_a_log_that_stopped_says_why() -> None:
    disk = FaultyDisk(MemoryDisk(), Script(Rule("create", Fault(errno.EACCES), path="*.segment")))
    rig = Rig(disk, to_segments())
    rig.create(2)
    rig.write(1)
    rig.store.flush_all()
    for call in (
        lambda: rig.write(2),
        rig.read,
        lambda: rig.store.append(1, rows([(3, 0)]), after=SNAPSHOT_END),
    ):
        with pytest.raises(LogFault) as fault:
            call()
        assert "Permission denied" in str(fault.value)
    rig.write(1, log=2)
    rig.store.flush_all()
    assert rig.read_all(log=2) == [LogOffset(1, 0)]


# Many logs.


class Counting:
    """Counts the operations on a disk."""

    def __init__(self, disk: Disk) -> None:
        self.counts: Counter[str] = Counter()
        self.disk = hooked(disk, self._count)

    def _count(self, operation: str, path: str) -> None:
        self.counts[operation] += 1

    def since(self) -> Counter[str]:
        counts, self.counts = self.counts, Counter()
        return counts


@pytest.fixture(scope="module")
def many_logs() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder("logs")
    for log in range(1, MANY + 1):
        write_log(disk, LogFacts(log, f"handle-{log}"))
    disk.sync_folder("")
    return disk


def test_a_folder_of_many_logs_opens_like_one_of_few(many_logs: MemoryDisk) -> None:
    counting = Counting(many_logs)
    store = Store(counting.disk, Clocks())
    assert counting.since().total() < 10
    store.log(MANY)
    opened = counting.since()
    assert opened.total() < 15
    assert not set(opened) & {"create", "append", "rename", "remove"}
    assert opened["sync"] + opened["sync_folder"] <= 1
    store.log(MANY)
    store.marks(MANY)
    assert counting.since().total() == 0
    assert store.gauges()[Metric.OPEN_LOGS] == 1


def test_one_row_for_each_of_many_logs_is_one_sync(many_logs: MemoryDisk) -> None:
    counting = Counting(many_logs)
    rig = Rig(counting.disk, to_journal())
    counting.since()
    changes = [(1, 2 * log, [log]) for log in range(1, MANY + 1)]
    end = send(rig, changes, [1], SNAPSHOT_END)
    assert counting.since().total() < 15 * MANY
    assert len(rig.store.flush(demand=range(1, MANY + 1))) == MANY
    first = counting.since()
    assert first == {"create": 1, "append": 1, "sync": 1, "sync_folder": 1}
    send(rig, [(2, op, logs) for _, op, logs in changes], [2], end)
    rig.store.flush(demand=range(1, MANY + 1))
    assert counting.since() == {"append": 1, "sync": 1}
    again = Rig(counting.disk, to_journal())
    assert counting.since().total() < 30, "the journal is read, and no log"
    assert again.read_all(log=MANY) == [LogOffset(1, 2 * MANY), LogOffset(2, 2 * MANY)]
    assert counting.since().total() < 20
