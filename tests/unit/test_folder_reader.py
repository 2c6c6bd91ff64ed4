"""A reader in another process, which shares nothing with the writer but the folder.

Strategy: the reader's disk lets the writer do something (flush, abandon and replay, empty its journal, compact,
retire, restart, ...) between any two of the reader's own operations, once at each place; and the writer's disk lets
readers look between any two of its operations, also in the middle of a write. Invariants:

    what is read is a whole number of transactions, from the first one on, without a gap; and more each time
    what was on disk before a read began is read
    a reader that was there before sees the same as a new one
"""

import contextlib
import copy
import errno
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from storage.compaction import CompactionOptions, compact
from storage.disk import Bytes, Disk, LocalDisk, folder_of
from storage.errors import (
    AboveUpper,
    CorruptBlock,
    FileVanished,
    Misuse,
    Refetch,
    SharedDiskFault,
    StorageError,
    UnknownLog,
)
from storage.faulty_disk import Fault, FaultyDisk, Operation, Rule, Script
from storage.flush_control import FlushOptions
from storage.folder_reader import FolderReader
from storage.limits import READ_ATTEMPTS_MAX
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadSource
from storage.retention import RetentionPolicy, fold_prefix, retire
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.unit.builders import NEVER_SECONDS, Rig, offsets, rows, transaction
from tests.unit.hooked_disk import Once, hooked

NOW = 1_000_000
EVERYTHING = 10**9


def options(own_segment_bytes: int = 3000, journal_bytes_max: int = 9000) -> StoreOptions:
    """Small enough for some flushes to move everything there is."""
    return StoreOptions(
        buffer=BufferOptions(flush_age_seconds=NEVER_SECONDS),
        flush=FlushOptions(
            own_segment_bytes=own_segment_bytes,
            segment_bytes_max=5000,
            journal_bytes_max=journal_bytes_max,
            journal_file_bytes_max=3000,
            fault_retry_seconds=0.0,
        ),
    )


class Writer:
    """A writer of two logs, and what is on the disk of the first one."""

    def __init__(
        self, disk: Disk | None = None, own_segment_bytes: int = 3000, *, journal_bytes_max: int = 9000
    ) -> None:
        self.rig = Rig(disk, options(own_segment_bytes, journal_bytes_max), key_columns=("id",))
        if not self.rig.disk.exists("logs/2/log.json"):
            self.rig.create(2)
        self.tx = 0
        self.appended: list[LogOffset] = []
        self.on_disk: list[LogOffset] = []
        self.ends = [SNAPSHOT_END]

    def append(self, *, count: int = 3, text: str = "") -> None:
        """A whole transaction, in memory."""
        self.tx += 10
        self.rig.write(self.tx, count, text=text)
        self.appended += transaction(self.tx, count)
        self.ends.append(LogOffset.aligned(self.tx, count))

    def flush(self) -> None:
        self.rig.store.flush(demand=[1])
        self.on_disk = list(self.appended)

    def small(self, count: int = 3) -> None:
        self.append(count=count)
        self.flush()

    def large(self) -> None:
        self.append(text="x" * 2000)
        self.flush()

    def small_ones(self) -> None:
        for _ in range(12):
            self.small()

    def large_ones(self) -> None:
        for _ in range(5):
            self.large()

    def begin(self, *, text: str = "") -> None:
        """Rows of a transaction whose end does not come yet, on disk."""
        batch = rows(transaction(self.tx + 10, 2), text=text)
        self.rig.store.append(1, batch, after=self.rig.upper())
        self.rig.store.flush(demand=[1])

    def begin_large(self) -> None:
        self.begin(text="x" * 3000)

    def abandon_and_replay(self) -> None:
        """What was begun ends here with other rows: another connection's transaction may be another one."""
        self.rig.store.abandon()
        self.small(count=1)
        self.small()

    def abandon_and_replay_large(self) -> None:
        self.rig.store.abandon()
        self.large()
        self.small()

    def end(self) -> None:
        """The transaction that was begun ends."""
        self.tx += 10
        self.rig.store.commit(1, LogOffset.aligned(self.tx, 2))
        self.appended += transaction(self.tx, 2)
        self.ends.append(LogOffset.aligned(self.tx, 2))
        self.flush()

    def restart(self) -> None:
        self.rig.store.flush_all()
        self.rig = self.rig.reopened()

    def restart_and_write(self) -> None:
        self.restart()
        self.small_ones()

    def compact(self) -> None:
        kept = CompactionOptions(segments_kept=1, block_bytes=1000)
        assert compact(self.rig.store, 1, now=NOW, options=kept) is not None

    def fail_and_write_again(self) -> None:
        """A block that was there, read by whoever looked, and cut off again; the rows come in another one."""
        disk = self.rig.disk
        assert isinstance(disk, FaultyDisk)
        disk.plan = Script(Rule("sync", Fault(errno.EIO, happens=True)))
        self.append()
        self.rig.store.flush(demand=[1])
        assert disk.log
        self.append()
        self.flush()

    def retire(self) -> None:
        assert fold_prefix(self.rig.store, 1, RetentionPolicy(bytes_max=0), now=NOW) is not None
        assert retire(self.rig.store, 1, now=NOW) > 1

    def remove(self) -> None:
        self.rig.store.remove_log(1)


