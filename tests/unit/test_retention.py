"""Retention against a plain model: what a log no longer has, its base has; and nobody is left without a way on.

Strategy: as for compaction, legal histories in many small segments. Invariants after a fold, and after a retirement:

    the base's rows are the table as of its floor, and the floor is a transaction's end
    the base, and then the log from the floor on, lead to the present table
    a read from below what the log has names a base and its floor; from there on, no row is missing
    a crash or a fault at any operation leaves all of that true
"""

import contextlib
import errno
from collections.abc import Sequence
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import retention
from storage.bases import Base
from storage.compaction import CompactionOptions, compact
from storage.disk import Disk, LocalDisk, folder_of
from storage.errors import CannotFold, CorruptBlock, LogFault, Misuse, Refetch, SharedDiskFault, UnknownLog
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.folder_reader import FolderReader
from storage.leases import Lease, take_lease
from storage.memory_disk import MemoryDisk, luckiest, strictest
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.retention import RetentionPolicy, fold_prefix, over_limit, retire
from storage.rows import Kind
from storage.scan import BlockRef
from storage.store_reader import StoreReader
from tests.crash.harness import Acknowledge, for_each_crash
from tests.unit.hooked_disk import hooked
from tests.unit.keyed import (
    CHUNK_BYTES,
    TRANSACTIONS,
    Draw,
    Row,
    State,
    Table,
    keyed_batch,
    rows_in,
    state_after,
    tiny,
    updates,
)

NOW = 2_000_000_000
HOUR = 3_600_000_000
ALL_BUT_ONE = RetentionPolicy(bytes_max=0)
IN_PARTS = RetentionPolicy(bytes_max=0, step_bytes=1)
"""A block at a time: a transaction of several segments takes a pass for each."""
POLICIES = pytest.mark.parametrize("policy", [ALL_BUT_ONE, IN_PARTS], ids=["whole", "in parts"])


def folded(table: Table, policy: RetentionPolicy = ALL_BUT_ONE) -> Base | None:
    return fold_prefix(table.rig.store, 1, policy, now=NOW)


def all_folded(table: Table, policy: RetentionPolicy) -> Base | None:
    """The last base of as many folds as it takes."""
    last = None
    while (base := folded(table, policy)) is not None:
        last = base
    return last


def retired(table: Table) -> int:
    return retire(table.rig.store, 1, now=NOW)


def table_of(transactions: int, *, disk: Disk | None = None) -> Table:
    """Some rows that live, some that died, in a segment for each transaction."""
    table = Table(disk)
    for number in range(transactions):
        table.write([Draw(number % 3, dies=number % 5 == 4, sent=number % 4, value=number % 10)], flush=True)
    return table


def base_of(reader: StoreReader | FolderReader, number: int) -> State:
    """The table that a base holds."""
    rows: list[Row] = []
    for index in count():
        chunk = reader.read_chunk(1, number, index)
        if chunk is None:
            break
        found = rows_in([chunk])
        assert found, "no chunk is empty"
        assert {(row.at, row.kind) for row in found} == {(LogOffset(0, index), Kind.INSERT)}
        rows += found
    state = state_after(rows)
    assert len(state) == len(rows)
    return state


def check(table: Table, reader: StoreReader | FolderReader | None = None) -> None:
    """The invariants at the head of this file, for a reader in this process or in another."""
    reader = reader or table.rig.reader
    bases = {base.number: base for base in table.rig.store.log(1).files.bases if base.is_complete}
    for base in bases.values():
        assert base.floor in table.states
        assert base_of(reader, base.number) == table.states[base.floor]
    if bases:
        newest = bases[max(bases)]
        assert state_after(read_on(reader, newest.floor), table.states[newest.floor]) == table.state
    for offset in [BEFORE_ALL, SNAPSHOT_END, *(row.at for row in table.rows), *table.states]:
        found = rows_or_refetch(reader, offset)
        if not isinstance(found, Refetch):
            assert state_after(found, table.state_at(offset)) == table.state
        elif bases:
            assert found.facts["base"] == max(bases)
            assert offset < found.facts["floor"] == bases[max(bases)].floor
        else:
            assert offset < SNAPSHOT_END


