"""Bases: chunks are readable as they are written, and from its end mark on a base is whole and stays."""

import errno
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.bases import Base, BaseWriter, list_bases
from storage.errors import CorruptBlock, Misuse, PermissionLost, SharedDiskFault, StorageError
from storage.faulty_disk import Fault, FaultyDisk, Operation, Rule, Script
from storage.fold import as_chunk
from storage.log_facts import LogFacts, write_log
from storage.memory_disk import MemoryDisk, luckiest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import wire_sizes
from storage.scan import read_batches
from tests.crash.harness import for_each_crash
from tests.unit.builders import Rig, rows, to_segments

FLOOR, LAST = LogOffset(9, 5), LogOffset(9, 2)


def chunk(number: int, count: int = 2) -> pa.RecordBatch:
    """Some rows of a snapshot, all at the offset of their chunk."""
    return as_chunk(rows([(number + 1, op) for op in range(count)]), number)


def folder() -> MemoryDisk:
    disk = MemoryDisk()
    write_log(disk, LogFacts(1, "a-handle"))
    return disk.crash_image(luckiest)


def finish(writer: BaseWriter) -> Base:
    return writer.finish(floor=FLOOR, last=LAST, wire_end=5000, written_at=0)


def found_on(disk: MemoryDisk | FaultyDisk) -> Base:
    (base,) = list_bases(disk, 1)
    return base


@given(st.lists(st.integers(1, 4), max_size=5))
def test_a_base_comes_back_chunk_by_chunk(counts: list[int]) -> None:
    disk = folder()
    writer = BaseWriter(disk, 1, 0)
    chunks = [chunk(number, count) for number, count in enumerate(counts)]
    for number, one in enumerate(chunks):
        writer.chunk(one, written_at=7)
        half = found_on(disk)  # readable while it is written
        assert (len(half.chunks), half.is_complete) == (number + 1, False)
        assert read_batches(disk, half.chunks[-1])[0].equals(one)
    written = finish(writer)
    base = found_on(disk)
    assert base == written
    assert base.is_complete
    assert (base.floor, base.last, base.wire_end) == (FLOOR, LAST, 5000)
    assert base.rows == sum(counts)
    assert [read_batches(disk, ref)[0] for ref in base.chunks] == chunks
    assert [ref.header.first for ref in base.chunks] == [LogOffset(0, number) for number in range(len(counts))]
    sizes = [int(wire_sizes(one).sum()) for one in chunks]
    assert [ref.header.wire_end for ref in base.chunks] == [sum(sizes[: number + 1]) for number in range(len(sizes))]


def test_an_unfinished_base_claims_nothing() -> None:
    base = Base(0, "logs/1/0.base")
    assert (base.is_complete, base.floor, base.last, base.wire_end) == (False, SNAPSHOT_END, SNAPSHOT_END, 0)


def test_a_reader_looks_for_what_is_new() -> None:
    disk = folder()
    writer = BaseWriter(disk, 1, 0)
    writer.chunk(chunk(0), written_at=0)
    base = found_on(disk)
    writer.chunk(chunk(1), written_at=0)
    base.refresh(disk)
    assert base == found_on(disk)
    finish(writer)
    base = found_on(disk)
    disk.remove(base.path)
    base.refresh(disk)  # a complete base does not change
    assert len(base.chunks) == 2


def test_bases_are_listed_in_the_order_in_which_they_were_begun() -> None:
    disk = folder()
    for number in (10, 2):
        finish(BaseWriter(disk, 1, number))
    disk.create("logs/1/x.base")
    assert [base.number for base in list_bases(disk, 1)] == [2, 10]
    assert list_bases(disk, 2) == []


def test_a_complete_base_takes_no_more() -> None:
    writer = BaseWriter(folder(), 1, 0)
    finish(writer)
    with pytest.raises(Misuse, match="complete"):
        writer.chunk(chunk(0), written_at=0)
    with pytest.raises(Misuse):
        finish(writer)


# Faults.


@pytest.mark.parametrize("first", [1, 2, 3], ids=["first chunk", "second chunk", "end mark"])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(errno.ENOSPC), id="refused"),
        pytest.param(Fault(errno.ENOSPC, happens=True, appended=150), id="half written"),
        pytest.param(Fault(errno.EIO, happens=True), id="written but denied"),
    ],
)
def test_after_a_failed_write_the_same_chunk_is_written_again(fault: Fault, first: int) -> None:
    disk = FaultyDisk(folder(), Script(Rule("append", fault, first=first)))
    writer = BaseWriter(disk, 1, 0)
    failures = 0
    for step in (
        lambda: writer.chunk(chunk(0), written_at=0),
        lambda: writer.chunk(chunk(1), written_at=0),
        lambda: finish(writer),
    ):
        try:
            step()
        except SharedDiskFault:
            failures += 1
            step()
    assert failures == 1
    base = found_on(disk)
    assert base.is_complete
    assert [read_batches(disk, ref)[0] for ref in base.chunks] == [chunk(0), chunk(1)]


