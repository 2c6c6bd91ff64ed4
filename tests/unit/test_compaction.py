"""Compaction against a plain model: fewer rows that tell the same, to whoever reads from wherever, whatever fails.

Strategy: legal histories over four keys, so that runs of UPDATEs, INSERTs and DELETEs meet often; a segment for every
flush, so that few transactions have many. Invariants after a compaction:

    the rows are some of those written, in their order, and from every offset on they lead to the same table
    up to every offset that the ledger allows they make the table that was there at that offset
    no read meets a hole or a row twice, in any unit; chunks are where they were before, behind the range
    a crash or a fault at any operation leaves one truth: the rows as they were, or compacted
"""

import contextlib
import errno
import threading
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.block import BlockFlag, BlockKind
from storage.compaction import CompactionOptions, compact
from storage.disk import Disk, LocalDisk, folder_of
from storage.errors import CorruptBlock, LogFault, SharedDiskFault, UnknownLog
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.folder_reader import FolderReader
from storage.layout import SegmentName
from storage.leases import Lease, take_lease
from storage.ledger import folded_ranges, may_cut_at
from storage.memory_disk import MemoryDisk, luckiest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import Kind
from storage.scan import scan
from storage.segments import Segment, list_segments
from storage.shape_log import Mode
from storage.store import StoreOptions
from storage.store_reader import StoreReader
from tests.crash.harness import Acknowledge, for_each_crash
from tests.unit.builders import Rig, to_journal, to_segments
from tests.unit.hooked_disk import hooked
from tests.unit.keyed import (
    KEYED,
    TRANSACTIONS,
    Draw,
    Row,
    Table,
    keyed_batch,
    rows_in,
    state_after,
    tiny,
    updates,
)

NOW = 1_000_000
HOUR = 3_600_000_000
KEEP_ONE = CompactionOptions(segments_kept=1)


def compacted(table: Table, options: CompactionOptions = KEEP_ONE) -> Segment | None:
    return compact(table.rig.store, 1, now=NOW, options=options)


def updated_table(count: int = 9, *, disk: Disk | None = None, keys: int = 2) -> Table:
    """A segment for each transaction, which change a few rows in turn."""
    table = Table(disk)
    for number in range(count):
        table.write([Draw(number % keys, dies=False, sent=number % 3 + 1, value=number % 10)], flush=True)
    return table


def check(table: Table) -> list[Row]:
    """The invariants at the head of this file, for all rows that are visible; the rows that are left."""
    rows = table.read_rows()
    assert [row.at for row in rows] == sorted({row.at for row in rows})
    assert {row.at for row in rows} <= {row.at for row in table.rows}
    for max_bytes in (0, 1, 300):
        assert table.read_rows(max_bytes=max_bytes) == rows
    with table.rig.store.lock:
        ledger = folded_ranges(table.rig.disk, table.rig.store.log(1).files)
    for offset in [SNAPSHOT_END, *(row.at for row in table.rows), *table.states]:
        rest = table.read_rows(offset)
        assert rest == [row for row in rows if row.at > offset]
        state = table.state_at(offset)
        assert state_after(rest, state) == table.state
        if may_cut_at(ledger, offset):
            assert state_after(row for row in rows if row.at <= offset) == state
    return rows


def check_on_disk(table: Table, rows: list[Row]) -> None:
    """Another process and the next start see what this one sees; names tell of no range twice."""
    reader = FolderReader(table.rig.disk)
    assert rows_in(reader.read(1, SNAPSHOT_END, 10**9).rows) == rows
    table.reopen()
    assert check(table) == rows
    segments, dead = list_segments(table.rig.disk, 1)
    assert not dead
    for one, following in pairwise(segments):
        assert one.name.last is None or one.name.last < following.first


# What is left.


Step = Literal["flush", "compact", "reopen"] | list[Draw]
STEPS = st.lists(TRANSACTIONS | st.sampled_from(["flush", "flush", "compact", "reopen"]), max_size=30)