Action = Callable[[Writer], None]

STARTS: dict[str, list[Action]] = {
    "nothing": [],
    "journal": [Writer.small, Writer.small],
    "segments": [Writer.large, Writer.large, Writer.large],
    "both": [Writer.large, Writer.large, Writer.small, Writer.small],
}
STEPS: dict[str, Action] = {
    "small flush": Writer.small,
    "large flush": Writer.large,
    "journal emptied": Writer.small_ones,
    "segments closed": Writer.large_ones,
    "restarted": Writer.restart_and_write,
    "failed": Writer.fail_and_write_again,
}
OPEN: dict[str, tuple[Action, Action]] = {
    "journal": (Writer.begin, Writer.abandon_and_replay),
    "segment": (Writer.begin_large, Writer.abandon_and_replay_large),
    "journal, then segment": (Writer.begin, Writer.abandon_and_replay_large),
    "segment, then journal": (Writer.begin_large, Writer.abandon_and_replay),
    "journal, ended": (Writer.begin, Writer.end),
    "segment, ended": (Writer.begin_large, Writer.end),
}


def check(reader: FolderReader, writer: Writer, known: int, *, max_bytes: int | None = EVERYTHING) -> int:
    """The invariants at the head of this file; how many rows were read."""
    found: list[LogOffset] = []
    after = SNAPSHOT_END
    while True:
        result = reader.read(1, after, max_bytes)
        found += offsets(result.rows)
        if result.at_end:
            break
        after = result.next
    assert found == writer.appended[: len(found)]
    assert len(found) >= known
    assert result.visible in writer.ends
    assert [row for row in writer.appended if row <= result.visible] == found
    return len(found)


def read_while(start: list[Action], action: Action, *, is_new: bool, faulty: bool = False) -> int:
    """Let the action happen at each place within a read; how many places there were."""
    for place in range(1, 1000):
        inner = MemoryDisk()
        disk = FaultyDisk(inner, Script()) if faulty else inner
        writer = Writer(disk)
        for step in start:
            step(writer)
        hook = Once(place, partial(action, writer))
        reader = FolderReader(hooked(inner, hook))
        if not is_new:
            check(reader, writer, len(writer.on_disk))
        known = len(writer.on_disk)
        hook.armed = True
        read = check(reader, writer, known)
        hook.armed = False
        assert check(reader, writer, len(writer.on_disk)) >= read
        assert check(FolderReader(inner), writer, len(writer.on_disk), max_bytes=300) == len(writer.on_disk)
        if not hook.came:
            return place
    raise AssertionError("a read has fewer operations than that")


# The writer moves while a reader reads.

NEW = pytest.mark.parametrize("is_new", [True, False], ids=["new", "there before"])


@NEW
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_the_writer_moves_on_within_a_read(start: list[Action], step: Action, is_new: bool) -> None:
    assert read_while(start, step, is_new=is_new, faulty=step is Writer.fail_and_write_again) > 2


@NEW
@pytest.mark.parametrize(("begin", "go_on"), OPEN.values(), ids=OPEN)
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_transaction_is_begun_again_or_ends_within_a_read(
    start: list[Action], begin: Action, go_on: Action, is_new: bool
) -> None:
    assert read_while([*start, begin], go_on, is_new=is_new) > 2


