"""Start-up: what a crash may have left becomes logs that go on, without a row that was never committed.

Nothing that was durable is lost by it, whatever was being moved, copied or cut when the power went; and the damage of
one log is that log's alone.
"""

import errno
from collections.abc import Callable

import pytest

from storage import layout
from storage.block import HEADER_SIZE
from storage.disk import Disk
from storage.errors import (
    CorruptBlock,
    Hole,
    LogFault,
    LogPoisoned,
    PermissionLost,
    SharedDiskFault,
    SourceGap,
    StorageError,
)
from storage.faulty_disk import Fault, FaultyDisk, NoFaults, Operation, Rule, Script
from storage.flush_control import FlushOptions
from storage.limits import FAULT_RETRY_SECONDS
from storage.memory_disk import Crashed, MemoryDisk, luckiest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.recovery import Found, recover_journal
from storage.repair import Repair
from storage.shape_log import Mode
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.unit.builders import BOTH_FILES, NEVER_SECONDS, Rig, offsets, rows, to_journal, to_segments, transaction
from tests.unit.keyed import tiny

MORE_COLUMNS = ("id", "text", "more")


def rows_at(*transactions: int) -> list[LogOffset]:
    return [LogOffset(tx, 0) for tx in transactions]


def journals(disk: Disk) -> list[str]:
    return disk.names(layout.JOURNAL)


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    return disk.crash_image(luckiest)


def open_rows(rig: Rig, tx: int, *, log: int = 1) -> None:
    """Rows of a transaction that has not ended."""
    rig.store.append(log, rows(transaction(tx, 2)), after=rig.upper(log))


# Open transactions.


@BOTH_FILES
def test_rows_without_a_commit_are_removed_from_the_disk(options: StoreOptions) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, options)
    rig.write(1)
    rig.store.flush(demand=[1])
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    again = rig.reopened()
    assert again.store.marks(1) == (LogOffset(1, 1), LogOffset(1, 1))
    assert again.read_all() == rows_at(1)
    assert not any(b"2.0" in content for content in disk.contents().values())
    again.write(2, 3)
    again.store.flush(demand=[1])
    assert again.reopened().read_all() == [*rows_at(1), *transaction(2, 3)]


@BOTH_FILES
def test_a_commit_that_came_to_the_journal_keeps_the_rows_wherever_they_are(options: StoreOptions) -> None:
    rig = Rig(options=options)
    rig.write(1)
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    rig.store.commit(1, LogOffset(2, 7))
    rig.store.flush()
    again = rig.reopened()
    assert again.read_all() == [*rows_at(1), *transaction(2, 2)]
    assert again.durable() == LogOffset(2, 7)
    again.write(3)
    again.store.flush(demand=[1])
    assert again.reopened().read_all() == [*rows_at(1), *transaction(2, 2), *rows_at(3)]


def test_open_rows_over_several_segments_are_removed() -> None:
    rig = Rig(options=to_segments())
    rig.write(1)
    rig.store.flush(demand=[1])
    for op in (0, 2, 4):
        rig.store.append(1, rows([(2, op)]), after=rig.upper())
        rig.store.flush(demand=[1])
        rig.store.log(1).files.segments[-1].closed = True
    assert len(rig.store.log(1).files.segments) == 3
    again = rig.reopened()
    assert again.read_all() == rows_at(1)
    assert len(again.store.log(1).files.segments) == 1


def test_an_abandoned_transaction_is_gone_before_it_comes_again() -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    rig.create(2)
    for log in (1, 2):
        rig.write(1, log=log)
        open_rows(rig, 2, log=log)
    rig.store.flush(demand=[1])
    rig.store.commit(2, LogOffset(2, 5))
    rig.store.flush_all()
    rig.store.abandon()
    assert rig.read_all() == rows_at(1)
    assert rig.read_all(log=2) == [*rows_at(1), *transaction(2, 2)]
    rig.store.append(1, rows([(2, 0)]), after=LogOffset(1, 1), aligned=LogOffset(2, 5))
    rig.store.flush_all()
    again = rig.reopened()
    assert again.read_all() == rows_at(1, 2)
    assert again.read_all(log=2) == [*rows_at(1), *transaction(2, 2)]