def rows_or_refetch(reader: StoreReader | FolderReader, after: LogOffset) -> list[Row] | Refetch:
    try:
        return read_on(reader, after)
    except Refetch as refetch:
        return refetch


def read_on(reader: StoreReader | FolderReader, after: LogOffset) -> list[Row]:
    rows: list[Row] = []
    while True:
        result = reader.read(1, after, 500)
        rows += rows_in(result.rows)
        if result.at_end:
            return rows
        assert result.next > after
        after = result.next


# Bases.


Step = Literal["flush", "fold", "retire", "compact", "reopen"] | tuple[list[Draw], bool]
STEPS = st.lists(
    st.tuples(TRANSACTIONS, st.booleans()) | st.sampled_from(["flush", "flush", "fold", "retire", "compact", "reopen"]),
    max_size=30,
)


@given(STEPS, st.sampled_from([0, 3000, 10_000]), st.sampled_from([1, 4000]), st.sampled_from([1, 3000, 10**6]))
def test_a_base_and_the_log_from_its_floor_are_the_table(
    steps: list[Step], bytes_max: int, segment_bytes: int, step_bytes: int
) -> None:
    table = Table(options=tiny(segment_bytes=segment_bytes))
    policy = RetentionPolicy(bytes_max=bytes_max, step_bytes=step_bytes)
    for step in [*steps, "fold", "retire"]:
        match step:
            case "flush":
                table.flush()
            case "fold":
                folded(table, policy)
                check(table)
            case "retire":
                retired(table)
                check(table)
            case "compact":
                compact(table.rig.store, 1, now=NOW, options=CompactionOptions(segments_kept=1, block_bytes=500))
            case "reopen":
                table.rig.store.flush_all()
                table.reopen()
            case (draws, in_parts):
                if in_parts:
                    table.write_in_parts(draws, late=len(draws) == 2)
                else:
                    table.write(draws)
    table.rig.store.flush_all()
    check(table, FolderReader(table.rig.disk))
    table.reopen()
    check(table)


@pytest.mark.parametrize("is_left", [False, True], ids=["all retired", "one left by the crash"])
def test_a_log_that_a_crash_leaves_with_less_than_its_base_goes_on_behind_it(is_left: bool) -> None:
    """The newest segment had open rows only, which a start removes; a file of the journal still has an old share."""
    table = Table(options=tiny(own_segment_bytes=2**40))
    table.rig.create(2)
    table.rig.write(5, log=2)
    table.write([Draw(0, dies=False, sent=0, value=1)])
    table.rig.store.flush(demand=[1, 2])
    table.rig.options = tiny()
    table.reopen()
    for transaction in updates(0, 2):
        table.write(transaction, flush=True)
    open_rows = table.make([Draw(1, dies=False, sent=0, value=1), Draw(2, dies=False, sent=0, value=2)])
    table.rig.store.append(1, keyed_batch(open_rows), after=table.rig.upper())
    table.flush()
    base = folded(table)
    assert base is not None
    first = f"logs/1/{table.segments()[0]}"
    content = table.rig.disk.read(first, 0, table.rig.disk.size(first))
    assert retired(table) == 2
    if is_left:
        table.rig.disk.create(first)
        table.rig.disk.append(first, [content])
    table.reopen()
    assert table.rig.store.marks(1) == (base.floor, base.floor)
    check(table)
    table.write([Draw(0, dies=True, sent=0, value=0)], flush=True)
    check(table, FolderReader(table.rig.disk))
    table.reopen()
    check(table)


def test_a_fold_and_what_it_lets_go() -> None:
    table = table_of(9)
    before = table.segments()
    base = folded(table)
    assert base is not None
    assert (base.number, base.floor, base.last) == (0, LogOffset(80, 1), LogOffset(80, 0))
    assert table.segments() == before, "the layers above have a record to sync first"
    assert table.read_rows() == table.rows
    assert retired(table) == 8
    assert table.segments() == before[-1:]
    check(table)
    assert retired(table) == 0
    with pytest.raises(Refetch) as refetch:
        table.rig.read(LogOffset(50, 1))
    assert refetch.value.facts["base"] == 0
    assert refetch.value.facts["floor"] == base.floor
    assert [row.at.tx for row in table.read_rows(base.floor)] == [90]