@given(
    STEPS,
    st.builds(
        CompactionOptions, st.integers(1, 3), st.sampled_from([1, 5000, 10**6]), st.sampled_from([1, 100, 10**6])
    ),
    st.sampled_from([1, 4000]),
)
def test_fewer_rows_tell_the_same(steps: list[Step], options: CompactionOptions, segment_bytes: int) -> None:
    table = Table(options=tiny(segment_bytes=segment_bytes))
    for step in steps:
        match step:
            case "flush":
                table.flush()
            case "compact":
                compacted(table, options)
                check(table)
            case "reopen":
                table.flush()
                table.reopen()
            case _:
                table.write(step)
    table.flush()
    compacted(table, options)
    rows = check(table)
    check_on_disk(table, rows)


def test_updates_of_a_row_become_one_at_the_last_ones_place() -> None:
    table = updated_table(9, keys=1)
    segment = compacted(table)
    assert segment is not None
    assert table.segments() == [segment.path.rpartition("/")[2], table.segments()[-1]]
    rows = table.read_rows()
    assert [row.at.tx for row in rows] == [10, 80, 90]
    assert rows[1] == Row(LogOffset(80, 0), Kind.UPDATE, {"id": "key 0", "left": "6", "right": "7"})
    check_on_disk(table, check(table))


def test_a_log_on_a_real_disk(tmp_path: Path) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        table = updated_table(disk=disk)
        assert compacted(table) is not None
        check_on_disk(table, check(table))


def test_a_compacted_segment_is_compacted_again_with_what_came_since() -> None:
    table = updated_table(keys=1)
    first = compacted(table)
    assert compacted(table) is None, "nothing came since"
    for draws in updates(0, 3):
        table.write(draws, flush=True)
    second = compacted(table)
    assert first is not None
    assert second is not None
    assert second.name.generation == 2
    assert not table.rig.disk.exists(first.path)
    assert len(check(table)) == 3
    check_on_disk(table, check(table))


def test_one_segment_with_nothing_to_fold_stays() -> None:
    table = updated_table(2, keys=2)
    before = table.segments()
    assert compacted(table) is None
    assert table.segments() == before


def test_a_log_without_keys_stays() -> None:
    table = Table(key_columns=())
    for draws in updates(0, 5):
        table.write(draws, flush=True)
    before = table.segments()
    assert compacted(table) is None
    assert table.segments() == before


@pytest.mark.parametrize("kept", [1, 2, 3, 8, 9, 20])
def test_the_newest_segments_stay(kept: int) -> None:
    table = updated_table(9, keys=1)
    before = table.segments()
    compacted(table, CompactionOptions(segments_kept=kept))
    assert table.segments()[-kept:] == before[-kept:]
    assert (table.segments() != before) == (kept < 8)


def test_by_default_two_segments_stay() -> None:
    table = updated_table(9, keys=1)
    before = table.segments()
    compact(table.rig.store, 1, now=NOW)
    assert table.segments()[1:] == before[-2:]


def test_a_compaction_takes_only_what_fits_into_memory() -> None:
    """Also of segments that this process has not looked at yet, so that their size is not known."""
    table = updated_table(9, keys=1)
    sizes = [table.rig.disk.size(f"logs/1/{name}") for name in table.segments()]
    table.reopen()
    segment = compacted(table, CompactionOptions(segments_kept=1, bytes_max=sum(sizes[:4])))
    assert segment is not None
    assert segment.last == LogOffset(40, 0)
    check_on_disk(table, check(table))


def test_rows_that_are_not_durable_are_not_folded() -> None:
    """An open transaction's rows in closed segments may have to be cut off again."""
    table = updated_table(4, keys=1)
    rows = table.make([Draw(0, dies=False, sent=1, value=number) for number in range(6)])
    for row in rows:
        table.append([row])
        table.flush()
    segment = compacted(table)
    assert segment is not None
    assert segment.last < rows[0].at
    table.rig.store.abandon()
    del table.rows[-6:]
    check_on_disk(table, check(table))


