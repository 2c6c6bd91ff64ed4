"""Record logs: what was acknowledged is there, whatever the disk did; readers see that and nothing else."""

import errno
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk import LocalDisk, folder_of
from storage.errors import CorruptRecord, Misuse, SharedDiskFault
from storage.faulty_disk import Fault, FaultyDisk, Odds, Rule, Script
from storage.limits import RECORD_BYTES_MAX
from storage.memory_disk import MemoryDisk, in_runs
from storage.record_frame import FRAME_SIZE
from storage.record_log import RecordLog, RecordLogReader

FIRST, SECOND = "log.000001", "log.000002"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def failing(disk: MemoryDisk, *rules: Rule) -> FaultyDisk:
    return FaultyDisk(disk, Script(*rules))


def test_records_are_there_again_in_order(disk: MemoryDisk) -> None:
    log = RecordLog(disk, "log")
    log.append([b"a", b""])
    log.append([])
    log.append([b"b"])
    assert log.read() == [b"a", b"", b"b"]
    assert RecordLog(disk, "log").read() == [b"a", b"", b"b"]


def test_one_append_is_one_sync(disk: MemoryDisk) -> None:
    log = RecordLog(disk, "log")
    before = disk.syncs
    log.append([b"a", b"b", b"c"])
    assert disk.syncs == before + 1