def test_one_logs_fault_does_not_keep_the_others_from_abandoning() -> None:
    """A9: the connection is lost for all, and one log cannot be cut."""
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, to_segments())
    rig.create(2)
    for log in (1, 2):
        rig.write(1, log=log)
        open_rows(rig, 2, log=log)
    rig.store.flush_all()
    disk.plan = Script(Rule("create", Fault(errno.EACCES), "logs/1/*", calls=None))
    told: list[LogOffset | None] = []
    for log in (1, 2):
        rig.store.watch(log).visible.subscribe(LogOffset(1, 1), told.append)
    rig.store.abandon()
    assert isinstance(rig.store.log(1).state.fault, PermissionLost)
    assert told == [None], "whoever waits for the one that stopped hears of it"
    assert rig.read_all(log=2) == rows_at(1)
    rig.write(2, log=2)
    with pytest.raises(LogPoisoned):
        rig.write(2)
    disk.plan = NoFaults()
    again = rig.reopened()
    assert again.read_all() == rows_at(1)
    assert again.durable() == LogOffset(1, 1)


def test_a_log_that_was_stopped_before_does_not_keep_the_others_from_abandoning() -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, to_segments())
    rig.create(2)
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    disk.plan = Script(*(Rule(one, Fault(errno.EACCES), "logs/1/*", calls=None) for one in ("append", "create")))
    rig.store.append(1, rows([(2, 4)]), after=rig.upper())
    rig.store.flush(demand=[1])
    open_rows(rig, 2, log=2)
    rig.store.abandon()
    rig.write(2, log=2)
    assert rig.read_all(log=2) == rows_at(2)


def test_a_full_disk_keeps_all_from_taking_rows_until_abandoning_succeeds() -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk)
    rig.write(1)
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC), calls=None))
    for _ in range(2):
        with pytest.raises(SharedDiskFault):
            rig.store.abandon()
        with pytest.raises(StorageError, match="abandon"):
            rig.write(3)
    disk.plan = NoFaults()
    rig.store.abandon()
    rig.write(2)
    rig.store.flush_all()
    assert rig.reopened().read_all() == rows_at(1, 2)


# From the journal to a segment.


def moving(disk: Disk, *, confirmed_tx: int = 0) -> Rig:
    """The same folder, with every flush going to segments, which carries over what the journal has."""
    return Rig(disk, to_segments(), confirmed_tx=confirmed_tx)


def in_journal(disk: MemoryDisk, *transactions: int, mode: Mode = Mode.APPEND) -> Rig:
    rig = Rig(disk, to_journal(), mode=mode)
    for tx in transactions:
        rig.write(tx)
        rig.store.flush(demand=[1])
    return rig


def test_what_the_journal_has_is_carried_over_and_counts_once() -> None:
    disk = MemoryDisk()
    in_journal(disk, 1, 2)
    rig = moving(disk)
    rig.write(3)
    rig.store.flush(demand=[1])
    assert rig.read_all() == rows_at(1, 2, 3)
    both = rig.reopened(copy_of(disk))  # the journal's file is still there
    assert both.read_all() == rows_at(1, 2, 3)
    assert not both.store.logs.index.holds(1)
    both.write(4)
    both.store.flush(demand=[1])
    assert both.reopened().read_all() == rows_at(1, 2, 3, 4)


def last_write(disk: MemoryDisk, rig: Rig) -> tuple[str, int, int]:
    """Flush log 1: the file it went to, its size before and after."""
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    file = job.files[-1]
    before = disk.size(file.path) if disk.exists(file.path) else 0
    job.run(disk)
    rig.store.end_flush(job)
    return file.path, before, disk.size(file.path)