@pytest.mark.parametrize(("operation", "first"), [("sync", 1), ("sync", 2), ("sync_folder", 1)])
def test_after_a_failed_sync_the_base_is_given_up(operation: Operation, first: int) -> None:
    """Nobody knows what is on the disk; a base that is begun anew does."""
    disk = FaultyDisk(folder(), Script(Rule(operation, Fault(errno.EIO), first=first)))
    writer = BaseWriter(disk, 1, 0)
    writer.chunk(chunk(0), written_at=0)
    with pytest.raises(SharedDiskFault):
        finish(writer)
    for again in (lambda: writer.chunk(chunk(1), written_at=0), lambda: finish(writer)):
        with pytest.raises(Misuse, match="given up"):
            again()
    other = BaseWriter(disk, 1, 1)
    other.chunk(chunk(0), written_at=0)
    assert finish(other).is_complete


def test_a_fault_of_the_logs_folder_is_named() -> None:
    disk = FaultyDisk(folder(), Script(Rule("create", Fault(errno.EACCES))))
    with pytest.raises(PermissionLost):
        BaseWriter(disk, 1, 0).chunk(chunk(0), written_at=0)


def test_somebody_elses_file_is_not_touched() -> None:
    disk = folder()
    disk.create("logs/1/0.base")
    disk.append("logs/1/0.base", [b"somebody else's"])
    writer = BaseWriter(disk, 1, 0)
    writer.chunk(chunk(0), written_at=0)
    with pytest.raises(StorageError):
        finish(writer)
    assert not writer.base.is_complete
    assert disk.contents()["logs/1/0.base"] == b"somebody else's"


def test_damage_is_found() -> None:
    disk = folder()
    writer = BaseWriter(disk, 1, 0)
    writer.chunk(chunk(0), written_at=0)
    base = finish(writer)
    content = bytearray(disk.contents()[base.path])
    content[200] ^= 1
    disk.truncate(base.path, 0)
    disk.append(base.path, [content])
    assert found_on(disk).is_complete  # the end mark proves that the chunks were whole once
    with pytest.raises(CorruptBlock):
        read_batches(disk, found_on(disk).chunks[0])
    content[3] ^= 1
    disk.truncate(base.path, 0)
    disk.append(base.path, [content])
    assert isinstance(found_on(disk).damage, CorruptBlock)


def test_a_crash_leaves_a_whole_base_or_none() -> None:
    def scenario(disk: MemoryDisk, acknowledge: Callable[[str], None]) -> None:
        writer = BaseWriter(disk, 1, 0)
        writer.chunk(chunk(0), written_at=0)
        writer.chunk(chunk(1, 30), written_at=0)
        finish(writer)
        acknowledge("complete")

    def check(disk: MemoryDisk, acknowledged: list[str]) -> None:
        opened = Rig(disk).store.log(1)
        assert opened.state.fault is None
        complete = opened.files.base
        assert complete is not None or not acknowledged
        if complete is None:
            assert disk.names("logs/1") == ["log.json"]
        else:
            assert [read_batches(disk, ref)[0] for ref in complete.chunks] == [chunk(0), chunk(1, 30)]

    assert for_each_crash(scenario, check, disk=folder) > 30


# In a store.


def test_a_snapshot_is_read_chunk_by_chunk_beside_its_log() -> None:
    rig = Rig(options=to_segments())
    writer = rig.store.new_base(1)
    rig.write(1)
    writer.chunk(chunk(0), written_at=0)
    assert rig.reader.read_chunk(1, 0, 0) == chunk(0)
    assert rig.reader.read_chunk(1, 0, 1) is None
    writer.chunk(chunk(1), written_at=0)
    writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0)
    rig.store.flush_all()
    for reader in (rig, rig.reopened()):
        assert [reader.reader.read_chunk(1, 0, number) for number in range(3)] == [chunk(0), chunk(1), None]
        assert reader.read_all() == [LogOffset(1, 0)]
        with pytest.raises(Misuse):
            reader.reader.read_chunk(1, 7, 0)


def test_an_unfinished_snapshot_goes_with_a_crash() -> None:
    rig = Rig()
    rig.store.new_base(1).chunk(chunk(0), written_at=0)
    again = rig.reopened()
    with pytest.raises(Misuse):
        again.reader.read_chunk(1, 0, 0)
    assert again.store.new_base(1).base.number == 0
