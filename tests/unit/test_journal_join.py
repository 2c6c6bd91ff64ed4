"""Shares joined in the journal: the same rows, in the same order, in fewer pieces; and what a crash between leaves.

Any number of logs get rows with any flush: in two schemas, after lawful gaps, committed at once or later. Then some of
them are joined, on the disk and in the index, and compared with what was there before.
"""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import layout
from storage.block import BlockFlag, BlockKind
from storage.disk import Disk
from storage.errors import CorruptBlock
from storage.file_write import FileWrite, Stage
from storage.flush_control import FlushOptions
from storage.journal import JournalFile, JournalIndex, JournalShare
from storage.journal_join import JournalJoin
from storage.journal_parts import rows_of_shares
from storage.journal_scan import load_journal
from storage.limits import JOURNAL_FILE_BYTES_MAX, JOURNAL_ROUNDS_MAX
from storage.memory_disk import MemoryDisk
from storage.offset import LogOffset
from storage.shape_log import Mode
from tests.unit.builders import Rig, offsets, rows, to_journal, to_segments

LOGS = (1, 2, 3, 4)
SHAPES = st.sampled_from(["rows", "rows", "wide", "gap", "late"])
FLUSHES = st.lists(st.dictionaries(st.sampled_from(LOGS), SHAPES, min_size=1), min_size=1, max_size=8)


def written(flushes: list[dict[int, str]], file_bytes_max: int = JOURNAL_FILE_BYTES_MAX) -> Rig:
    """A journal with a block or two for each flush. All is committed and durable in the end."""
    options = to_journal()
    files = replace(options.flush, journal_file_bytes_max=file_bytes_max)
    rig = Rig(MemoryDisk(), replace(options, flush=files), mode=Mode.COMPACTED)
    for log in LOGS[1:]:
        rig.create(log)
    for tx, flush in zip(itertools.count(10, 10), flushes, strict=False):
        for log, shape in flush.items():
            columns = ("id", "text", "more") if shape == "wide" else ("id", "text")
            after = LogOffset(tx - 1, 0) if shape == "gap" else rig.upper(log)
            rig.store.append(log, rows([(tx, 2 * one) for one in range(log)], columns=columns), after=after)
            if shape != "late":
                rig.store.commit(log, LogOffset(tx, 99))
        rig.store.flush(demand=LOGS)
        for log in flush:
            rig.store.commit(log, LogOffset(tx, 99))
        rig.store.flush(demand=LOGS)
    return rig


def joined(rig: Rig, logs: list[int], bytes_max: int = 10**9) -> JournalJoin:
    """The shares of these logs, written to a file of joined shares; the index knows nothing of it yet."""
    index = rig.store.logs.index
    target = index.new_file()
    file = FileWrite(target.path, True, 0, 0, [], shared=True)
    join = JournalJoin(index.scattered(logs).up_to(bytes_max), target, file)
    join.run(rig.disk, written_at=7)
    return join


def settle(rig: Rig, join: JournalJoin) -> None:
    assert join.directory is not None
    rig.store.logs.index.add_file(join.target)
    rig.store.logs.index.join(join.scattered, join.target, join.file.refs[0], join.directory)


def spoil(rig: Rig, log: int, text: bytes) -> None:
    """A bit of this text rots, in the block of the log's second share."""
    ref = rig.store.logs.index.shares_of(log)[1].ref
    content = bytearray(rig.disk.read(ref.path, 0, rig.disk.size(ref.path)))
    content[content.index(text, ref.position)] ^= 1
    rig.disk.truncate(ref.path, 0)
    rig.disk.append(ref.path, [content])


def gaps_in(shares: list[JournalShare]) -> list[tuple[LogOffset, LogOffset]]:
    """From which row to which the source left something out."""
    return [(share.entry.previous, share.entry.first) for share in shares if BlockFlag.GAP in share.entry.flags]


def rows_in(disk: Disk, shares: list[JournalShare]) -> list[LogOffset]:
    """The offsets of all rows, after a check that each share has what it says and goes on where it should."""
    found: list[LogOffset] = []
    for share, batch in zip(shares, rows_of_shares(disk, shares), strict=True):
        assert not isinstance(batch, Exception)
        own = [] if batch is None else offsets([batch])
        assert len(own) == share.entry.rows
        assert not own or (own[0], own[-1]) == (share.entry.first, share.entry.last)
        assert not found or BlockFlag.GAP in share.entry.flags or share.entry.previous == found[-1]
        found += own
    return found


