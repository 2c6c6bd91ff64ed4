"""What bounds a flush: sizes of shares, blocks and rows, the time that somebody waits; and that it always ends."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from storage import file_write, incoming, limits, segment_write
from storage.disk import LocalDisk, folder_of
from storage.errors import BufferFull, CorruptBlock, DiskStalled, InvalidRows, LogFault
from storage.flusher import Flusher
from storage.incoming import FragmentShares
from storage.journal_join import JournalJoin
from storage.memory_disk import MemoryDisk
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import stored_size
from storage.store import StoreOptions
from tests.unit.builders import BOTH_FILES, NEVER_SECONDS, Rig, offsets, rows, to_journal, to_segments, transaction
from tests.unit.hooked_disk import hooked

HANG_SECONDS = 60.0
LARGE = 100_000


def one_row_for_many(rig: Rig, logs: int, small: int = 400) -> pa.RecordBatch:
    """A fragment of many small rows and a large one, which all the logs want."""
    batch = pa.concat_batches([rows(transaction(10, small)), rows([(10, 2 * small)], text="x" * LARGE)])
    for log in range(2, logs + 2):
        rig.create(log)
    numbers = list(range(2, logs + 2))
    end = LogOffset.aligned(10, small + 1)
    shares = FragmentShares(numbers, np.full(logs, small), list(range(1, logs + 1)), [1] * logs, [end] * logs)
    rig.store.append_fragment(batch, shares, after=SNAPSHOT_END, upto=end)
    return batch


def test_a_large_row_among_small_ones_is_counted_whole() -> None:
    rig = Rig()
    batch = one_row_for_many(rig, 3)
    large = stored_size(batch.slice(400, 1))
    for log in (2, 3, 4):
        assert abs(rig.store.log(log).state.pending_size - large) < 200
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] < batch.nbytes + 3_000, "it is in memory once"


def test_a_journal_write_stays_within_its_bound() -> None:
    """Logs that share a row are counted once in the buffer, and each for itself where the row is copied."""
    options = to_journal()
    rig = Rig(options=replace(options, flush=replace(options.flush, journal_flush_bytes_max=5 * LARGE)))
    one_row_for_many(rig, 30)
    logs = list(range(2, 32))
    writes = []
    while (job := rig.store.begin_flush(demand=logs)) is not None:
        assert job.journal is not None
        job.run(rig.disk)
        writes.append(job.journal.file.refs[0].header.payload_size)
        rig.store.end_flush(job)
    assert len(writes) >= 6
    assert max(writes) < 6 * LARGE
    assert all(rig.read_all(log=log) == [LogOffset(10, 800)] for log in logs)


def test_the_journal_is_emptied_as_fast_as_it_grows() -> None:
    """Logs are moved in tens of flushes at the pace of `JOURNAL_LOGS_PER_FLUSH`, while each flush adds rows of all."""
    logs_count, bytes_max = 10 * limits.JOURNAL_LOGS_PER_FLUSH, 400_000
    options = to_journal()
    flush = replace(
        options.flush,
        journal_bytes_max=bytes_max,
        journal_joined_bytes_max=2 * bytes_max,
        journal_file_bytes_max=bytes_max // 4,
    )
    rig = Rig(options=replace(options, flush=flush))
    logs = list(range(2, logs_count + 2))
    for log in logs:
        rig.create(log)
    sizes, joined, after = list[int](), list[int](), SNAPSHOT_END
    for tx in range(10, 910, 10):
        end = LogOffset.aligned(tx, logs_count)
        ends, ones = list(range(1, logs_count + 1)), [1] * logs_count
        shares = FragmentShares(logs, np.arange(logs_count), ends, ones, [end] * logs_count)
        rig.store.append_fragment(rows(transaction(tx, logs_count)), shares, after=after, upto=end)
        rig.store.flush(demand=logs)
        files = rig.store.logs.index.files.values()
        sizes.append(sum(file.size for file in files if file.is_young))
        joined.append(sum(file.size for file in files if not file.is_young))
        after = end
    grown = max(later - size for size, later in itertools.pairwise(sizes))
    assert max(sizes) <= 2 * bytes_max + 2 * grown
    assert bytes_max < max(joined) <= 4 * bytes_max + 2 * grown
    assert sum(len(rig.store.log(log).files.segments) for log in logs) == logs_count, "each was moved"
    assert all(rig.read_all(log=log)[-1].tx == tx for log in logs[::100])


def test_a_join_takes_as_many_logs_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the rows of all flushes: every part of the journal is read again for the next ones."""
    logs_count, bytes_max = 10 * limits.JOURNAL_LOGS_PER_FLUSH, 400_000
    monkeypatch.setattr(limits, "JOURNAL_JOIN_BYTES_MAX", bytes_max // 4)
    options = to_journal()
    flush = replace(options.flush, journal_bytes_max=bytes_max, journal_file_bytes_max=bytes_max // 4)
    rig = Rig(options=replace(options, flush=flush))
    logs = list(range(2, logs_count + 2))
    for log in logs:
        rig.create(log)
    joins, after, txs = list[int](), SNAPSHOT_END, itertools.count(10, 10)
    while not joins:
        end = LogOffset.aligned(tx := next(txs), logs_count)
        ends, ones = list(range(1, logs_count + 1)), [1] * logs_count
        shares = FragmentShares(logs, np.arange(logs_count), ends, ones, [end] * logs_count)
        rig.store.append_fragment(rows(transaction(tx, logs_count)), shares, after=after, upto=end)
        rig.store.flush(demand=logs)
        after = end
        while rig.store.next_flush_at() == 0.0:
            job = rig.store.begin_flush()
            assert job is not None
            job.run(rig.disk)
            rig.store.end_flush(job)
            if isinstance(job.copy, JournalJoin):
                joins.append(len(job.copy.logs))
    assert sum(joins) == logs_count
    assert len(joins) <= 8, "some four would be for what is in the bytes"
    assert all(rig.read_all(log=log)[-1].tx == tx for log in logs[::100])


def test_a_log_of_many_small_flushes_is_in_few_pieces() -> None:
    """A table that gets a row now and then fills no journal for hours, and its readers go from piece to piece."""
    rig = Rig(options=to_journal())
    rig.create(2)
    most, flushes_count = 0, 3 * limits.JOURNAL_LOG_SHARES_MAX + 5
    for tx in range(1, flushes_count + 1):
        rig.write(tx, log=2)
        rig.store.flush(demand=[2])
        most = max(most, rig.store.logs.index.shares_count(2))
    assert most == limits.JOURNAL_LOG_SHARES_MAX
    assert sum(len(segment.refs) for segment in rig.store.log(2).files.segments) == 3
    assert sorted({offset.tx for offset in rig.read_all(log=2)}) == list(range(1, flushes_count + 1))
    assert rig.durable(2).tx == flushes_count


def test_a_journal_file_has_so_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some flushes of a committed and an open share have a block for each."""
    monkeypatch.setattr("storage.flush.JOURNAL_FILE_BLOCKS_MAX", 8)
    rig = Rig(options=to_journal())
    rig.create(2)
    for tx in range(10, 210, 10):
        rig.write(tx)
        if tx % 30 == 0:
            rig.store.append(2, rows([(tx, 2)]), after=rig.upper(2), aligned=None)
        rig.store.flush(demand=[1, 2])
        if tx % 30 == 0:
            rig.store.commit(2, LogOffset(tx, 3))
    counts = [len(file.refs) for file in rig.store.logs.index.files.values()]
    assert max(counts) <= 8
    assert min(counts[:-1]) >= 7


def test_many_files_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More than may be open, with more shares than are copied at a time: each log gets its own rows."""
    monkeypatch.setattr("storage.flush.FLUSH_FILES_MAX", 4)
    monkeypatch.setattr("storage.flush.FLUSH_GATHER_SHARES_MAX", 10)
    with folder_of(LocalDisk(tmp_path)) as disk:
        rig = Rig(disk, options=to_segments())
        logs = list(range(2, 27))
        for log in logs:
            rig.create(log)
            rig.write(log, log=log)
        job = rig.store.begin_flush(demand=logs)
        assert job is not None
        job.run(disk)
        assert {write.file.stage for write in job.segments} == {file_write.Stage.DONE}
        rig.store.end_flush(job)
        assert [rig.durable(log).tx for log in logs] == logs
        assert all({offset.tx for offset in rig.read_all(log=log)} == {log} for log in logs)


def test_rows_above_the_bound_of_a_log_wait_while_a_flush_is_in_flight() -> None:
    rig = Rig(options=to_journal(log_bytes_max=3_000))
    rig.write(1, text="x" * 2_000)
    job = rig.store.begin_flush(demand=[1])
    assert job is not None
    assert not rig.store.wait_for_room(2_000, 0, log=1)
    with pytest.raises(BufferFull):
        rig.write(2, text="x" * 2_000)
    job.run(rig.disk)
    rig.store.end_flush(job)
    rig.write(2, text="x" * 2_000)


# Blocks.


def segment_blocks(rig: Rig) -> list[int]:
    return [ref.header.rows for segment in rig.store.log(1).files.segments for ref in segment.refs]


def test_a_flush_is_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_write, "BLOCK_BYTES_MAX", 3_500)
    rig = Rig(options=to_segments())
    for tx in range(1, 11):
        rig.write(tx, text="x" * 1_000)
    rig.store.flush_all()
    assert segment_blocks(rig) == [3, 3, 3, 1]
    assert rig.durable() == LogOffset(10, 1)
    again = rig.reopened()
    assert again.durable() == LogOffset(10, 1)
    assert again.read_all() == [LogOffset(tx, 0) for tx in range(1, 11)]


def test_one_large_batch_is_cut_by_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_write, "PIECE_BYTES_MAX", 3_000)
    monkeypatch.setattr(segment_write, "BLOCK_BYTES_MAX", 3_000)
    rig = Rig(options=to_segments())
    rig.write(1, 10, text="x" * 1_000)
    rig.write(2, 1, text="x" * 9_000)
    rig.write(3, 2, text="x")
    rig.store.flush_all()
    assert sum(segment_blocks(rig)) == 13
    assert max(segment_blocks(rig)) < 10
    assert rig.reopened().read_all() == [*transaction(1, 10), *transaction(2, 1), *transaction(3, 2)]