def test_a_log_that_begins_with_a_commit() -> None:
    """A transaction left no row here, and the next one's were flushed before its end: the first block has no rows."""
    table = Table()
    table.rig.store.commit(1, LogOffset(5, 1))
    rows = table.make([Draw(0, dies=False, sent=1, value=number) for number in range(4)])
    for row in rows:
        table.append([row])
        table.flush()
    table.commit()
    for draws in updates(0, 3):
        table.write(draws, flush=True)
    first = scan(table.rig.disk, f"logs/1/{table.segments()[0]}").refs
    assert [ref.header.rows for ref in first] == [0, 1]
    ends = [ref.header.wire_end for ref in first]
    assert compacted(table, CompactionOptions(segments_kept=1, block_bytes=1)) is not None
    check_on_disk(table, check(table))
    blocks = table.rig.store.log(1).files.segments[0].refs
    assert blocks[0].header.wire_end == ends[1]


# The ledger.


def test_the_ledger_forbids_cuts_inside_a_folded_range_and_no_others() -> None:
    table = updated_table(9, keys=1)
    compacted(table)
    ledger = folded_ranges(table.rig.disk, table.rig.store.log(1).files)
    assert [row["from_tx"] for row in ledger.to_pylist()] == [20]
    assert [row["to_tx"] for row in ledger.to_pylist()] == [80]
    allowed = [row.at for row in table.rows if may_cut_at(ledger, row.at)]
    assert allowed == [LogOffset(10, 0), LogOffset(80, 0), LogOffset(90, 0)]
    assert may_cut_at(ledger, LogOffset(20, 0)._replace(tx=19))
    assert not may_cut_at(ledger, LogOffset(79, 10))


def test_the_ledger_remembers_earlier_compactions() -> None:
    """Their rows are gone, so that a second fold over the rest would find nothing there."""
    table = updated_table(5, keys=1)
    table.write([Draw(0, dies=True, sent=0, value=0)], flush=True)
    compacted(table)
    for draws in updates(0, 5):
        table.write(draws, flush=True)
    compacted(table)
    for files in (table.rig.store.log(1).files, table.rig.reopened().store.log(1).files):
        ledger = folded_ranges(table.rig.disk, files)
        assert [(row["from_tx"], row["to_tx"]) for row in ledger.to_pylist()] == [(20, 50), (80, 100)]


def test_a_log_that_was_never_compacted_has_an_empty_ledger() -> None:
    table = updated_table(3)
    assert folded_ranges(table.rig.disk, table.rig.store.log(1).files).num_rows == 0


@pytest.mark.parametrize("options", [to_journal(), to_segments()], ids=["journal", "segments"])
def test_gaps_of_a_compacted_source_forbid_cuts_too(options: StoreOptions) -> None:
    rig = Rig(options=options, mode=Mode.COMPACTED, key_columns=("id",))
    rig.write(10)
    for tx in (50, 60):
        rig.write(tx, after=LogOffset(40, 0) if tx == 50 else None)
        rig.store.flush_all()
    ledger = FolderReader(rig.disk).folded_ranges(1)
    allowed = [
        may_cut_at(ledger, at) for at in (LogOffset(10, 0), LogOffset(20, 1), LogOffset(50, 1), LogOffset(60, 1))
    ]
    assert allowed == [True, False, True, True]


# Leases.


@pytest.mark.parametrize("after", [0, 1, 4, 8])
def test_rows_above_a_lease_stay_as_they_are(after: int) -> None:
    table = updated_table(9, keys=1)
    offset = table.rows[after - 1].at if after else SNAPSHOT_END
    take_lease(table.rig.disk, Lease(1, "reader", offset, NOW + HOUR), now=NOW)
    compacted(table)
    assert table.read_rows(offset) == table.rows[after:]
    check(table)
    compact(table.rig.store, 1, now=NOW + HOUR + 1, options=KEEP_ONE)
    assert len(check(table)) == 3, "the lease has expired"