@pytest.mark.parametrize("confirmed_tx", [0, 3], ids=["unconfirmed", "below G"])
@pytest.mark.parametrize("more_columns", [False, True], ids=["one block", "two blocks"])
def test_a_torn_move_loses_nothing(confirmed_tx: int, more_columns: bool) -> None:
    """At every length. What was being moved was durable, and confirmed, where it came from, and it still is there."""
    disk = MemoryDisk()
    in_journal(disk, 1, 2)
    rig = moving(disk)
    columns = MORE_COLUMNS if more_columns else ("id", "text")
    rig.store.append(1, rows([(3, 0)], columns=columns), after=rig.upper(), aligned=LogOffset(3, 1))
    path, before, after = last_write(disk, rig)
    assert (before, after > 1000) == (0, True)
    for size in [*range(0, after, 64), after - 1]:
        torn = copy_of(disk)
        torn.truncate(path, size)
        again = Rig(torn, confirmed_tx=confirmed_tx)
        assert again.read_all() == rows_at(1, 2)
        assert again.durable() == LogOffset(2, 1)
        again.write(3)
        again.store.flush(demand=[1])
        later = moving(torn, confirmed_tx=confirmed_tx)
        later.write(4)
        later.store.flush(demand=[1])
        assert later.reopened().read_all() == rows_at(1, 2, 3, 4)


def test_a_torn_move_across_a_lawful_gap_loses_nothing() -> None:
    disk = MemoryDisk()
    in_journal(disk, 1, mode=Mode.COMPACTED)
    rig = Rig(disk, to_segments(), mode=Mode.COMPACTED)
    rig.write(9, after=LogOffset(8, 0))
    path, _, after = last_write(disk, rig)
    disk.truncate(path, after - 1)
    again = rig.reopened()
    assert again.read_all() == rows_at(1)
    again.write(9, after=LogOffset(8, 0))
    again.store.flush(demand=[1])
    assert again.reopened().read_all() == rows_at(1, 9)


def test_a_torn_move_behind_damage_stops_the_log() -> None:
    """What was carried over is removed, and the segment before it is looked at only then."""
    disk = MemoryDisk()
    first = Rig(disk, tiny())
    for tx in (1, 2):
        first.write(tx)
        first.store.flush(demand=[1])
    damaged = first.store.log(1).files.segments[1].path
    in_journal(disk, 3)
    rig = Rig(disk, tiny())
    rig.store.append(1, rows([(4, 0)], columns=MORE_COLUMNS), after=rig.upper(), aligned=LogOffset(4, 1))
    path, _, after = last_write(disk, rig)
    disk.truncate(path, after - 1)
    content = bytearray(disk.contents()[damaged])
    content[0] ^= 1
    disk.truncate(damaged, 0)
    disk.append(damaged, [content])
    again = rig.reopened()
    assert isinstance(again.store.log(1).state.fault, CorruptBlock)
    assert offsets(again.read().rows) == rows_at(1)
    with pytest.raises(LogFault):
        again.read(LogOffset(1, 0))


def test_a_torn_append_behind_older_blocks_loses_nothing() -> None:
    disk = MemoryDisk()
    first = moving(disk)
    first.write(1)
    first.store.flush(demand=[1])
    in_journal(disk, 2)
    rig = moving(disk)
    rig.store.append(1, rows([(3, 0)], columns=MORE_COLUMNS), after=rig.upper(), aligned=LogOffset(3, 1))
    path, before, after = last_write(disk, rig)
    assert before > 0
    for size in range(before, after, 64):
        torn = copy_of(disk)
        torn.truncate(path, size)
        again = Rig(torn, confirmed_tx=3)
        assert again.read_all() == rows_at(1, 2)
        assert torn.size(path) == before


def test_a_moved_block_below_g_that_the_journal_no_longer_has_is_damage() -> None:
    disk = MemoryDisk()
    in_journal(disk, 1)
    rig = moving(disk)
    rig.write(2)
    path, _, after = last_write(disk, rig)
    for name in journals(disk):
        disk.remove(f"{layout.JOURNAL}/{name}")
    disk.truncate(path, after - 1)
    again = rig.reopened(confirmed_tx=3)
    with pytest.raises(CorruptBlock):
        again.read()


def test_a_moved_block_whose_own_rows_were_confirmed_is_damage() -> None:
    """The journal still has what was carried over, but not what was flushed with it."""
    disk = MemoryDisk()
    in_journal(disk, 1)
    rig = moving(disk)
    rig.write(2)
    path, _, after = last_write(disk, rig)
    disk.truncate(path, after - 1)
    with pytest.raises(CorruptBlock):
        rig.reopened(copy_of(disk), confirmed_tx=3).read_all()
    assert offsets(rig.reopened(copy_of(disk), confirmed_tx=3).read().rows) == rows_at(1)  # what lies before it
    assert rig.reopened(copy_of(disk), confirmed_tx=2).read_all() == rows_at(1)  # it may have been torn