def test_on_a_real_disk(tmp_path: Path) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        table = table_of(9, disk=disk)
        folded(table)
        retired(table)
        check(table)
        check(table, FolderReader(disk))
        table.reopen()
        check(table)


def test_a_fold_on_top_of_a_fold() -> None:
    table = table_of(9)
    folded(table)
    retired(table)
    assert folded(table) is None, "the newest segment stays"
    for number in range(6):
        table.write([Draw(number % 3, dies=number == 3, sent=2, value=number)], flush=True)
    second = folded(table)
    assert second is not None
    assert (second.number, second.floor) == (1, LogOffset(140, 1))
    check(table)
    assert retired(table) == 7, "six segments and the older base"
    assert [base.number for base in table.rig.store.log(1).files.bases] == [1]
    for reader in (table.rig.reader, FolderReader(table.rig.disk)):
        with pytest.raises(Refetch) as replaced:
            reader.read_chunk(1, 0, 0)
        assert (replaced.value.facts["base"], replaced.value.facts["floor"]) == (1, second.floor)
        with pytest.raises(Misuse):
            reader.read_chunk(1, 2, 0)
    table.reopen()
    check(table)


def test_a_fold_on_top_of_a_snapshot() -> None:
    """Rows of the snapshot that no change touched are rows of the base."""
    table = Table()
    snapshot = table.rig.store.new_base(1)
    rows = [Row(LogOffset(0, 0), Kind.INSERT, {"id": f"key {key}", "left": "s", "right": None}) for key in range(4)]
    snapshot.chunk(keyed_batch(rows, absent=False, xid=False), written_at=NOW)
    table.write([Draw(9, dies=False, sent=0, value=1)], flush=True)
    table.write([Draw(9, dies=False, sent=1, value=1)], flush=True)
    assert folded(table) is None, "what the snapshot will hold is not known yet"
    snapshot.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    table.states = {end: state_after(rows) | state for end, state in table.states.items()}
    table.write([Draw(0, dies=False, sent=1, value=5)], flush=True)
    table.write([Draw(1, dies=True, sent=0, value=0)], flush=True)
    table.write([Draw(1, dies=False, sent=0, value=2)], flush=True)
    base = folded(table)
    assert base is not None
    state = base_of(table.rig.reader, base.number)
    assert state == table.states[LogOffset(40, 1)]
    assert state["key 3"] == rows[3].new
    assert "key 1" not in state
    retired(table)
    assert table.rig.disk.names("logs/1")[-1] == "log.json"
    assert not table.rig.disk.exists("logs/1/0.base")


def test_a_table_that_is_empty_at_the_floor() -> None:
    table = Table()
    table.write([Draw(0, dies=False, sent=0, value=1)], flush=True)
    table.write([Draw(0, dies=True, sent=0, value=1)], flush=True)
    table.write([Draw(0, dies=False, sent=0, value=2)], flush=True)
    base = folded(table)
    assert base is not None
    assert base.rows == 0
    retired(table)
    check(table)


def test_a_truncate_empties_the_base() -> None:
    table = table_of(4)
    table.write([Draw(3, dies=False, sent=0, value=1)], flush=True)
    table.write([Draw(3, dies=True, sent=0, value=1), Draw(0, dies=False, sent=0, value=4)], flush=True)
    assert table.rows[-2].kind is Kind.TRUNCATE
    table.write([Draw(1, dies=False, sent=0, value=2)], flush=True)
    base = folded(table)
    assert base is not None
    assert base_of(table.rig.reader, base.number) == {"key 0": {"id": "key 0", "left": "4", "right": None}}
    check(table)


def test_rows_with_and_without_the_optional_columns_fold_together() -> None:
    table = Table()
    optional = list(product([False, True], repeat=3))
    for number, (xid, absent, old) in enumerate([*optional, *optional]):
        draw = Draw(number % 2, dies=False, sent=3 if not absent else 1, value=number % 10)
        table.write([draw], flush=True, absent=absent, old=old, xid=xid)
    assert folded(table) is not None
    check(table)
    folded(table)
    retired(table)
    check(table)