def test_a_lease_that_is_taken_while_the_compaction_works_counts() -> None:
    def lease(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".segment.tmp"):
            take_lease(inner, Lease(1, "reader", LogOffset(40, 0), NOW + HOUR), now=NOW)

    inner = MemoryDisk()
    table = updated_table(disk=hooked(inner, lease), keys=1)
    names = table.segments()
    assert compacted(table) is None
    assert table.segments() == names
    assert not [name for name in inner.names("logs/1") if name.endswith(".tmp")]
    segment = compacted(table)
    assert segment is not None
    assert segment.last <= LogOffset(40, 0)
    assert table.read_rows(LogOffset(40, 0)) == table.rows[4:]
    check(table)


def test_what_a_failed_compaction_left_goes_with_the_next_one() -> None:
    disk = FaultyDisk(MemoryDisk(), Script())
    table = updated_table(disk=disk, keys=1)
    disk.plan = Script(Rule("sync", Fault(errno.EIO), path="*.segment.tmp"))
    with pytest.raises(SharedDiskFault):
        compacted(table)
    assert [name for name in disk.names("logs/1") if name.endswith(".tmp")]
    compacted(table, CompactionOptions(segments_kept=4))
    assert not [name for name in disk.names("logs/1") if name.endswith(".tmp")]
    check_on_disk(table.copy(), check(table))


def test_rows_with_other_columns_are_folded_apart() -> None:
    table = Table()
    for number, (absent, old) in enumerate([(False, False), (True, False), (True, False), (False, True)] * 4):
        draw = Draw(0, dies=False, sent=3 if not absent else 1, value=number % 10)
        table.write([draw], flush=True, absent=absent, old=old)
    assert compacted(table) is not None
    assert len(check(table)) < 16
    check_on_disk(table, check(table))


# Gaps.


def test_gaps_survive_and_nothing_is_folded_over_them() -> None:
    table = Table(mode=Mode.COMPACTED)
    for number, draws in enumerate(updates(0, 12)):
        rows = table.make(draws)
        after = rows[0].at._replace(tx=rows[0].at.tx - 1) if number in (0, 4, 8) else table.rig.upper()
        table.rig.store.append(1, keyed_batch(rows), after=after, aligned=table.aligned(rows))
        table.rows += rows
        table.states[table.aligned(rows)] = state_after(rows, table.state)
        table.flush()

    def gaps() -> list[int]:
        segments = table.rig.store.log(1).files.segments
        blocks = [ref.header for one in segments for ref in scan(table.rig.disk, one.path).refs]
        return [header.first.tx for header in blocks if BlockFlag.GAP in header.flags]

    assert gaps() == [10, 50, 90]
    for times in (1, 2):
        compacted(table, CompactionOptions(segments_kept=5 - 2 * times, block_bytes=1))
        # The row behind the gap is folded into the last one of its run, and the gap is in front of that.
        assert gaps() == ([10, 80, 90] if times == 1 else [10, 80, 110])
        table.reopen()
    check(table)


# Chunks, and reads over the seam.


def chunk_ends(table: Table) -> list[LogOffset]:
    return [result.next for result in table.rig.read_on() if result.chunk_ended]


def test_chunks_are_stable_within_a_generation_and_behind_it() -> None:
    table = Table()
    for number in range(40):
        table.write([Draw(number % 3, dies=False, sent=number % 4, value=number % 10)], flush=number % 2 == 1)
    before = chunk_ends(table)
    segment = compacted(table, CompactionOptions(segments_kept=8, block_bytes=200))
    assert segment is not None
    after = chunk_ends(table)
    behind = table.rig.store.log(1).files.segments[1].first
    assert [end for end in after if end > behind] == [end for end in before if end > behind]
    assert len([end for end in after if end < behind]) < len([end for end in before if end < behind])
    table.reopen()
    assert chunk_ends(table) == after
    for end in after:
        assert [result.next for result in table.rig.read_on(end) if result.chunk_ended] == [
            one for one in after if one > end
        ], "from a chunk's end on, the same chunks follow"
    wires = [ref.header.wire_end for one in table.rig.store.log(1).files.segments for ref in one.refs]
    assert wires == sorted(wires), "wire sizes grow over the seam too"