# Copies of the journal.


@pytest.mark.parametrize("confirmed_tx", [0, 2], ids=["unconfirmed", "below G"])
def test_a_torn_copy_of_the_journal_loses_nothing(confirmed_tx: int) -> None:
    disk = MemoryDisk()
    rig = in_journal(disk, 1)
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    disk.crash_at_sync = disk.syncs + 1  # that of the copy
    with pytest.raises(Crashed):
        rig.store.abandon()
    crashed = copy_of(disk)
    old, new = journals(crashed)
    path = f"{layout.JOURNAL}/{new}"
    for size in range(0, crashed.size(path), 64):
        torn = copy_of(crashed)
        torn.truncate(path, size)
        again = Rig(torn, confirmed_tx=confirmed_tx)
        assert again.read_all() == rows_at(1)
        again.write(2)
        again.store.flush(demand=[1])
        assert again.reopened(confirmed_tx=confirmed_tx).read_all() == rows_at(1, 2)
    assert old in journals(crashed)


def test_a_copy_that_was_finished_is_needed() -> None:
    """When the old file is gone, a spoiled copy below G is damage and no tail to cut."""
    disk = MemoryDisk()
    rig = in_journal(disk, 1)
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    rig.store.abandon()
    (name,) = journals(disk)
    path = f"{layout.JOURNAL}/{name}"
    disk.truncate(path, disk.size(path) - 1)
    with pytest.raises(CorruptBlock):
        rig.reopened(confirmed_tx=2).read()


def crowded(disk: Disk, journal_bytes_max: int = 5_000) -> Rig:
    """A store whose journal is soon too long."""
    options = StoreOptions(
        buffer=BufferOptions(flush_age_seconds=NEVER_SECONDS),
        flush=FlushOptions(
            own_segment_bytes=2**40,
            journal_bytes_max=journal_bytes_max,
            journal_joined_bytes_max=journal_bytes_max,
            journal_file_bytes_max=journal_bytes_max // 4,
        ),
    )
    return Rig(disk, options)


def test_a_journal_that_is_too_long_is_emptied() -> None:
    disk = MemoryDisk()
    rig = crowded(disk)
    rig.create(2)
    for tx in range(1, 60):
        rig.write(tx, log=1 + tx % 2)
        rig.store.flush(demand=[1, 2])
        assert sum(disk.size(f"{layout.JOURNAL}/{name}") for name in journals(disk)) < 25_000
    for reader in (rig, rig.reopened()):
        assert sorted(reader.read_all() + reader.read_all(log=2)) == rows_at(*range(1, 60))


def stubborn(disk: Disk, *, log: int = 2) -> None:
    """Spoil the facts of a log that has rows in the journal: it cannot be opened, so it cannot be moved."""
    path = layout.log_facts(log)
    disk.truncate(path, 0)
    disk.append(path, [b"spoiled"])


def test_a_log_that_cannot_be_opened_stops_no_other_from_leaving_the_journal() -> None:
    """A9: the journal is too long, and one log in its oldest file has a fault of its own."""
    disk = MemoryDisk()
    rig = crowded(disk)
    rig.create(2)
    rig.write(1, log=2)
    rig.write(1)
    rig.store.flush(demand=[1, 2])
    stubborn(disk)
    again = crowded(disk)
    for tx in range(2, 40):
        again.write(tx)
        again.store.flush(demand=[1])
        assert again.durable() == LogOffset(tx, 1)
    for reader in (again, again.reopened()):
        assert reader.read_all() == rows_at(*range(1, 40))
        assert reader.store.logs.index.holds(2)  # and its rows are kept for whoever mends it


def test_the_old_file_of_a_copy_goes_though_other_blocks_were_written_with_it() -> None:
    """A file that is left behind brings back its open rows, beside those of the transaction that came again."""
    disk = MemoryDisk()
    rig = crowded(disk)
    for log in (2, 3, 4, 5):
        rig.create(log)
    for log in (2, 1, 3, 4, 5):
        rig.write(1, log=log)
    rig.store.flush_all()
    (oldest,) = journals(disk)
    stubborn(disk)
    again = crowded(disk)
    for tx in range(2, 60):
        again.write(tx)
        again.store.flush(demand=[1])
        if not disk.exists(f"{layout.JOURNAL}/{oldest}"):
            break
    assert not disk.exists(f"{layout.JOURNAL}/{oldest}")
    assert again.store.logs.index.holds(2)
    assert again.reopened().read_all() == rows_at(*range(1, tx + 1))