@NEW
def test_segments_are_compacted_within_a_read(is_new: bool) -> None:
    """Every row is an INSERT, so nothing is folded, but the files are others."""
    assert read_while([Writer.large_ones], Writer.compact, is_new=is_new) > 2


def test_segments_are_retired_within_a_read() -> None:
    """Whoever was below the floor is sent to the base, and all others read on."""
    for place in range(1, 1000):
        inner = MemoryDisk()
        writer = Writer(inner)
        writer.large_ones()
        hook = Once(place, writer.retire)
        reader = FolderReader(hooked(inner, hook))
        after = writer.ends[-2]
        assert offsets(reader.read(1, after, EVERYTHING).rows) == writer.appended[-3:]
        hook.armed = True
        with contextlib.suppress(Refetch):
            check(reader, writer, len(writer.on_disk))
        hook.armed = False
        if not hook.came:
            writer.retire()
            break
    base = reader.bases(1)[0]
    with pytest.raises(Refetch) as refetch:
        reader.read(1, SNAPSHOT_END)
    assert refetch.value.facts["base"] == base.number
    assert offsets(reader.read(1, base.floor, EVERYTHING).rows) == [row for row in writer.appended if row > base.floor]


def test_a_log_is_removed_within_a_read() -> None:
    for start in STARTS.values():
        for place in range(1, 1000):
            inner = MemoryDisk()
            writer = Writer(inner)
            for step in start:
                step(writer)
            hook = Once(place, writer.remove, armed=True)
            with contextlib.suppress(UnknownLog):
                check(FolderReader(hooked(inner, hook)), writer, len(writer.on_disk))
            if not hook.came:
                break
            with pytest.raises(UnknownLog):
                FolderReader(inner).read(1, SNAPSHOT_END)


def test_a_log_is_read_while_it_is_removed() -> None:
    """It is there, or it is no log; nobody is told that a file is missing."""
    looks: list[bool] = []

    def look(operation: str, path: str) -> None:
        if is_removing:
            for reader in (before, FolderReader(inner)):
                try:
                    check(reader, writer, len(writer.on_disk))
                    looks.append(True)
                except UnknownLog:
                    looks.append(False)

    is_removing = False
    inner = MemoryDisk()
    writer = Writer(hooked(inner, look))
    for step in STARTS["both"]:
        step(writer)
    before = FolderReader(inner)
    check(before, writer, len(writer.on_disk))
    is_removing = True
    writer.remove()
    assert True in looks
    assert looks == sorted(looks, reverse=True)
    assert looks.count(False) > 6


# What a read costs.


@pytest.mark.parametrize("own_segment_bytes", [3000, 2**40], ids=["with segments", "in the journal"])
def test_a_read_of_a_quiet_log_looks_into_no_file_that_it_knows(own_segment_bytes: int) -> None:
    """However many files the journal has: each costs a stamp, and only what has grown is read."""
    calls: Counter[str] = Counter()
    inner = MemoryDisk()
    writer = Writer(inner, own_segment_bytes, journal_bytes_max=2**40)
    reader = FolderReader(hooked(inner, lambda operation, path: calls.update([f"{operation} {path.split('/')[0]}"])))
    if own_segment_bytes == 3000:
        writer.large_ones()
    for log in range(3, 60):
        writer.rig.create(log)
        writer.rig.write(1, log=log, text="x" * 900)
        writer.rig.store.flush(demand=[log])
    writer.small_ones()
    check(reader, writer, len(writer.on_disk))
    assert len(inner.names("journal")) > 20

    def cost(after: LogOffset) -> Counter[str]:
        calls.clear()
        reader.read(1, after)
        return Counter(calls)

    end = writer.ends[-1]
    segment = Counter[str]({"stamp logs": 2}) if own_segment_bytes == 3000 else Counter[str]()
    own = Counter({"names logs": 2, "read logs": 1}) + segment

    def journal() -> Counter[str]:
        return Counter({"names journal": 1, "stamp journal": len(inner.names("journal"))})

    assert cost(writer.ends[-1]) == journal() + own
    end = writer.ends[-1]
    writer.small()
    grown = cost(end)
    assert grown["read journal"] + grown["read_buffer journal"] <= 10, "the block before, the new one, and its end"
    assert cost(writer.ends[-1]) == journal() + own