def test_a_read_over_the_seam_neither_repeats_nor_skips() -> None:
    table = updated_table(30, keys=3)
    compacted(table, CompactionOptions(segments_kept=10, block_bytes=1))
    rows = check(table)
    for max_bytes in [None, *range(0, 1200, 70)]:
        assert table.read_rows(max_bytes=max_bytes) == rows


# While others read, and when logs go.


def test_readers_at_every_moment_of_a_compaction_see_the_same_table() -> None:
    inner = MemoryDisk()
    states: list[str] = []

    def look(operation: str, path: str) -> None:
        if not watching:
            return
        states.append(f"{operation} {path}")
        # Of one process, of another one that was there before, of a new one.
        seen = rig.reader.read(1, SNAPSHOT_END, 10**9)
        for found in (seen, reader.read(1, SNAPSHOT_END, 10**9), FolderReader(inner).read(1, SNAPSHOT_END, 10**9)):
            assert state_after(rows_in(found.rows)) == table.state
        for offset in (LogOffset(30, 0), LogOffset(35, 0), LogOffset(70, 1)):
            rest = rows_in(reader.read(1, offset, 10**9).rows)
            assert state_after(rest, table.state_at(offset)) == table.state

    watching = False
    table = Table(hooked(inner, look))
    rig = table.rig
    reader = FolderReader(inner)
    for number in range(9):
        table.write([Draw(number % 2, dies=False, sent=number % 3 + 1, value=number)], flush=True)
    watching = True
    assert compacted(table) is not None
    watching = False
    assert len(states) > 10
    check_on_disk(table, check(table))