def test_open_rows_are_cut_apart_from_committed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_write, "PIECE_BYTES_MAX", 3_000)
    rig = Rig(options=to_segments())
    rig.write(1, 5, text="x" * 1_000)
    rig.store.append(1, rows(transaction(2, 5), text="x" * 1_000), after=rig.upper())
    rig.store.flush(demand=[1])
    assert rig.reopened().read_all() == transaction(1, 5)


def test_a_row_that_no_block_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "ROW_BYTES_MAX", 5_000)
    rig = Rig()
    with pytest.raises(InvalidRows, match="the row at 1_2 has 6103 bytes; at most 5000 fit"):
        rig.store.append(1, pa.concat_batches([rows([(1, 0)]), rows([(1, 2)], text="x" * 6_000)]), after=SNAPSHOT_END)
    rig.write(1, 10, text="x" * 1_000)  # more than that in all, but no row
    assert rig.upper() == LogOffset(1, 19)


# A flush ends, whatever happens.


def break_encoding(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    def refuse(*_: object) -> None:
        raise failure

    monkeypatch.setattr(file_write, "encode_block", refuse)


def test_what_cannot_be_encoded_stops_its_log_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(options=to_segments())
    rig.write(1)
    with monkeypatch.context() as patched:
        break_encoding(patched, CorruptBlock("too large"))
        assert rig.store.flush(demand=[1]) == []
    assert isinstance(rig.store.log(1).state.fault, LogFault)
    assert rig.store.log(1).state.window is None
    rig.create(2)
    rig.write(1, log=2)
    rig.store.flush_all()
    assert rig.durable(2) == LogOffset(1, 1)


@BOTH_FILES
def test_a_defect_leaves_nothing_in_flight(options: StoreOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(options=options)
    rig.write(1)
    with monkeypatch.context() as patched:
        break_encoding(patched, ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            rig.store.flush(demand=[1])
    assert rig.store.log(1).state.window is None
    assert rig.read_all() == [LogOffset(1, 0)]
    rig.store.abandon()
    rig.store.flush_all()
    assert rig.durable() == LogOffset(1, 1)


def test_a_journal_block_that_cannot_be_encoded_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no single log's fault; to try again for ever, in silence, would be the worst answer."""
    rig = Rig(options=to_journal())
    rig.write(1)
    with monkeypatch.context() as patched:
        break_encoding(patched, CorruptBlock("too large"))
        with pytest.raises(CorruptBlock):
            rig.store.flush(demand=[1])
    rig.store.flush_all()
    assert rig.durable() == LogOffset(1, 1)


# A disk that does not answer.


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Rig, Flusher]]:
    """A store whose flusher is in a sync that does not return, until the test is over."""
    monkeypatch.setattr(limits, "FLUSH_WAIT_SECONDS_MAX", 0.01)
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".journal"):
            hangs.set()
            assert goes_on.wait(HANG_SECONDS)

    rig = Rig(hooked(MemoryDisk(), hang), to_journal(flush_age_seconds=NEVER_SECONDS))
    flusher = Flusher(rig.store, lambda _: None)
    rig.write(1)
    rig.store._buffer.demand([rig.store.log(1).state])
    flusher.start()
    assert hangs.wait(HANG_SECONDS)
    yield rig, flusher
    goes_on.set()
    flusher._thread.join(HANG_SECONDS)
    assert not flusher._thread.is_alive()