def test_a_file_that_is_another_one_under_a_known_name_is_looked_into() -> None:
    """Numbers begin anew where a writer starts with an empty journal, and a block may be as long as another was."""
    inner = MemoryDisk()
    writer = Writer(inner)
    reader = FolderReader(inner)
    writer.small()
    assert check(reader, writer, 3) == 3
    known = inner.names("journal")
    writer.large()  # its segment takes along what the journal has
    writer.restart()
    writer.large()
    assert not inner.names("journal")
    gone = FolderReader(inner)
    gone._journal, gone._names = copy.deepcopy(reader._journal), known
    assert gone._journal.files
    assert gone.upper(1) == writer.ends[-1]
    assert not gone._journal.files, "nothing is kept of what is not there any more"
    writer.restart()
    writer.small()
    assert inner.names("journal") == known
    assert check(reader, writer, len(writer.on_disk)) == len(writer.on_disk)


def test_what_was_cut_or_emptied_under_a_known_name_is_noticed() -> None:
    """Only what was written and not synced is cut; then a reader that was there before sees what a new one sees."""
    for kept in ("nothing", "half of a header", "a block", "a block and a header"):
        inner = MemoryDisk()
        writer = Writer(inner, 2**40)
        reader = FolderReader(inner, pause=lambda _: None)
        writer.small()
        (path,) = (f"journal/{name}" for name in inner.names("journal"))
        block = inner.size(path)
        writer.small()
        check(reader, writer, 6)
        sizes = {"nothing": 0, "half of a header": 64, "a block": block, "a block and a header": block + 127}
        inner.truncate(path, sizes[kept])
        assert reader.upper(1) == FolderReader(inner, pause=lambda _: None).upper(1) < writer.ends[-1]


@pytest.mark.parametrize(("own_segment_bytes", "ending"), [(2**40, ".journal"), (1, ".segment")])
def test_a_block_in_the_middle_of_its_writing_is_looked_at_again_though_the_file_has_its_size(
    own_segment_bytes: int, ending: str
) -> None:
    """Some file systems show a size before its bytes."""
    inner = MemoryDisk()
    writer = Writer(inner, own_segment_bytes)
    reader = FolderReader(inner, pause=lambda _: None)
    writer.small()
    (path,) = (path for path in inner.contents() if path.endswith(ending))
    whole = inner.size(path)
    writer.small()
    file = inner._file(path)
    content = bytes(file.content)
    for written in (whole, whole + 100, whole + 128, len(content) - 1):
        file.content[:] = content[:written].ljust(len(content), b"\0")
        before = inner.stamp(path)
        with contextlib.suppress(CorruptBlock):
            check(reader, writer, 3)
        file.content[:] = content
        assert inner.stamp(path) == before
        assert check(reader, writer, 6) == 6
        reader = FolderReader(inner, pause=lambda _: None)


# Readers look while the writer moves.


class _InPieces:
    """A disk that others see in the middle of a write."""

    def __init__(self, disk: Disk, look: Callable[[], None], piece_bytes: int) -> None:
        self._disk = disk
        self._look = look
        self._piece_bytes = piece_bytes

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def append(self, path: str, buffers: list[Bytes]) -> None:
        data = b"".join(buffers)
        for start in range(0, len(data), self._piece_bytes):
            self._look()
            self._disk.append(path, [data[start : start + self._piece_bytes]])


@pytest.mark.parametrize("piece_bytes", [1, 64, 127, 128, 500])
@pytest.mark.parametrize("step", [Writer.small, Writer.large], ids=["journal", "segment"])
def test_a_write_is_seen_whole_or_not_at_all(step: Action, piece_bytes: int) -> None:
    inner = MemoryDisk()
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks % 7 == 0 or piece_bytes > 1:
            check(reader, writer, len(writer.on_disk))
            check(FolderReader(inner), writer, len(writer.on_disk))

    writer = Writer(inner)
    reader = FolderReader(inner)
    writer.large()
    writer.small()
    writer.rig.store.disk = cast("Disk", _InPieces(inner, look, piece_bytes))
    step(writer)
    assert looks > 3
    assert check(reader, writer, len(writer.on_disk)) == len(writer.on_disk)