@given(FLUSHES, st.sets(st.sampled_from(LOGS), min_size=1))
def test_joined_shares_are_the_same_rows_in_fewer_pieces(flushes: list[dict[int, str]], chosen: set[int]) -> None:
    rig = written(flushes)
    index = rig.store.logs.index
    logs = [log for log in sorted(chosen) if index.holds(log)]
    if not logs:
        return
    before = {log: index.shares_of(log) for log in LOGS}
    had = {log: rows_in(rig.disk, before[log]) for log in LOGS}
    join = joined(rig, logs)
    assert join.file.stage is Stage.DONE
    (ref,) = join.file.refs
    assert (ref.header.kind, ref.header.flags, ref.header.log) == (BlockKind.JOURNAL, BlockFlag.NONE, 1)
    settle(rig, join)
    for log in LOGS:
        after = index.shares_of(log)
        assert rows_in(rig.disk, after) == had[log]
        assert gaps_in(after) == gaps_in(before[log]), "no version may be cut there"
        assert after == before[log] or log in logs
        if log in logs:
            assert {share.ref.path for share in after} == {join.target.path}
            assert len(after) <= len(before[log])
            last, was = after[-1].entry, before[log][-1].entry
            assert (last.last, last.aligned, last.wire_end) == (was.last, was.aligned, was.wire_end)
            parts = [flush[log] for flush in flushes if log in flush]
            breaks = sum("gap" in two[1:] or two.count("wide") == 1 for two in itertools.pairwise(parts))
            assert len(after) <= 1 + breaks, "one share, but for gaps and other schemas"
    assert index.files[1].live == sum(len(before[log]) for log in LOGS if log not in logs)
    assert join.target.live == sum(len(index.shares_of(log)) for log in logs)


def test_what_was_copied_stays_between_what_is_joined() -> None:
    """A file with open rows is copied, and a copy is joined no more: rows before it and behind it are no neighbours."""
    options = to_journal()
    rig = Rig(MemoryDisk(), replace(options, flush=replace(options.flush, journal_file_bytes_max=1)))
    rig.create(2)
    for tx in (10, 20, 30, 40):
        rig.write(tx)
        if tx == 20:
            rig.store.append(2, rows([(tx, 2)]), after=rig.upper(2))
        rig.store.flush(demand=[1, 2])
        if tx == 20:
            rig.store.abandon()
    had = rig.read_all()
    settle(rig, joined(rig, [1]))
    shares = rig.store.logs.index.shares_of(1)
    assert [share.entry.rows for share in shares] == [1, 1, 2]
    assert rows_in(rig.disk, shares) == had
    assert rig.read_all() == rig.reopened().read_all() == had


@given(FLUSHES, st.integers(0, 20))
def test_a_crash_leaves_both_and_each_row_counts_once(flushes: list[dict[int, str]], gone: int) -> None:
    """The files of what was joined go one after the other, the oldest first, and a crash may come at any of them."""
    rig = written(flushes, file_bytes_max=1)
    index = rig.store.logs.index
    old = sorted(index.files)
    logs = [log for log in LOGS if index.holds(log)]
    had = {log: rows_in(rig.disk, index.shares_of(log)) for log in logs}
    join = joined(rig, logs)
    settle(rig, join)
    for number in old[:gone]:
        rig.disk.remove(layout.journal_path(number))
    seen = JournalIndex()
    load_journal(rig.disk, seen, confirmed_tx=0, on_torn=lambda *_: None)
    for log in logs:
        assert rows_in(rig.disk, seen.shares_of(log)) == had[log]
    again = rig.reopened()
    assert all(again.read_all(log=log) == had[log] for log in logs)


def test_a_commit_without_rows_may_be_the_first_that_is_joined() -> None:
    """Its rows went to a segment while their transaction was open. What is joined begins where its first row stands."""
    options = to_journal()
    rig = Rig(MemoryDisk(), replace(options, flush=replace(options.flush, own_segment_bytes=2_000)))
    rig.create(2)
    rig.write(5)
    rig.store.append(2, rows([(10, 0)], text="x" * 3_000), after=rig.upper(2))
    rig.store.flush(demand=[1, 2])
    rig.store.commit(2, LogOffset(10, 9))
    rig.store.flush_all()
    rig.write(20, log=2)
    rig.store.flush_all()
    index = rig.store.logs.index
    assert [share.entry.rows for share in index.shares_of(2)] == [0, 1]
    settle(rig, joined(rig, [1, 2]))
    (share,) = index.shares_of(2)
    assert rows_in(rig.disk, [share]) == [LogOffset(20, 0)]
    assert share.entry.previous == LogOffset(10, 0)
    again = rig.reopened()
    again.store.log(2).files.segments[-1].closed = True
    again.store.append(2, rows([(30, 0)], text="x" * 3_000), after=again.upper(2), aligned=LogOffset(30, 1))
    again.store.flush_all()
    assert [segment.first for segment in again.store.log(2).files.segments] == [LogOffset(10, 0), LogOffset(20, 0)]
    assert [offset.tx for offset in again.reopened().read_all(log=2)] == [10, 20, 30]