def test_the_chunks_of_a_base_have_the_size_of_the_logs() -> None:
    table = Table()
    for key in range(40):
        table.write([Draw(key + 10, dies=False, sent=0, value=1)], flush=key % 5 == 4)
    table.write([Draw(0, dies=False, sent=0, value=1)], flush=True)
    base = folded(table)
    assert base is not None
    sizes = [(ref.header.wire_end, ref.header.rows) for ref in base.chunks]
    assert sum(rows for _, rows in sizes) == 40
    starts = [0, *(wire_end // CHUNK_BYTES for wire_end, _ in sizes[:-1])]
    assert starts == list(range(len(sizes)))
    check(table)


# Where a base may end.


def test_a_floor_is_a_transactions_end() -> None:
    """A transaction over five segments, of which the policy wants three: it is folded whole or not at all."""
    table = table_of(3)
    table.write_in_parts([Draw(0, dies=False, sent=1, value=number) for number in range(5)])
    table.write([Draw(1, dies=False, sent=1, value=3)], flush=True)
    files = table.rig.store.log(1).files
    sizes = [segment.size for segment in files.segments]
    assert len(sizes) == 9
    for count_wanted in range(1, 9):
        policy = RetentionPolicy(bytes_max=sum(sizes) - sum(sizes[:count_wanted]))
        chosen = over_limit(files, policy, now=NOW, held=None)
        assert len(chosen) == (count_wanted if count_wanted <= 3 or count_wanted == 8 else 3)
    assert folded(table, RetentionPolicy(bytes_max=sum(sizes) - sum(sizes[:6]))) is not None
    check(table)
    retired(table)
    check(table)


def test_nothing_is_folded_while_the_first_transaction_is_open() -> None:
    table = Table()
    for row in table.make([Draw(0, dies=False, sent=1, value=number) for number in range(5)]):
        table.append([row])
        table.flush()
    assert folded(table) is None
    table.commit()
    for draws in updates(0, 2):
        table.write(draws, flush=True)
    base = folded(table)
    assert base is not None
    assert base.floor == LogOffset(20, 1)
    check(table)


def test_by_bytes_no_more_goes_than_must() -> None:
    table = table_of(9)
    sizes = [segment.size for segment in table.rig.store.log(1).files.segments]
    assert folded(table, RetentionPolicy(bytes_max=sum(sizes))) is None
    assert folded(table, RetentionPolicy()) is None
    base = folded(table, RetentionPolicy(bytes_max=sum(sizes) - sizes[0] - 1))
    assert base is not None
    assert base.floor == LogOffset(20, 1)


def test_by_age() -> None:
    table = Table()
    for number in range(6):
        table.rig.clock.seconds = 1000.0 + number
        table.write([Draw(0, dies=False, sent=3, value=number)], flush=True)
    policy = RetentionPolicy(age_seconds_max=10)
    assert fold_prefix(table.rig.store, 1, policy, now=1_010_000_000) is None
    base = fold_prefix(table.rig.store, 1, policy, now=1_012_000_001)
    assert base is not None
    assert base.floor == LogOffset(30, 1)
    assert fold_prefix(table.rig.store, 1, policy, now=1_012_000_001) is None
    check(table)


def test_compaction_does_not_make_rows_younger() -> None:
    table = table_of(6)
    table.rig.clock.seconds += 100
    table.write([Draw(0, dies=False, sent=3, value=1)], flush=True)
    hour_later = NOW + HOUR
    assert compact(table.rig.store, 1, now=hour_later, options=CompactionOptions(segments_kept=1)) is not None
    policy = RetentionPolicy(age_seconds_max=600)
    assert fold_prefix(table.rig.store, 1, policy, now=hour_later) is not None
    check(table)


# Leases.


@pytest.mark.parametrize("after", [0, 1, 4, 8, 9])
def test_what_a_lease_holds_is_neither_folded_nor_dropped(after: int) -> None:
    table = table_of(9)
    offset = table.rows[after - 1].at if after else SNAPSHOT_END
    take_lease(table.rig.disk, Lease(1, "reader", offset, NOW + HOUR), now=NOW)
    base = folded(table)
    retired(table)
    assert table.read_rows(offset) == table.rows[after:]
    check(table)
    assert (base.last if base else SNAPSHOT_END) <= offset
    assert fold_prefix(table.rig.store, 1, ALL_BUT_ONE, now=NOW + HOUR) is not None or after >= 8
    retire(table.rig.store, 1, now=NOW + HOUR)
    assert len(table.segments()) == 1
    check(table)


def test_a_lease_that_came_after_the_fold_keeps_the_rows_and_the_older_base() -> None:
    table = table_of(5)
    first = folded(table)
    retired(table)
    for draws in updates(0, 5):
        table.write(draws, flush=True)
    assert first is not None
    take_lease(table.rig.disk, Lease(1, "reader", first.floor, NOW + HOUR), now=NOW)
    names = table.rig.disk.names("logs/1")
    assert folded(table) is None
    fold_prefix(table.rig.store, 1, ALL_BUT_ONE, now=NOW + HOUR)
    retired(table)
    assert set(names) < set(table.rig.disk.names("logs/1"))
    assert table.read_rows(first.floor) == [row for row in table.rows if row.at > first.floor]
    check(table)
    retire(table.rig.store, 1, now=NOW + HOUR)
    assert not table.rig.disk.exists(first.path)
    check(table)


# What cannot be folded.


def test_a_log_without_keys_cannot_be_folded() -> None:
    table = Table(key_columns=())
    for draws in updates(0, 4):
        table.write(draws, flush=True)
    with pytest.raises(CannotFold):
        folded(table)
    assert retired(table) == 0
    assert table.read_rows() == table.rows


def test_a_row_with_a_value_that_nobody_sent_cannot_be_folded() -> None:
    table = Table()
    for number in range(3):
        row = Row(LogOffset(10 + number, 0), Kind.UPDATE, {"id": "key", "left": "x"})
        table.append([row], aligned=LogOffset(10 + number, 1))
        table.flush()
    with pytest.raises(CannotFold):
        folded(table)
    assert table.read_rows() == table.rows
    assert table.rig.disk.names("logs/1")[0].endswith(".segment"), "no base was begun"


def test_a_long_prefix_is_folded_step_by_step() -> None:
    """Each base goes on from the one before, whose segments are still there, and are not read again."""
    table = table_of(9)
    sizes = [segment.size for segment in table.rig.store.log(1).files.segments]
    policy = RetentionPolicy(bytes_max=0, step_bytes=2 * max(sizes))
    bases = []
    while (base := folded(table, policy)) is not None:
        bases.append(base)
        check(table)
    assert len(bases) > 2
    assert [base.floor for base in bases] == sorted({base.floor for base in bases})
    assert bases[-1].last == table.rig.store.log(1).files.segments[-2].last
    retired(table)
    assert [base.number for base in table.rig.store.log(1).files.bases] == [bases[-1].number]
    check(table)


def test_neither_base_nor_transaction_has_to_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    for key in range(60):
        table.write([Draw(key, dies=False, sent=0, value=1)], flush=True)
    folded(table)
    retired(table)
    table.write_in_parts([Draw(key, dies=key % 4 == 1, sent=3, value=2) for key in range(3, 80, 2)])
    table.write([Draw(0, dies=False, sent=1, value=3)], flush=True)
    files = table.rig.store.log(1).files
    old = files.base
    assert old is not None
    refs = [ref for segment in files.segments for ref in segment.refs]
    step = 8 * max(ref.header.size for ref in (*refs, *old.chunks))
    assert sum(ref.header.size for ref in old.chunks) > step
    assert sum(ref.header.size for ref in refs) > 2 * step
    held: list[int] = []

    def rows(disk: Disk, parts: Sequence[BlockRef]) -> list[pa.RecordBatch]:
        held.append(sum(ref.header.size for ref in parts))
        assert len(files.bases) <= 4, "two that are complete, one that is read, one that is written"
        return read_rows(disk, parts)

    read_rows = retention._rows
    monkeypatch.setattr(retention, "_rows", rows)
    base = all_folded(table, RetentionPolicy(bytes_max=0, step_bytes=step))
    assert base is not None
    assert max(held) <= 3 * step // 4, "the log's part; the base's is the rest"
    assert base.number > 4, "one for what was left, and one for each pass through the transaction"
    assert len(files.bases) == 3
    assert len([name for name in table.rig.disk.names("logs/1") if "base" in name]) == 3, "others had no name"
    check(table)
    retired(table)
    check(table, FolderReader(table.rig.disk))
    table.reopen()
    check(table)


def test_a_fold_that_nobody_wants_any_more_leaves_nothing() -> None:
    table = Table()
    for key in range(41):
        table.write([Draw(key, dies=False, sent=0, value=1)], flush=key % 5 == 0)
    for answers in ([False], [True, False], [True, True, False]):
        left = iter(answers)
        assert fold_prefix(table.rig.store, 1, ALL_BUT_ONE, now=NOW, is_wanted=left.__next__) is None
        assert next(left, None) is None, "it was asked before reading, and before each chunk"
        assert table.rig.store.log(1).files.bases == []
        assert not [name for name in table.rig.disk.names("logs/1") if "base" in name]
    assert folded(table) is not None
    check(table)


def test_damage_is_not_folded_away() -> None:
    table = table_of(9)
    path = f"logs/1/{table.segments()[3]}"
    table.rig.disk.truncate(path, table.rig.disk.size(path) - 128)
    table.reopen()
    with pytest.raises(CorruptBlock):
        folded(table)
    assert len(table.segments()) == 9


# Removal, faults and crashes.


def test_after_a_restart_what_a_base_has_can_still_be_retired() -> None:
    """The process ended between the fold and the retirement, for the sake of which there are two calls."""
    table = table_of(9)
    folded(table)
    table.reopen()
    assert retired(table) == 8
    check(table)


def test_a_snapshot_under_way_is_left_alone() -> None:
    table = table_of(9)
    folded(table)
    snapshot = table.rig.store.new_base(1)
    assert snapshot.base.number == 1
    snapshot.chunk(
        keyed_batch([Row(LogOffset(0, 0), Kind.INSERT, {"id": "a"})], absent=False, xid=False), written_at=NOW
    )
    retired(table)
    snapshot.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    assert table.rig.disk.exists(snapshot.base.path)
    assert rows_in([table.rig.reader.read_chunk(1, 1, 0) or pa.record_batch({})])[0].new["id"] == "a"


def test_a_snapshot_that_was_given_up_does_not_keep_a_log_from_being_folded() -> None:
    disk = FaultyDisk(MemoryDisk(), Script(Rule("sync", Fault(errno.EIO), "*.base.tmp")))
    table = table_of(9, disk=disk)
    snapshot = table.rig.store.new_base(1)
    with pytest.raises(SharedDiskFault):
        snapshot.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=NOW)
    assert folded(table) is not None
    retired(table)
    check(table)


def test_a_lease_that_is_taken_while_segments_are_loaded_is_seen() -> None:
    inner = MemoryDisk()

    def take(operation: str, path: str) -> None:
        if operation == "sync_folder" and path == "logs/1" and taking.pop("now", False):
            take_lease(inner, Lease(1, "late", SNAPSHOT_END, NOW + 10**6), now=NOW)

    taking: dict[str, bool] = {}
    table = table_of(7, disk=hooked(inner, take))
    folded(table)
    taking["now"] = True
    segments = len(table.segments())
    assert retired(table) == 0
    assert len(table.segments()) == segments


def test_a_base_whose_last_sync_failed_is_none_for_the_next_process() -> None:
    """Its own sync would say that all is well, and a power cut would take the base and what it stands for."""
    for first in (1, 2, 3):
        memory = MemoryDisk()
        plan = Script(
            Rule("sync", Fault(errno.EIO), "*.base*", first=first),
            Rule("remove", Fault(errno.EIO), "*.base*", calls=None),  # the process dies before it can
        )
        disk = FaultyDisk(memory, plan)
        table = table_of(9, disk=disk)
        with contextlib.suppress(SharedDiskFault):
            folded(table)
        disk = FaultyDisk(memory, Script(), forgotten=disk.forgotten)
        table.rig = table.rig.reopened(disk)
        retired(table)
        check(table)
        table.rig = table.rig.reopened(memory.crash_image(strictest))
        check(table)


def test_a_log_that_is_removed_during_its_fold() -> None:
    removed: list[str] = []

    def remove(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".base.tmp") and not removed:
            removed.append(path)
            table.rig.store.remove_log(1)

    table = table_of(9, disk=hooked(MemoryDisk(), remove))
    with contextlib.suppress(UnknownLog):
        folded(table)
    assert removed
    assert not table.rig.disk.exists("logs/1")
    with pytest.raises(UnknownLog):
        retired(table)


@POLICIES
def test_readers_at_every_moment_of_a_retirement_find_their_way(policy: RetentionPolicy) -> None:
    inner = MemoryDisk()
    looks: list[str] = []

    def look(operation: str, path: str) -> None:
        if watching:
            looks.append(f"{operation} {path}")
            check(table)
            check(table, reader)
            check(table, FolderReader(inner))

    watching = False
    table = Table(hooked(inner, look))
    table.write_in_parts([Draw(number % 3, dies=False, sent=3, value=1) for number in range(6)])
    table.write([Draw(0, dies=False, sent=1, value=3)], flush=True)
    reader = FolderReader(inner)
    watching = True
    folded(table, policy)
    retired(table)
    watching = False
    assert len(looks) > 10


OPERATIONS = ["create", "append", "sync", "sync_folder", "remove", "read", "names"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("happens", [False, True])
@POLICIES
def test_a_fault_leaves_everybody_a_way_on(operation: str, happens: bool, policy: RetentionPolicy) -> None:
    """Whatever failed, reads go on, and so do the next fold, the next retirement and the next start."""
    for number in range(1, 150):
        disk = FaultyDisk(MemoryDisk(), Script())
        table = Table(disk)
        table.write_in_parts([Draw(number % 3, dies=number == 5, sent=3, value=1) for number in range(6)])
        table.write([Draw(0, dies=False, sent=1, value=3)], flush=True)
        rule = Rule(operation, Fault(errno.EIO, happens), path="*logs/1*", first=number)  # type: ignore[arg-type]  # one of them
        disk.plan = Script(rule)
        for step in (partial(folded, policy=policy), retired):
            with contextlib.suppress(SharedDiskFault, LogFault):
                step(table)
            if disk.log:
                break
        disk.healthy = True
        check(table)
        check(table.copy())
        check(table, FolderReader(disk))
        for draws in updates(0, 2):
            table.write(draws, flush=True)
        assert all_folded(table, policy) is not None
        retired(table)
        check(table)
        assert len(table.segments()) == 1
        assert not [name for name in disk.names("logs/1") if name.endswith(".tmp") and operation != "remove"]
        table.reopen()
        check(table)
        if not disk.log:
            return
    raise AssertionError("a fold and a retirement have fewer operations than that")


@POLICIES
def test_a_crash_anywhere_leaves_everybody_a_way_on(policy: RetentionPolicy) -> None:
    written = table_of(2)
    written.write_in_parts([Draw(key, dies=False, sent=3, value=1) for key in range(2)])
    written.write([Draw(0, dies=False, sent=3, value=2)], flush=True)
    start = written.copy().rig.disk
    assert isinstance(start, MemoryDisk)
    later = [written.write([Draw(number % 3, dies=False, sent=3, value=number)], flush=True)[0] for number in range(2)]

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[Base]) -> None:
        table = Table(disk)
        for row in later:
            base = all_folded(table, policy)
            assert base is not None
            acknowledge(base)
            retired(table)
            table.append([row], aligned=LogOffset(row.at.tx, 1))
            table.flush()

    def check_image(disk: MemoryDisk, acknowledged: list[Base]) -> None:
        table = Table(disk)
        visible = table.rig.store.marks(1)[0]
        table.rows = [row for row in written.rows if row.at <= visible]
        table.states = {end: state for end, state in written.states.items() if end <= visible}
        check(table)
        base = table.rig.store.log(1).files.base
        if acknowledged:
            assert base is not None
            assert base.floor >= acknowledged[-1].floor
        table.reopen()
        check(table)
        all_folded(table, policy)
        retired(table)
        assert len(table.segments()) == 1
        check(table)

    assert for_each_crash(scenario, check_image, images=4, disk=lambda: start.crash_image(luckiest)) > 300