def test_readers_between_any_two_operations_of_a_life() -> None:
    inner = MemoryDisk()
    known = {"old": 0, "new": 0}

    def look(operation: str, path: str) -> None:
        if is_looking:
            known["old"] = check(reader, writer, max(known["old"], len(writer.on_disk)))
            known["new"] = check(FolderReader(inner), writer, known["old"])

    is_looking = False
    writer = Writer(hooked(inner, look))
    reader = FolderReader(inner)
    is_looking = True
    steps: list[Action] = [
        Writer.small,
        Writer.begin,
        Writer.abandon_and_replay,
        Writer.large,
        Writer.begin_large,
        Writer.abandon_and_replay,
        Writer.begin_large,
        Writer.end,
        Writer.small_ones,
        Writer.large_ones,
        Writer.compact,
        Writer.small_ones,
    ]
    for step in steps:
        step(writer)
    is_looking = False
    assert known["old"] > 100
    assert known["old"] == known["new"]


# On a real disk, where a file that was removed can still be open.


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Writer, FolderReader]]:
    with folder_of(LocalDisk(tmp_path)) as disk, folder_of(LocalDisk(tmp_path)) as other:
        yield Writer(disk), FolderReader(other)


def test_a_segment_that_is_removed_and_made_anew_under_its_name(real: tuple[Writer, FolderReader]) -> None:
    """All its rows were of a transaction that was begun again: the new file has the same first row, and so name."""
    writer, reader = real
    writer.begin_large()
    (name,) = (name for name in writer.rig.disk.names("logs/1") if name.endswith(".segment"))
    assert check(reader, writer, 0) == 0
    writer.abandon_and_replay_large()
    assert name in writer.rig.disk.names("logs/1")
    assert check(reader, writer, len(writer.on_disk)) == 6


def test_a_journal_file_that_is_removed_and_made_anew_under_its_number(real: tuple[Writer, FolderReader]) -> None:
    """Each process numbers its files from the last one that it finds, which may be none."""
    writer, reader = real
    for round_number in range(5):
        writer.small()
        (name,) = writer.rig.disk.names("journal")
        assert name.endswith("01.journal")
        assert check(reader, writer, len(writer.on_disk)) == len(writer.on_disk)
        writer.restart()
        writer.large()
        writer.rig.store.abandon()
        writer.restart()
        assert not writer.rig.disk.names("journal")
        if round_number % 2:  # a reader that looked meanwhile, or did not
            assert check(reader, writer, len(writer.on_disk)) == len(writer.on_disk)


def test_one_reader_over_the_lives_of_many_writers(real: tuple[Writer, FolderReader]) -> None:
    writer, reader = real
    for begin, go_on in [*OPEN.values(), *OPEN.values()]:
        writer.small()
        begin(writer)
        check(reader, writer, len(writer.on_disk))
        go_on(writer)
        check(reader, writer, len(writer.on_disk))
        writer.restart_and_write()
        check(reader, writer, len(writer.on_disk))
    assert check(reader, writer, len(writer.on_disk)) == len(writer.on_disk) > 300


def test_what_a_crash_cut_off_comes_again_at_the_same_place(real: tuple[Writer, FolderReader]) -> None:
    """A block that was read, though it was never synced; the next writer's has other rows and the same position."""
    writer, reader = real
    writer.append(text="x" * 1100)
    writer.flush()
    (name,) = (name for name in writer.rig.disk.names("logs/1") if name.endswith(".segment"))
    path = f"logs/1/{name}"
    size = writer.rig.disk.size(path)
    writer.append(text="x" * 1100)
    writer.flush()
    assert check(reader, writer, 6) == 6
    lost = writer.appended[-3:]
    writer.rig.disk.truncate(path, size)
    writer.rig = writer.rig.reopened()
    del writer.appended[-3:], writer.ends[-1:]
    with pytest.raises(AboveUpper):
        reader.read(1, lost[-1])
    assert check(reader, writer, 3) == 3
    writer.tx -= 10
    writer.append(count=1, text="y" * 5000)
    writer.flush()
    assert check(reader, writer, 4) == 4


# What else can be asked, and what goes wrong.