def test_threads_that_read_during_many_compactions(tmp_path: Path) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        table = updated_table(4, disk=disk)
        done = threading.Event()
        failures: list[BaseException] = []
        reads = [0, 0]

        def follow(number: int) -> None:
            reader: StoreReader | FolderReader = table.rig.reader if number else FolderReader(disk)
            try:
                while not done.is_set():
                    offset, rows = SNAPSHOT_END, []
                    while True:
                        result = reader.read(1, offset, 400)
                        rows += rows_in(result.rows)
                        offset = result.next
                        if result.at_end:
                            break
                    assert [row.at for row in rows] == sorted({row.at for row in rows})
                    state = state_after(rows)
                    assert state == table.states[max(end for end in table.states if end.tx <= offset.tx)]
                    reads[number] += 1
            except BaseException as failure:  # noqa: BLE001 - told to the test
                failures.append(failure)

        threads = [threading.Thread(target=follow, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        while min(reads) < 20 and not failures:
            table.write([Draw(len(table.rows) % 2, dies=False, sent=3, value=1)], flush=True)
            compacted(table)
        done.set()
        for thread in threads:
            thread.join(30)
        assert not failures, failures[0]


def test_a_log_that_is_removed_during_its_compaction() -> None:
    removed: list[str] = []

    def remove(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(".1.segment.tmp"):
            removed.append(path)
            table.rig.store.remove_log(1)

    table = updated_table(disk=hooked(MemoryDisk(), remove))
    with pytest.raises(UnknownLog):
        compacted(table)
    assert removed
    assert not table.rig.disk.exists("logs/1")


def test_two_compactions_of_one_log_do_not_meet() -> None:
    """The second one waits, and finds that the first has left it nothing."""
    found: list[Segment | None] = []
    threads: list[threading.Thread] = []

    def second(operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".1.segment.tmp"):
            threads.append(threading.Thread(target=lambda: found.append(compacted(table))))
            threads[0].start()

    table = updated_table(disk=hooked(MemoryDisk(), second))
    assert compacted(table) is not None
    threads[0].join(30)
    assert found == [None]
    check_on_disk(table, check(table))


# Damage, faults and crashes.


def test_damage_is_not_compacted_away() -> None:
    table = updated_table(9, keys=1)
    name = f"logs/1/{table.segments()[3]}"
    rig = Rig(table.rig.disk, tiny())
    rig.disk.truncate(name, rig.disk.size(name) - 128)
    with pytest.raises(CorruptBlock):
        compact(rig.store, 1, now=NOW, options=KEEP_ONE)
    assert table.segments()[3] == name.rpartition("/")[2]
    assert len(table.segments()) == 9


OPERATIONS = ["create", "append", "sync", "rename", "sync_folder", "remove", "read", "names"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("happens", [False, True])
def test_a_fault_leaves_the_log_as_it_was_or_compacted(operation: str, happens: bool) -> None:
    """Whatever failed: reads go on, the next compaction does, over another range too, and so does the next start."""
    for number in range(1, 60):
        disk = FaultyDisk(MemoryDisk(), Script())
        table = updated_table(disk=disk, keys=1)
        rule = Rule(operation, Fault(errno.ENOSPC, happens), path="*logs/1*", first=number)  # type: ignore[arg-type]  # one of them
        disk.plan = Script(rule)
        with contextlib.suppress(SharedDiskFault, LogFault):
            compacted(table)
        disk.healthy = True
        check(table)
        take_lease(disk.disk, Lease(1, "reader", LogOffset(60, 0), NOW + HOUR), now=NOW)
        compacted(table)
        check(table)
        check_on_disk(table.copy(), check(table))
        for draws in updates(0, 3):
            table.write(draws, flush=True)
        compact(table.rig.store, 1, now=NOW + 2 * HOUR, options=KEEP_ONE)
        assert len(check(table)) == 3
        check_on_disk(table, check(table))
        if not disk.log:
            return
    raise AssertionError("a compaction has fewer operations than that")


def test_a_crash_anywhere_leaves_one_truth() -> None:
    written = updated_table(4)
    start = written.copy().rig.disk
    assert isinstance(start, MemoryDisk)
    later = [written.write([Draw(number % 2, dies=False, sent=3, value=number)], flush=True)[0] for number in range(2)]

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[LogOffset]) -> None:
        table = Table(disk)
        for row in later:
            compacted(table)
            table.append([row], aligned=LogOffset(row.at.tx, 1))
            table.flush()
            acknowledge(table.rig.durable())

    def check_image(disk: MemoryDisk, acknowledged: list[LogOffset]) -> None:
        table = Table(disk)
        visible = table.rig.store.marks(1)[0]
        assert visible >= max(acknowledged, default=LogOffset(40, 1))
        table.rows = [row for row in written.rows if row.at <= visible]
        table.states = {end: state for end, state in written.states.items() if end <= visible}
        rows = table.read_rows()
        assert state_after(rows) == table.state
        table.reopen()
        assert table.read_rows() == rows
        for row in written.rows[len(table.rows) :]:
            table.append([row], aligned=LogOffset(row.at.tx, 1))
            table.flush()
        compacted(table)
        check(table)
        assert table.state == written.state

    assert for_each_crash(scenario, check_image, images=1, disk=lambda: start.crash_image(luckiest)) > 150


def test_the_format_of_a_compacted_segment() -> None:
    """Its first block is the ledger; its name says what it covers; the claims are those of the range's end."""
    table = updated_table(9, keys=1)
    segment = compacted(table, CompactionOptions(segments_kept=1, block_bytes=1))
    assert segment is not None
    blocks = [ref.header for ref in scan(table.rig.disk, segment.path).refs]
    assert [header.kind for header in blocks] == [BlockKind.LEDGER, BlockKind.ROWS, BlockKind.ROWS]
    assert segment.name == SegmentName(LogOffset(10, 0), LogOffset(80, 0), 1)
    assert {header.aligned for header in blocks} == {LogOffset(80, 1)}
    assert [header.previous for header in blocks] == [SNAPSHOT_END, SNAPSHOT_END, LogOffset(10, 0)]
    assert {header.written_at for header in blocks} == {1_000_000_000}
    assert KEYED[0] in table.read_rows()[0].new
