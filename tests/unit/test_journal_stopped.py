"""What stopped logs have in the journal, and what cannot be read of it, keeps nobody else's rows there.

One log's rows in the oldest file rot, or a file vanishes. The others go on, the journal stays within its bounds, and
whoever looks next, in whatever process, is told of the rows that are gone.
"""

from dataclasses import replace

import pytest

from storage import layout
from storage.errors import CorruptBlock, FileVanished, Hole, LogFault
from storage.flush_control import FlushOptions
from storage.folder_reader import FolderReader
from storage.memory_disk import MemoryDisk, luckiest, strictest
from storage.metrics import Metric
from storage.offset import LogOffset
from tests.crash.harness import Acknowledge, for_each_crash
from tests.unit.builders import Rig
from tests.unit.test_journal_damage import read_on, spoiled
from tests.unit.test_journal_join import spoil, written

FILE_BYTES = 5_000
JOURNAL_BYTES = 20_000
SMALL = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=JOURNAL_BYTES, journal_file_bytes_max=FILE_BYTES)
OF_BOTH = {1: "rows", 2: "wide"}
"""In parts of their own, since their columns differ."""


def going_on(disk: MemoryDisk, rig: Rig) -> Rig:
    return Rig(disk, replace(rig.options, flush=SMALL), mode=rig.mode)


def write_on(rig: Rig, log: int, transactions: int) -> int:
    """Some flushes of one log; how much they and those before them had in the journal at most."""
    most = 0
    for _ in range(transactions):
        rig.write(rig.upper(log).tx + 10, log=log)
        rig.clock.seconds += 10
        rig.store.flush(demand=[log])
        assert rig.store.fault is None
        while rig.store.flush():
            pass
        most = max(most, sum(file.size for file in rig.store.logs.index.young_files.values()))
    return most


def rotten() -> tuple[MemoryDisk, Rig]:
    """Six flushes of two logs; some rows of the first cannot be read."""
    rig = written([OF_BOTH] * 6)
    spoil(rig, 1, b"20.0")
    assert isinstance(rig.disk, MemoryDisk)
    return rig.disk, rig


def test_rows_that_cannot_be_read_do_not_keep_the_journal_long() -> None:
    disk, rig = rotten()
    again = going_on(disk, rig)
    assert write_on(again, 2, 80) < 2 * JOURNAL_BYTES
    assert isinstance(again.store.log(1).state.fault, CorruptBlock)
    assert not disk.exists(layout.journal_path(1))
    assert disk.exists(layout.damaged_journal_path(1)), "for whoever wants to look"
    assert again.store.gauges()[Metric.LOGS_IN_DOUBT] == 1
    assert len(again.read_all(log=2)) == 12 + 80
    other = FolderReader(disk, pause=lambda _: None)
    for reader in (again, other, going_on(disk, rig), going_on(disk.crash_image(strictest), rig)):
        found, fault = read_on(reader, 1)
        assert found == [10], "what can be read of it stays"
        assert fault in (CorruptBlock, Hole)
        assert read_on(reader, 2)[1] is None


def test_all_of_a_file_may_be_unreadable() -> None:
    rig = written([{1: "rows"}, {2: "rows"}], file_bytes_max=1)
    disk = rig.disk
    assert isinstance(disk, MemoryDisk)
    again = going_on(disk, rig)
    assert again.read_all() == [LogOffset(10, 0)]
    path = layout.journal_path(1)
    spoiled(disk, path, disk.contents()[path].index(b"10.0"))
    assert write_on(again, 2, 80) < 2 * JOURNAL_BYTES
    assert read_on(again, 1) == ([], CorruptBlock)
    assert read_on(going_on(disk, rig), 1) == ([], CorruptBlock)


def test_a_stopped_log_keeps_no_files_of_others() -> None:
    """All of its rows can be read, and they are most of the oldest file."""
    rig = written([dict.fromkeys((1, 3), "rows"), OF_BOTH])
    disk = rig.disk
    assert isinstance(disk, MemoryDisk)
    again = going_on(disk, rig)
    for log in (1, 3):
        again.store.log(log).state.poison(CorruptBlock("for a test"))
    assert write_on(again, 2, 80) < 2 * JOURNAL_BYTES
    assert not disk.exists(layout.journal_path(1))
    assert not [name for name in disk.names(layout.JOURNAL) if name.endswith((".damaged", ".doubts"))]
    assert read_on(going_on(disk, rig), 3)[0] == [10, 10, 10]


def test_joined_files_of_stopped_logs_are_passed_by() -> None:
    rig = written([dict.fromkeys((1, 2, 3), "rows")] * 3)
    disk = rig.disk
    assert isinstance(disk, MemoryDisk)
    files = replace(SMALL, journal_bytes_max=8_000, journal_joined_bytes_max=12_000, journal_file_bytes_max=3_000)
    again = Rig(disk, replace(rig.options, flush=files), mode=rig.mode)
    while not again.store.logs.index.joined_files or again.store.logs.index.young_files.get(1):
        write_on(again, 3, 1)
    again.store.log(1).state.poison(CorruptBlock("for a test"))
    write_on(again, 3, 100)
    assert again.store.logs.index.size < 3 * 12_000
    assert again.store.log(3).files.segments, "what was joined moved on"


def test_a_journal_file_that_vanished_stops_the_logs_that_it_had() -> None:
    """The others go on: it is no fault of the disk, and waiting would not bring it back."""
    rig = written([OF_BOTH] * 6, file_bytes_max=1)
    disk = rig.disk
    assert isinstance(disk, MemoryDisk)
    again = going_on(disk, rig)
    assert again.store.log(1).state.fault is None
    disk.remove(layout.journal_path(3))
    assert write_on(again, 3, 80) < 2 * JOURNAL_BYTES
    for log in (1, 2):
        fault = again.store.log(log).state.fault
        assert isinstance(fault, FileVanished)
        assert layout.journal_path(3) in str(fault), "the file that is missing, and not one that is there"
    assert len(again.read_all(log=3)) == 80


def test_a_crash_while_they_are_put_aside_changes_nothing() -> None:
    start, rig = rotten()

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[int]) -> None:
        again = going_on(disk, rig)
        while disk.exists(layout.journal_path(1)):
            write_on(again, 2, 1)
            acknowledge(again.durable(2).tx)

    def check(disk: MemoryDisk, acknowledged: list[int]) -> None:
        for found in (going_on(disk, rig), FolderReader(disk, pause=lambda _: None), going_on(disk, rig)):
            last, fault = read_on(found, 2)
            assert fault is None
            assert last[-1] >= max(acknowledged, default=60)
            told, fault = read_on(found, 1)
            assert told == [10]
            assert fault is not None
            assert issubclass(fault, LogFault)

    assert for_each_crash(scenario, check, images=1, place="syncs", disk=lambda: start.crash_image(luckiest)) > 30


@pytest.mark.parametrize("log", [1, 3])
def test_who_reads_meanwhile_hears_of_no_file(log: int) -> None:
    """A file is put aside under the eyes of readers in this process and in others."""
    disk, rig = rotten()
    again = going_on(disk, rig)
    other = FolderReader(disk, pause=lambda _: None)
    while disk.exists(layout.journal_path(1)):
        for reader in (again, other):
            assert read_on(reader, log)[1] in ((CorruptBlock, Hole) if log == 1 else (None,))
        write_on(again, 2, 1)
    assert read_on(other, 1)[0] == [10]