def test_nobody_waits_for_ever_for_a_sync(stalled: tuple[Rig, Flusher]) -> None:
    rig, flusher = stalled
    for wait in (rig.store.abandon, rig.store.flush_all, rig.store.flush):
        with pytest.raises(DiskStalled, match=r"has not ended in 0\.01 s"):
            wait()
    with pytest.raises(DiskStalled):
        flusher.stop()
    assert offsets(rig.read().rows) == [LogOffset(1, 0)], "readers are served meanwhile"


# Many small appends.


@BOTH_FILES
def test_small_appends_are_joined_in_the_buffer(options: StoreOptions) -> None:
    """And nobody sees a difference: not a reader, not the accounts, not a later process."""
    rig = Rig(options=options)
    count = 3 * limits.LOOSE_SHARES_MAX + 5
    expected = [LogOffset(tx, 0) for tx in range(1, count + 1)]
    for tx in range(1, count + 1):
        rig.write(tx)
    state = rig.store.log(1).state
    assert len(state.pending) == 3 + 5
    assert state.pending_rows == count
    assert state.pending_size == sum(share.size for share in state.pending)
    assert rig.read_all() == expected
    assert rig.read_all(LogOffset(7, 0), 500) == expected[7:]
    rig.store.flush_all()
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    assert rig.reopened().read_all() == expected