# Damage is one log's.


def test_a_journal_that_does_not_meet_the_segments_is_a_hole() -> None:
    disk = MemoryDisk()
    rig = moving(disk)
    rig.write(1)
    path, _, _ = last_write(disk, rig)
    in_journal(disk, 2)
    disk.remove(path)
    again = Rig(disk)
    again.create(2)
    with pytest.raises(Hole):
        again.read()
    with pytest.raises((LogPoisoned, SourceGap)):
        again.write(3, after=LogOffset(2, 1))
    again.write(3, log=2)
    assert again.read_all(log=2) == rows_at(3)


def test_damage_in_the_middle_stops_the_log_where_it_is() -> None:
    disk = MemoryDisk()
    rig = moving(disk)
    for tx in (1, 2, 3):
        rig.write(tx)
        path, before, _ = last_write(disk, rig)
        if tx == 2:
            position = before
    content = bytearray(disk.contents()[path])
    content[position] ^= 1
    disk.truncate(path, 0)
    disk.append(path, [content])
    again = rig.reopened()
    assert offsets(again.read().rows) == rows_at(1)
    with pytest.raises(CorruptBlock):
        again.read(LogOffset(1, 0))
    with pytest.raises(LogPoisoned):
        again.write(2)
    assert disk.contents()[path] == bytes(content)  # nothing is cut


@pytest.mark.parametrize("is_alone", [False, True], ids=["behind sound blocks", "alone in its segment"])
def test_what_the_journal_has_behind_the_damage_of_a_segment(is_alone: bool) -> None:
    """A journal file stays while another log needs it. A log is said to end where somebody who reads it comes to."""
    disk = MemoryDisk()
    own = tiny() if is_alone else to_segments()
    Rig(disk).create(2)
    for tx in (1, 3):
        rig = in_journal(disk, tx)
        rig.write(tx, log=2)
        rig.store.flush(demand=[2])
        rig = Rig(disk, own)
        rig.write(tx + 1)
        path, before, _ = last_write(disk, rig)
    assert (before == 0) is is_alone
    content = bytearray(disk.contents()[path])
    content[before + HEADER_SIZE + 64] ^= 1
    disk.truncate(path, 0)
    disk.append(path, [content])
    again = rig.reopened(confirmed_tx=9)
    assert isinstance(again.store.log(1).state.fault, CorruptBlock)
    found = offsets(again.read().rows)
    assert found == rows_at(*([1, 2, 3] if is_alone else [1, 2]))
    assert again.store.marks(1) == (LogOffset(found[-1].tx, 1), LogOffset(found[-1].tx, 1))
    with pytest.raises(CorruptBlock):
        again.read(found[-1])
    assert again.read_all(log=2) == rows_at(1, 3)


def test_a_lost_commit_below_g_is_damage() -> None:
    """It has no rows, and yet all rows of its transaction go with it."""
    rig = Rig(options=to_segments())
    rig.write(1)
    open_rows(rig, 2)
    rig.store.flush(demand=[1])
    rig.store.commit(1, LogOffset(2, 5))
    path, _, after = last_write(rig.disk, rig)  # type: ignore[arg-type]  # it is a MemoryDisk
    rig.disk.truncate(path, after - 1)
    for confirmed_tx in (3, 99):
        again = rig.reopened(copy_of(rig.disk), confirmed_tx=confirmed_tx)  # type: ignore[arg-type]  # the same
        assert offsets(again.read().rows) == rows_at(1)
        with pytest.raises(CorruptBlock):
            again.read(LogOffset(1, 0))
        assert b"2.0" in b"".join(again.disk.contents().values())  # type: ignore[attr-defined]  # the same
    assert rig.reopened(confirmed_tx=2).read_all() == rows_at(1)  # it may have been torn


# Leftovers.