def test_two_logs_of_one_folder_leave_each_other_alone(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    disk.create("log.notes")
    disk.create("log.000001.old")
    RecordLog(disk, "log.b").append([b"b"])
    RecordLog(disk, "log").rewrite([b"c"])
    assert RecordLog(disk, "log").read() == [b"c"]
    assert RecordLog(disk, "log.b").read() == [b"b"]
    assert disk.names("") == ["log.000001.old", SECOND, "log.b.000001", "log.notes"]


def test_a_rewrite_replaces_all_and_leaves_one_file(disk: MemoryDisk) -> None:
    log = RecordLog(disk, "log")
    log.append([b"a", b"b"])
    log.rewrite([b"b"])
    log.append([b"c"])
    assert disk.names("") == [SECOND]
    assert RecordLog(disk, "log").read() == [b"b", b"c"]


def test_a_log_is_long_again_when_it_has_doubled(disk: MemoryDisk) -> None:
    log = RecordLog(disk, "log", bytes_max=200)

    def size_when_long() -> int:
        while not log.is_long:
            log.append([b"0123456789"])
        return log.size

    assert 200 < size_when_long() < 400
    log.rewrite(log.read())
    size = log.size
    assert size_when_long() > 2 * size


def test_leftovers_are_removed(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    disk.create("log.000007.tmp")
    assert RecordLog(disk, "log").read() == [b"a"]
    assert disk.names("") == [FIRST]


def test_a_torn_tail_is_left_behind(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    disk.append(FIRST, [b"torn"])
    log = RecordLog(disk, "log")
    assert disk.names("") == [SECOND]
    log.append([b"b"])
    assert RecordLog(disk, "log").read() == [b"a", b"b"]


def test_opening_a_sound_log_writes_nothing(disk: MemoryDisk) -> None:
    """So that a full disk can be opened."""
    RecordLog(disk, "log").append([b"a"])
    full = [Rule(operation, Fault(errno.ENOSPC), calls=None) for operation in ("create", "append", "sync", "rename")]
    assert RecordLog(failing(disk, *full), "log").read() == [b"a"]


def test_a_record_that_no_mark_proves_is_written_again(disk: MemoryDisk) -> None:
    """Its writer may have died of a failed sync: the bytes are readable, and on no disk."""
    faulty = failing(disk, Rule("sync", Fault(), path=FIRST))
    with pytest.raises(SharedDiskFault):
        RecordLog(faulty, "log").append([b"a"])
    assert RecordLog(faulty, "log").read() == [b"a"]
    image = disk.crash_image(lambda _: 0)
    assert RecordLog(image, "log").read() == [b"a"]


@pytest.mark.parametrize("appended", [0, 10, None])
def test_after_a_failed_write_another_file_is_written(disk: MemoryDisk, appended: int | None) -> None:
    fault = Fault(errno.ENOSPC, happens=True, appended=appended)
    log = RecordLog(failing(disk, Rule("append", fault, path=FIRST, first=3)), "log")
    log.append([b"a"])
    with pytest.raises(SharedDiskFault, match="No space") as raised:
        log.append([b"b"])
    assert raised.value.facts["errno"] == "ENOSPC"
    assert log.read() == [b"a"]
    log.append([b"c"])
    assert disk.names("") == [SECOND]
    assert RecordLog(disk, "log").read() == [b"a", b"c"]


def test_after_a_failed_sync_another_file_is_written(disk: MemoryDisk) -> None:
    log = RecordLog(failing(disk, Rule("sync", Fault(), path=FIRST)), "log")
    with pytest.raises(SharedDiskFault):
        log.append([b"a"])
    assert log.read() == []
    log.append([b"b"])
    assert disk.names("") == [SECOND]
    assert RecordLog(disk.crash_image(lambda _: 0), "log").read() == [b"b"]


def test_a_mark_that_fails_is_not_the_callers_concern(disk: MemoryDisk) -> None:
    log = RecordLog(failing(disk, Rule("append", Fault(errno.ENOSPC, True, 7), path=FIRST, first=2)), "log")
    log.append([b"a"])
    reader = RecordLogReader(disk, "log")
    assert reader.refresh().records == []
    log.append([b"b"])
    assert reader.refresh().records == [b"a", b"b"]
    assert RecordLog(disk, "log").read() == [b"a", b"b"]


def test_a_failed_rewrite_leaves_the_log_as_it_was(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    log = RecordLog(failing(disk, Rule("append", Fault(errno.ENOSPC, True, 3), path="*.tmp")), "log")
    with pytest.raises(SharedDiskFault):
        log.rewrite([b"b"])
    assert disk.names("") == [FIRST]
    log.append([b"c"])
    assert RecordLog(disk, "log").read() == [b"a", b"c"]


def test_damage_is_told(disk: MemoryDisk) -> None:
    log = RecordLog(disk, "log")
    log.append([b"first"])
    log.append([b"second"])
    content = disk.read(FIRST, 0, 10_000)
    disk.truncate(FIRST, 0)
    disk.append(FIRST, [content.replace(b"first", b"fir5t")])
    with pytest.raises(CorruptRecord):
        RecordLog(disk, "log")
    with pytest.raises(CorruptRecord):
        RecordLogReader(disk, "log").refresh()


def test_a_file_without_its_beginning_is_damaged(disk: MemoryDisk) -> None:
    reader = RecordLogReader(disk, "log")
    RecordLog(disk, "log").append([b"a"])
    reader.refresh()
    disk.truncate(FIRST, 0)
    with pytest.raises(CorruptRecord, match="beginning"):
        RecordLog(disk, "log")
    with pytest.raises(CorruptRecord, match="lost records"):
        reader.refresh()
    assert disk.exists(FIRST)


def test_a_record_has_a_greatest_size(disk: MemoryDisk) -> None:
    with pytest.raises(Misuse, match="above the limit"):
        RecordLog(disk, "log").append([bytes(RECORD_BYTES_MAX + 1)])


def test_a_reader_sees_what_is_new(disk: MemoryDisk) -> None:
    reader = RecordLogReader(disk, "log")
    assert (reader.refresh().restarted, reader.refresh().records) == (False, [])
    log = RecordLog(disk, "log")
    log.append([b"a"])
    first = reader.refresh()
    assert (first.restarted, first.records) == (True, [b"a"])
    log.append([b"b", b"c"])
    second = reader.refresh()
    assert (second.restarted, second.records) == (False, [b"b", b"c"])
    log.rewrite([b"c"])
    third = reader.refresh()
    assert (third.restarted, third.records) == (True, [b"c"])
    reader.restart()
    assert reader.refresh() == third


def test_a_reader_does_not_see_what_is_not_synced(disk: MemoryDisk) -> None:
    reader = RecordLogReader(disk, "log")
    log = RecordLog(failing(disk, Rule("sync", Fault(), path=FIRST, first=2)), "log")
    log.append([b"a"])
    with pytest.raises(SharedDiskFault):
        log.append([b"b"])
    assert reader.refresh().records == [b"a"]


def test_a_reader_sees_a_record_when_its_mark_comes(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    content = disk.read(FIRST, 0, 10_000)
    reader, seen = RecordLogReader(disk, "log"), list[bytes]()
    for size in range(FRAME_SIZE, len(content) + 1):  # as if it looked while each byte was written
        disk.truncate(FIRST, 0)
        disk.append(FIRST, [content[:size]])
        seen += reader.refresh().records
        assert seen == ([b"a"] if size == len(content) else [])


def test_a_reader_with_open_files_follows_a_rewrite(tmp_path: Path) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk, folder_of(LocalDisk(tmp_path)) as other:
        log = RecordLog(disk, "log")
        log.append([b"a"])
        reader = RecordLogReader(other, "log")
        assert reader.refresh().records == [b"a"]
        log.rewrite([b"b", b"c"])
        log.append([b"d"])
        assert reader.refresh().records == [b"b", b"c", b"d"]


def test_a_reader_that_meets_a_replaced_file_looks_again(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    gone = Fault(errno.ENOENT)
    reader = RecordLogReader(failing(disk, Rule("read", gone), Rule("names", gone, first=2)), "log")
    assert reader.refresh().records == [b"a"]
    always = RecordLogReader(failing(disk, Rule("read", gone, calls=None)), "log")
    assert always.refresh().records == []
    broken = RecordLogReader(failing(disk, Rule("read", Fault())), "log")
    with pytest.raises(SharedDiskFault):
        broken.refresh()


@dataclass
class Story:
    """A log on a bad disk, restarts and power cuts, and what may be believed of it.

    Strategy: every call may fail, and a failed one may have happened. The model is the list of what was acknowledged
    and the attempts since that failed, each of which may have left a first part of itself.
    """

    random: Random
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    acknowledged: list[bytes] = field(default_factory=list)
    attempts: list[list[bytes]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.faulty = self.faulty_disk()
        self.log: RecordLog | None = None
        self.reader, self.seen = RecordLogReader(self.disk, "log"), list[bytes]()

    def faulty_disk(self) -> FaultyDisk:
        odds = Odds(self.random, change_fails=0.1, sync_fails=0.1, read_fails=0.02, calls_max=3)
        return FaultyDisk(self.disk, odds)

    def believe(self, records: list[bytes]) -> None:
        """What a new process finds is what was acknowledged and a part of an attempt; from then on it counts."""
        count = len(self.acknowledged)
        assert records[:count] == self.acknowledged
        rest = records[count:]
        assert any(rest == attempt[: len(rest)] for attempt in [[], *self.attempts])
        self.acknowledged, self.attempts = list(records), []

    def open(self) -> None:
        try:
            self.log = RecordLog(self.faulty, "log")
        except SharedDiskFault:
            self.log = None
        else:
            self.believe(self.records())

    def records(self) -> list[bytes]:
        """What the log says of itself; reading it is not what is tried here."""
        assert self.log is not None
        self.faulty.healthy, healthy = True, self.faulty.healthy
        records = self.log.read()
        self.faulty.healthy = healthy
        return records

    def append(self) -> None:
        assert self.log is not None
        # Some fill a sector, so that a crash can take one of an append and leave the next.
        size = self.random.choice([6, 512 - FRAME_SIZE])
        records = [b"%06d" % (self.count + index) * (size // 6) for index in range(self.random.randrange(1, 4))]
        self.count += len(records)
        try:
            self.log.append(records)
        except SharedDiskFault:
            self.attempts.append(records)
        else:
            self.acknowledged += records
            self.attempts = []
        assert self.records() == self.acknowledged

    def rewrite(self) -> None:
        assert self.log is not None
        try:
            self.log.rewrite(self.acknowledged)
        except SharedDiskFault:
            pass
        else:
            self.attempts = []
        assert self.records() == self.acknowledged

    def cut_power(self) -> None:
        self.disk = self.disk.crash_image(in_runs(self.random.randrange))
        self.faulty, self.log = self.faulty_disk(), None
        self.reader, self.seen = RecordLogReader(self.disk, "log"), []

    def read(self) -> None:
        fresh = self.reader.refresh()
        self.seen = fresh.records if fresh.restarted else self.seen + fresh.records
        # Of an opening that failed, the records it had begun to write again may be seen: they are on the disk.
        possible = [self.acknowledged, *([self.acknowledged + some for some in self.attempts] if not self.log else [])]
        assert any(self.seen == records[: len(self.seen)] for records in possible)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.log is None:
                self.open()
            else:
                step = self.random.choices([self.append, self.rewrite, self.open, self.cut_power], [12, 2, 2, 1])[0]
                step()
            self.read()
        self.faulty.healthy = True
        if self.log is None:
            self.open()
        self.append()
        self.read()
        assert self.seen == self.acknowledged == RecordLog(self.disk, "log").read()


def test_what_the_opening_read_is_not_all_for_ever(disk: MemoryDisk) -> None:
    RecordLog(disk, "log").append([b"a"])
    log = RecordLog(disk, "log")
    log.append([b"b"])
    assert log.read() == [b"a", b"b"]
    log = RecordLog(disk, "log")
    log.rewrite([b"c"])
    assert log.read() == [b"c"]


def test_records_that_vanished_are_told(disk: MemoryDisk) -> None:
    """Before what is left is written again as if it were all."""
    log = RecordLog(failing(disk, Rule("append", Fault(), path=FIRST, first=5)), "log")
    log.append([b"a"])
    size = log.size
    log.append([b"b"])
    with pytest.raises(SharedDiskFault):
        log.append([b"c"])
    disk.truncate(FIRST, size)
    for ask in (log.read, lambda: log.append([b"c"])):
        with pytest.raises(CorruptRecord, match="lost records"):
            ask()


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_what_was_acknowledged_survives_a_bad_disk(seed: int, steps: int) -> None:
    Story(Random(seed)).run(steps)