def test_open_rows_are_not_joined_with_committed_ones() -> None:
    rig = Rig(options=to_segments())
    rig.write(1)
    for op in range(limits.LOOSE_SHARES_MAX + 3):
        after = rig.upper() if op else LogOffset(1, 1)
        rig.store.append(1, rows([(2, 2 * op)]), after=after)
    assert rig.read_all() == [LogOffset(1, 0)]
    rig.store.abandon()
    assert rig.upper() == LogOffset(1, 1)
    rig.store.flush_all()
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    assert rig.reopened().read_all() == [LogOffset(1, 0)]


def test_an_open_transaction_in_small_pieces_is_joined_and_dropped_whole() -> None:
    rig = Rig(options=to_segments())
    for op in range(2 * limits.LOOSE_SHARES_MAX):
        rig.store.append(1, rows([(2, 2 * op)]), after=rig.upper() if op else SNAPSHOT_END)
    assert len(rig.store.log(1).state.pending) == 2
    rig.store.abandon()
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0
    rig.write(2, 2 * limits.LOOSE_SHARES_MAX)
    assert len(rig.read_all()) == 2 * limits.LOOSE_SHARES_MAX


def test_segments_are_synced_together_on_a_real_disk(tmp_path: Path) -> None:
    logs = range(1, 150)
    with folder_of(LocalDisk(tmp_path)) as disk:
        rig = Rig(disk, to_segments())
        for log in logs[1:]:
            rig.create(log)
        for log in logs:
            rig.write(10, log=log)
        rig.store.flush_all()
        assert {rig.durable(log) for log in logs} == {LogOffset(10, 1)}
    with folder_of(LocalDisk(tmp_path)) as disk:
        again = Rig(disk, to_segments())
        assert all(again.read_all(log=log) == [LogOffset(10, 0)] for log in logs)