def test_unfinished_files_are_removed() -> None:
    disk = MemoryDisk()
    rig = moving(disk)
    rig.write(1)
    rig.store.flush(demand=[1])
    for name in ("5.base.tmp", "log.json.tmp", f"{1:016x}_{0:016x}-{2:016x}_{0:016x}.1.segment.tmp"):
        disk.create(f"logs/1/{name}")
    leases = ["someone.lease", "someone.lease.tmp"]  # a reader in another process writes them
    for name in leases:
        disk.create(f"logs/1/{name}")
    again = rig.reopened()
    assert again.read_all() == rows_at(1)
    assert disk.names("logs/1") == [f"{1:016x}_{0:016x}.segment", "log.json", *leases]


def test_segments_that_a_compaction_replaced_are_removed() -> None:
    disk = MemoryDisk()
    rig = moving(disk)
    rig.write(1)
    path, _, _ = last_write(disk, rig)
    disk.link(path, f"logs/1/{1:016x}_{0:016x}-{1:016x}_{0:016x}.1.segment")
    again = rig.reopened()
    assert again.read_all() == rows_at(1)
    assert not disk.exists(path)


def test_a_segment_without_a_whole_block_is_removed_and_written_again() -> None:
    disk = MemoryDisk()
    rig = moving(disk)
    rig.write(1)
    path, _, _ = last_write(disk, rig)
    disk.truncate(path, HEADER_SIZE)
    again = rig.reopened()
    assert not disk.exists(path) or again.read_all() == []
    again.write(1)
    again.store.flush(demand=[1])
    assert again.reopened().read_all() == rows_at(1)


def test_journal_files_that_nobody_needs_are_removed() -> None:
    disk = MemoryDisk()
    rig = in_journal(disk, 1)
    rig.store.remove_log(1)
    assert len(journals(disk)) == 1
    Rig(disk)
    Rig(disk)
    assert disk.contents().keys() == {"logs/1/log.json"} | {f"journal/{name}" for name in journals(disk)}


# Repairs and faults.


@pytest.mark.parametrize("size", [0, 3])
def test_a_repair_may_be_repeated(size: int) -> None:
    disk = MemoryDisk()
    disk.create("file")
    disk.append("file", [b"12345"])
    for _ in range(2):
        Repair("file", size).run(disk)
        assert disk.contents() == ({"file": b"123"} if size else {})


FAULTS: list[Callable[[Rig], None]] = [
    lambda rig: rig.store.remove_log(1),
    lambda rig: rig.store.abandon(),
]


@pytest.mark.parametrize("end", FAULTS, ids=["removed", "abandoned"])
def test_when_nothing_is_left_to_write_writing_pauses_no_longer(end: Callable[[Rig], None]) -> None:
    """Else nobody would ever find out that the disk works, and a flusher would look for work without a pause."""
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk)
    open_rows(rig, 1)
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC)))
    rig.store.flush(demand=[1])
    assert rig.is_paused()
    end(rig)
    rig.clock.seconds += FAULT_RETRY_SECONDS
    assert rig.store.next_flush_at() is None
    assert rig.store.flush() == []
    assert not rig.is_paused()


def test_while_writing_pauses_the_next_try_is_not_due() -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, to_journal(flush_age_seconds=0.1))
    rig.write(1)
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC)))
    rig.clock.seconds += 1
    rig.store.flush()
    assert rig.store.next_flush_at() == rig.clock.seconds + FAULT_RETRY_SECONDS
    assert rig.store.begin_flush() is None


@pytest.mark.parametrize("operation", ["read", "names"])
def test_a_disk_that_cannot_be_read_has_a_name(operation: Operation) -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk, to_segments())
    rig.write(1)
    rig.store.flush(demand=[1])
    again = rig.reopened()
    disk.plan = Script(Rule(operation, Fault(errno.EIO), "logs/1*", calls=None))
    with pytest.raises(SharedDiskFault):
        again.read()
    disk.plan = NoFaults()
    assert again.read_all() == rows_at(1)


def test_an_empty_folder_is_an_empty_store() -> None:
    disk = MemoryDisk()
    index = Rig(disk).store.logs.index
    recover_journal(disk, index, Found(), confirmed_tx=0, written_at=0)
    assert list(index.logs()) == []
    assert index.size == 0
    assert Rig(disk).read_all() == []
    assert Rig(disk).upper() == SNAPSHOT_END