def test_the_end_the_facts_and_the_logs() -> None:
    writer = Writer()
    reader = FolderReader(writer.rig.disk)
    assert reader.logs() == [1, 2]
    assert reader.facts(2).handle == "handle-2"
    assert reader.upper(1) == SNAPSHOT_END
    writer.small()
    writer.append()
    assert reader.upper(1) == LogOffset(10, 5)
    result = reader.read(1, SNAPSHOT_END)
    assert result.visible == result.durable == LogOffset(10, 5)
    assert result.sources == {ReadSource.JOURNAL: 3}
    with pytest.raises(AboveUpper):
        reader.read(1, LogOffset(10, 6))
    for ask in (reader.facts, reader.upper, reader.bases):
        with pytest.raises(UnknownLog):
            ask(7)


def test_a_base_can_be_read_while_it_is_written() -> None:
    writer = Writer()
    reader = FolderReader(writer.rig.disk)
    base = writer.rig.store.new_base(1)
    assert reader.bases(1) == []
    with pytest.raises(Misuse):
        reader.read_chunk(1, 0, 0)
    for number in range(3):
        assert number == 0 or reader.read_chunk(1, 0, number) is None
        base.chunk(rows([(0, number)]), written_at=NOW)
        chunk = reader.read_chunk(1, 0, number)
        assert chunk is not None
        assert offsets([chunk]) == [LogOffset(0, number)]
    assert not reader.bases(1)[0].is_complete
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    assert reader.bases(1)[0].is_complete
    assert reader.read_chunk(1, 0, 3) is None


def test_files_that_are_gone_are_not_remembered() -> None:
    writer = Writer()
    reader = FolderReader(writer.rig.disk)
    for _ in range(4):
        writer.large_ones()
        writer.compact()
        check(reader, writer, len(writer.on_disk))
    living = [name for name in writer.rig.disk.names("logs/1") if name.endswith(".segment")]
    assert len(living) == 2
    assert [*reader._segments] == [1]
    assert len(reader._segments[1]) == len(living)
    writer.remove()
    with pytest.raises(UnknownLog):
        reader.read(1, SNAPSHOT_END)
    assert not reader._segments


@pytest.mark.parametrize("operation", ["read", "names", "exists"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT, errno.EACCES])
@pytest.mark.parametrize("calls", [1, None])
def test_a_fault_is_named(operation: Operation, error: int, calls: int | None) -> None:
    writer = Writer()
    for step in STARTS["both"]:
        step(writer)
    for first in range(1, 30):
        disk = FaultyDisk(writer.rig.disk, Script(Rule(operation, Fault(error), first=first, calls=calls)))
        with contextlib.suppress(StorageError):
            check(FolderReader(disk), writer, len(writer.on_disk))
        disk.healthy = True
        assert check(FolderReader(disk), writer, len(writer.on_disk)) == len(writer.on_disk)


def test_the_disk_that_all_share_is_named_as_such() -> None:
    writer = Writer()
    writer.small()
    disk = FaultyDisk(writer.rig.disk, Script(Rule("read", Fault(errno.EIO), path="journal/*")))
    with pytest.raises(SharedDiskFault):
        FolderReader(disk).read(1, SNAPSHOT_END)


def test_a_file_that_stays_away_is_an_error_after_some_looks() -> None:
    writer = Writer()
    writer.large()
    rule = Rule("read", Fault(errno.ENOENT), path="*.segment", calls=None)
    disk = FaultyDisk(writer.rig.disk, Script(rule))
    with pytest.raises(FileVanished):
        FolderReader(disk).read(1, SNAPSHOT_END)
    assert len(disk.log) == READ_ATTEMPTS_MAX + 1


def test_damage_is_named_and_what_lies_before_it_is_read() -> None:
    writer = Writer()
    writer.large_ones()
    name = [name for name in writer.rig.disk.names("logs/1") if name.endswith(".segment")][1]
    disk = writer.rig.disk
    data = disk.read(f"logs/1/{name}", 0, EVERYTHING)
    disk.remove(f"logs/1/{name}")
    disk.create(f"logs/1/{name}")
    disk.append(f"logs/1/{name}", [data[:200] + bytes([data[200] ^ 1]) + data[201:]])
    reader = FolderReader(disk)
    result = reader.read(1, SNAPSHOT_END, EVERYTHING)
    assert offsets(result.rows) == writer.appended[: result.count]
    assert not result.at_end
    assert 0 < result.count < len(writer.appended)
    with pytest.raises(CorruptBlock) as damage:
        reader.read(1, result.next, EVERYTHING)
    assert damage.value.facts["path"] == f"logs/1/{name}"