def test_a_join_names_the_oldest_file_that_it_takes_from() -> None:
    """A file that has none of its rows may go, and says nothing of them."""
    rig = written([{1: "rows"}, {2: "rows"}, {1: "rows", 2: "rows"}], file_bytes_max=1)
    join = joined(rig, [2])
    assert sorted(rig.store.logs.index.files) == [1, 2, 3]
    assert [ref.header.log for ref in join.file.refs] == [2]


def test_only_so_many_logs_as_fit_are_joined() -> None:
    rig = written([dict.fromkeys(LOGS, "rows")] * 3)
    one = joined(rig, list(LOGS), bytes_max=1)
    assert one.logs == [1], "at least one, whole"
    settle(rig, one)
    index = rig.store.logs.index
    assert [index.shares_count(log) for log in LOGS] == [1, 3, 3, 3]
    some = index.scattered(LOGS[1:]).up_to(10**9)
    assert np.unique(some.columns["log"]).tolist() == [2, 3, 4]


def test_a_join_holds_the_rows_that_it_joins_and_no_others() -> None:
    """A part has rows of logs that stay, and what a log has lies in as many parts as there were flushes."""
    rig = Rig(MemoryDisk())
    rig.create(2)
    large, flushes_count = 200_000, 40
    for tx in range(10, 10 * flushes_count + 10, 10):
        rig.write(tx, log=1)
        rig.write(tx, log=2, text="x" * large)
        rig.store.flush(demand=[1, 2])
    tracemalloc.start()
    try:
        join = joined(rig, [1])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert join.file.stage is Stage.DONE
    assert most < 5 * large


def test_a_number_that_a_join_names_is_not_used_again() -> None:
    """Or the joined rows would seem to be still where they came from."""
    rig = written([dict.fromkeys(LOGS, "rows")] * 3, file_bytes_max=1)
    index = rig.store.logs.index
    target = JournalFile(0, layout.journal_path(0))
    join = JournalJoin(index.scattered(LOGS), target, FileWrite(target.path, True, 0, 0, [], shared=True))
    join.run(rig.disk, written_at=7)
    for number in sorted(index.files):
        rig.disk.remove(layout.journal_path(number))
    seen = JournalIndex()
    load_journal(rig.disk, seen, confirmed_tx=0, on_torn=lambda *_: None)
    assert set(seen.files) == {0}
    assert seen.new_file().number > join.file.refs[0].header.log


def test_after_a_join_that_fails_each_log_moves_by_itself() -> None:
    """One of them cannot be read, and stops; the other has its rows in a part of its own, and goes on."""
    rig = written([{1: "rows", 2: "wide"}] * 3)
    spoil(rig, 1, b"20.0")
    small = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=1, journal_file_bytes_max=1)
    again = Rig(rig.disk, replace(rig.options, flush=small), mode=rig.mode)
    for tx in (1000, 1010):
        again.write(tx, log=2)
        again.store.flush(demand=[2])
    while again.store.flush():
        pass
    one, two = again.store.log(1), again.store.log(2)
    assert isinstance(one.state.fault, CorruptBlock)
    assert (two.state.fault, len(two.files.segments)) == (None, 1)
    assert [at.tx for at in again.read_all(log=2)] == [10, 10, 20, 20, 30, 30, 1000, 1010]


def test_a_log_that_moves_is_not_joined_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or its shares would be let go twice, and the file would go while another log's are there."""
    monkeypatch.setattr("storage.limits.JOURNAL_LOGS_PER_FLUSH", 1)
    rig = written([dict.fromkeys(LOGS, "rows")] * 3)
    small = FlushOptions(own_segment_bytes=10_000, journal_bytes_max=1, journal_file_bytes_max=1)
    again = Rig(rig.disk, replace(rig.options, flush=small), mode=rig.mode)
    index = again.store.logs.index
    had = {log: again.read_all(log=log) for log in LOGS}
    again.write(1000, log=1, text="x" * 20_000)
    job = again.store.begin_flush(demand=[1])
    assert job is not None
    assert [write.drained.log.number for write in job.segments] == [1]
    assert not isinstance(job.copy, JournalJoin) or 1 not in job.copy.logs
    job.run(again.disk)
    again.store.end_flush(job)
    assert index.files[1].live == sum(len(index.shares_of(log)) for log in LOGS if index.is_needed(1, log))
    while again.store.flush():
        pass
    assert all(again.read_all(log=log)[: len(had[log])] == had[log] for log in LOGS)


