"""Reading a base and then its log: nothing twice, nothing skipped, in the writer's process and in another."""

import pytest

from storage.errors import Refetch
from storage.folder_reader import FolderReader
from storage.handle_reading import LogReader, read_handle
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.rows import OP, TX
from storage.store import Store
from storage.store_reader import StoreReader
from tests.unit.builders import Clock, rows


def everything(reader: LogReader, base: int) -> list[LogOffset]:
    found: list[LogOffset] = []
    position = BEFORE_ALL
    for _ in range(100):
        result = read_handle(reader, 1, base, position, 0)
        for batch in result.rows:
            pairs = zip(batch.column(TX).to_pylist(), batch.column(OP).to_pylist(), strict=True)
            found += [LogOffset(tx, op) for tx, op in pairs]
        position = result.next
        if result.at_end:
            return found
    raise AssertionError("a reader that is not at the end after so many reads never will be")


def test_a_base_then_its_log() -> None:
    disk = MemoryDisk()
    store = Store(disk, Clock().clocks())
    store.create_log(LogFacts(1, "a-handle"))
    readers: list[LogReader] = [StoreReader(store), FolderReader(disk)]
    writer = store.new_base(1)
    store.append(1, rows([(5, 0), (5, 2)]), after=SNAPSHOT_END, aligned=LogOffset(5, 3))
    store.flush_all()
    for number in range(3):
        writer.chunk(rows([(0, number)]), written_at=1)
        for reader in readers:
            assert everything(reader, 0) == [LogOffset(0, one) for one in range(number + 1)]
    writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=1)
    for reader in readers:
        chunks = [LogOffset(0, one) for one in range(3)]
        assert everything(reader, 0) == [*chunks, LogOffset(5, 0), LogOffset(5, 2)]
        assert read_handle(reader, 1, 0, LogOffset(5, 0)).next == LogOffset(5, 2)


def test_a_base_that_was_replaced_is_to_be_fetched_again() -> None:
    store = Store(MemoryDisk(), Clock().clocks())
    store.create_log(LogFacts(1, "a-handle"))
    for _ in range(2):
        writer = store.new_base(1)
        writer.chunk(rows([(0, 0)]), written_at=1)
        writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=1)
    with store.lock:
        store.log(1).files.bases.pop(0)
    with pytest.raises(Refetch) as refused:
        read_handle(StoreReader(store), 1, 0, BEFORE_ALL)
    assert refused.value.facts["base"] == 1