def test_rows_of_an_open_transaction_are_not_joined() -> None:
    """They may have to go, and what was committed before them would go with them."""
    rig = written([dict.fromkeys(LOGS, "rows")])
    small = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=1, journal_file_bytes_max=1)
    again = Rig(rig.disk, replace(rig.options, flush=small), mode=rig.mode)
    again.write(900)
    had = again.read_all()
    again.store.append(1, rows([(910, 0)]), after=again.upper())
    again.store.flush(demand=[1])
    again.write(920, log=2)
    again.store.flush(demand=[2])
    while again.store.flush():
        pass
    again.store.abandon()
    assert again.read_all() == again.reopened().read_all() == had


@pytest.mark.parametrize("ends_after", [1, JOURNAL_ROUNDS_MAX + 1])
def test_an_open_transaction_is_waited_for(ends_after: int) -> None:
    """A flush that catches a log in mid-transaction costs no file of its own, unless the transaction is long."""
    rig = written([dict.fromkeys(LOGS, "rows")])
    small = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=1, journal_file_bytes_max=1)
    again = Rig(rig.disk, replace(rig.options, flush=small), mode=rig.mode)
    again.store.append(1, rows([(910, 0)]), after=again.upper())
    again.store.flush(demand=[1])
    for tx in range(920, 920 + ends_after):
        again.write(tx, log=2)
        again.store.flush(demand=[2])
        while again.store.next_flush_at() == 0.0:
            again.store.flush()
    again.store.commit(1, LogOffset(910, 99))
    for tx in (1000, 1010):
        again.write(tx, log=2)
        while again.store.next_flush_at() == 0.0 or again.store.log(1).state.dirty:
            again.store.flush(demand=[1, 2])
    assert again.reopened().read_all() == again.read_all() == [LogOffset(10, 0), LogOffset(910, 0)]
    assert len(again.store.log(1).files.segments) == (0 if ends_after == 1 else 1)
    assert not again.store.logs.index.is_needed(1, 1), "the oldest file is emptied all the same"


def test_a_long_transaction_does_not_keep_the_journal() -> None:
    """Whatever comes behind it: young files go in order, so all of them would wait for the first."""
    rig = written([dict.fromkeys(LOGS, "rows")])
    small = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=1, journal_file_bytes_max=1)
    again = Rig(rig.disk, replace(rig.options, flush=small), mode=rig.mode)
    again.store.append(1, rows([(910, 0)]), after=again.upper())
    again.store.flush(demand=[1])
    index = again.store.logs.index
    (oldest,) = index.young_files
    for tx in range(920, 920 + 4 * JOURNAL_ROUNDS_MAX):
        again.write(tx, log=2)
        again.store.flush(demand=[2])
    assert len(again.store.log(1).files.segments) == 1
    assert oldest not in index.files


def test_a_log_that_a_segment_has_whole_is_not_joined() -> None:
    """A process ended between the sync of the segment and the removal of the journal file."""
    rig = written([dict.fromkeys(LOGS, "rows")] * 2)
    moved = Rig(rig.disk, to_segments(), mode=rig.mode)
    moved.write(900)
    moved.store.flush(demand=[1])
    assert moved.store.log(1).files.segments
    small = FlushOptions(own_segment_bytes=2**40, journal_bytes_max=1, journal_file_bytes_max=1)
    again = Rig(rig.disk, replace(rig.options, flush=small), mode=rig.mode)
    again.write(920, log=2)
    again.store.flush(demand=[2])
    again.write(930, log=2)
    again.store.flush(demand=[2])
    while again.store.flush():
        pass
    assert again.store.logs.index.shares_of(1) == []
    assert len(again.read_all()) == 3


@given(FLUSHES, st.sets(st.sampled_from(LOGS)))
def test_what_left_before_a_join_has_ended_leaves_once(flushes: list[dict[int, str]], gone: set[int]) -> None:
    rig = written(flushes)
    index = rig.store.logs.index
    logs = [log for log in LOGS if index.holds(log)]
    join = joined(rig, logs)
    for log in gone:
        index.drop(log)
    settle(rig, join)
    assert index.files[1].live == 0
    assert join.target.live == sum(index.shares_count(log) for log in logs)
    assert not any(index.holds(log) for log in gone)


def test_what_cannot_be_read_is_not_joined() -> None:
    rig = written([dict.fromkeys(LOGS, "rows")] * 3)
    spoil(rig, 1, b"20.0")
    join = joined(rig, list(LOGS))
    assert isinstance(join.file.failure, CorruptBlock)
    assert join.file.stage is Stage.WAITING
    assert not rig.disk.exists(join.target.path)
