"""The index of the journal: which shares of which log are still needed, in which file; compared with plain lists."""

from collections.abc import Iterable
from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage import layout
from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.errors import CorruptBlock
from storage.file_write import FileWrite, Stage
from storage.flush import WaitingLogs
from storage.journal import JournalFile, JournalIndex, JournalShare, aligned_of
from storage.journal_block import Directory, JournalPart, ShareEntry, encode_journal
from storage.journal_scan import load_journal
from storage.journal_write import JournalCopy
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END, LogOffset
from storage.parts import encode_batches
from storage.scan import BlockRef
from storage.share import Share, Source
from tests.unit.builders import offsets, rows

HEADER = BlockHeader(
    kind=BlockKind.JOURNAL,
    flags=BlockFlag.NONE,
    rows=0,
    payload_size=0,
    previous=SNAPSHOT_END,
    first=SNAPSHOT_END,
    last=SNAPSHOT_END,
    aligned=SNAPSHOT_END,
    wire_end=0,
    synced_before=0,
    log=0,
    written_at=0,
)


def entry(log: int, tx: int, *, aligned: LogOffset | None = None, count: int = 1) -> ShareEntry:
    """A share of one transaction; without `aligned` it is whole."""
    last = LogOffset(tx, 0)
    return ShareEntry(
        log=log,
        flags=BlockFlag.NONE,
        previous=LogOffset(tx - 1, 0),
        first=last,
        last=last,
        aligned=LogOffset(tx, 1) if aligned is None else aligned,
        rows=count,
        wire_end=100 * tx,
        table=0,
        row=0,
    )


def directory(entries: Iterable[ShareEntry]) -> Directory:
    flat = [
        (one.log, one.flags, *one.previous, *one.first, *one.last, *one.aligned, one.rows, one.wire_end, 0, one.row)
        for one in entries
    ]
    names = ["log", "flags", "previous_tx", "previous_op", "first_tx", "first_op", "last_tx", "last_op"]
    names += ["aligned_tx", "aligned_op", "rows", "wire_end", "table", "row"]
    columns = np.array(flat, dtype=np.uint64).reshape(len(flat), len(names)).T
    return Directory(dict(zip(names, columns, strict=True)))


def add_block(index: JournalIndex, file: JournalFile, *entries: ShareEntry) -> None:
    ref = BlockRef(file.path, file.size, HEADER)
    index.add_block(file, ref, directory(entries))


def new_file(index: JournalIndex) -> JournalFile:
    file = index.new_file()
    index.add_file(file)
    return file


def entries_of(shares: Iterable[JournalShare]) -> list[ShareEntry]:
    return [share.entry for share in shares]


def test_shares_are_found_by_log_oldest_first() -> None:
    index = JournalIndex()
    first, second = new_file(index), new_file(index)
    add_block(index, first, entry(1, 10), entry(2, 10))
    add_block(index, second, entry(2, 20))
    add_block(index, second, entry(1, 20), entry(1, 30))
    assert entries_of(index.shares_of(1)) == [entry(1, 10), entry(1, 20), entry(1, 30)]
    assert [share.ref.path for share in index.shares_of(2)] == [first.path, second.path]
    assert index.shares_of(3) == []
    assert (index.holds(1), index.holds(3), sorted(index.logs())) == (True, False, [1, 2])
    assert (first.live, second.live, index.size) == (2, 3, first.size + second.size)


def test_a_number_is_used_once() -> None:
    index = JournalIndex()
    assert [index.new_file().number for _ in range(3)] == [1, 2, 3]
    index.add_file(JournalFile(9, layout.journal_path(9)))
    assert index.new_file().number == 10
    index.drop_file(9)
    assert index.new_file().number == 11


def test_a_log_in_its_segments_is_needed_no_more() -> None:
    index = JournalIndex()
    file = new_file(index)
    add_block(index, file, entry(1, 10), entry(2, 10), entry(1, 20))
    index.drop(1)
    assert index.shares_of(1) == []
    assert entries_of(index.living(file.number)) == [entry(2, 10)]
    assert (file.live, index.logs_in(file.number)) == (1, [2])
    assert [index.is_needed(file.number, log) for log in (1, 2)] == [False, True]
    index.drop(1)
    index.drop(7)
    assert file.live == 1


def test_shares_that_the_segments_have_too_are_dropped() -> None:
    index = JournalIndex()
    file = new_file(index)
    add_block(index, file, entry(1, 10), entry(1, 20), entry(1, 30))
    index.drop_covered(1, LogOffset(20, 0), LogOffset(20, 1))
    assert entries_of(index.shares_of(1)) == [entry(1, 30)]
    assert file.live == 1
    index.drop_covered(1, LogOffset(99, 0), LogOffset(99, 1))
    assert not index.holds(1)


def test_a_claim_that_the_segments_do_not_make_is_kept() -> None:
    """The commit came to the journal after its rows had gone to a segment."""
    index = JournalIndex()
    file = new_file(index)
    commit = entry(1, 20, aligned=LogOffset(20, 7), count=0)
    add_block(index, file, commit)
    index.drop_covered(1, LogOffset(20, 0), LogOffset(10, 1))
    assert entries_of(index.shares_of(1)) == [commit]
    assert aligned_of(index.shares_of(1)) == LogOffset(20, 7)


def test_a_copy_beside_its_original_counts_once() -> None:
    """A crash between the sync of a copy and the removal of the old file leaves both."""
    index = JournalIndex()
    old = new_file(index)
    add_block(index, old, entry(1, 10), entry(1, 20))
    add_block(index, new_file(index), entry(1, 10), entry(1, 20))
    assert entries_of(index.shares_of(1)) == [entry(1, 10), entry(1, 20)]
    index.drop_doubled(1)
    assert entries_of(index.shares_of(1)) == [entry(1, 10), entry(1, 20)]
    assert (old.live, [file.live for file in index.files.values()]) == (2, [2, 0])
    index.drop_file(2)
    assert entries_of(index.shares_of(1)) == [entry(1, 10), entry(1, 20)]


def test_logs_that_wait_are_looked_up_once_a_round() -> None:
    """Emptying a file takes hundreds of flushes, each of which would go through all of its blocks."""
    index = JournalIndex()
    file = new_file(index)
    add_block(index, file, *(entry(log, 10) for log in (1, 2, 3, 4)))
    waiting = WaitingLogs(index)
    assert waiting.begin(file.number)
    assert list(islice(waiting.take(), 3)) == [1, 2, 3]
    index.drop(1)
    waiting.put_back([2, 3])
    assert not waiting.begin(file.number)
    index.drop(3)
    assert list(waiting.take()) == [2, 4]
    assert waiting.begin(file.number), "they are still there, so it begins again"
    assert list(waiting.take()) == [2, 4]
    index.drop(2)
    index.drop(4)
    assert waiting.begin(file.number)
    assert list(waiting.take()) == []


def test_rows_and_their_later_commit_are_two_shares() -> None:
    index = JournalIndex()
    file = new_file(index)
    open_rows = entry(1, 20, aligned=LogOffset(10, 1))
    commit = entry(1, 20, aligned=LogOffset(20, 3), count=0)
    add_block(index, file, open_rows)
    add_block(index, file, commit)
    assert entries_of(index.shares_of(1)) == [open_rows, commit]
    assert aligned_of(index.shares_of(1)) == LogOffset(20, 3)
    assert aligned_of([]) is None


def test_blocks_of_many_files_fit_into_one() -> None:
    """A copy may have more blocks than any file that is written flush by flush."""
    index = JournalIndex()
    first, second = new_file(index), new_file(index)
    for tx in range(1, 4_200):
        add_block(index, first, entry(tx % 7, tx))
        add_block(index, second, entry(7, tx))
    for log in range(8):
        assert [share.entry.log for share in index.shares_of(log)] == [log] * len(index.shares_of(log))
    assert len(index.shares_of(7)) == 4_199
    index.drop_file(first.number)
    assert sorted(index.logs()) == [7]
    assert second.live == 4_199


class Plain:
    """The index as lists: file number -> blocks -> [entry, still needed]."""

    def __init__(self) -> None:
        self.files: dict[int, list[list[list[ShareEntry | bool]]]] = {}

    def living(self, number: int) -> list[ShareEntry]:
        return [share[0] for block in self.files[number] for share in block if share[1]]  # type: ignore[misc]  # pairs

    def of(self, log: int) -> list[ShareEntry]:
        found = {one for number in self.files for one in self.living(number) if one.log == log}
        return sorted(found, key=lambda one: (one.last, one.aligned))

    def drop(self, log: int, *, last: int = 10**9) -> None:
        for blocks in self.files.values():
            for block in blocks:
                for share in block:
                    one = share[0]
                    assert isinstance(one, ShareEntry)
                    if one.log == log and one.last.tx <= last:
                        share[1] = False


STEPS = st.lists(
    st.tuples(st.sampled_from(["file", "block", "block", "copy", "drop", "covered", "remove"]), st.integers(0, 5)),
    max_size=40,
)


@given(STEPS)
def test_the_index_is_the_plain_lists(steps: list[tuple[str, int]]) -> None:
    index, plain = JournalIndex(), Plain()
    for tx, (step, number) in enumerate(steps, start=1):
        numbers = sorted(plain.files)
        file = index.files[numbers[number % len(numbers)]] if numbers else None
        match step:
            case "file":
                plain.files[new_file(index).number] = []
            case "block" if file is not None:
                taken = [entry(log, tx) for log in range(1 + number % 3, 5)]
                add_block(index, file, *taken)
                plain.files[file.number].append([[one, True] for one in taken])
            case "copy" if file is not None and plain.living(file.number):
                target = new_file(index)
                taken = plain.living(file.number)
                add_block(index, target, *taken)
                plain.files[target.number] = [[[one, True] for one in taken]]
            case "drop":
                index.drop(number)
                plain.drop(number)
            case "covered":
                index.drop_covered(number, LogOffset(tx // 2, 0), LogOffset(tx // 2, 1))
                plain.drop(number, last=tx // 2)
            case "remove" if file is not None:
                index.drop_file(file.number)
                del plain.files[file.number]
        for log in range(6):
            assert entries_of(index.shares_of(log)) == plain.of(log)
            assert index.holds(log) == bool(plain.of(log))
            after = LogOffset(tx * number // 5, 0)
            assert entries_of(index.shares_of(log, after)) == [one for one in plain.of(log) if one.last > after]
        for one in plain.files:
            assert entries_of(index.living(one)) == plain.living(one)
            assert index.files[one].live == len(plain.living(one))
            assert sorted(index.logs_in(one)) == sorted({share.log for share in plain.living(one)})


# Files.


def written(disk: MemoryDisk, number: int, *transactions: int, log: int = 1) -> JournalFile:
    """A journal file with a block for each transaction."""
    file = JournalFile(number, layout.journal_path(number))
    blocks = []
    previous = SNAPSHOT_END
    for tx in transactions:
        share = Share(Source(rows([(tx, 0)])), None, at=0.0)
        share.previous, previous = previous, share.last
        encoded = encode_journal([JournalPart(log, [share], share.previous, LogOffset(tx, 1), SNAPSHOT_END, 0)])
        blocks.append((HEADER, encoded.parts))
    disk.make_folder(layout.JOURNAL)
    write = FileWrite(file.path, is_new=True, size=0, synced=0, repairs=[], shared=True)
    write.put(disk, blocks)
    assert write.stage is Stage.DONE
    return file


def never_torn(path: str, end: int, why: str) -> None:
    raise AssertionError(f"{path} is torn at {end}: {why}")


def test_a_journal_is_loaded_from_its_directories() -> None:
    disk = MemoryDisk()
    written(disk, 3, 10, 20)
    written(disk, 7, 30, log=2)
    disk.create("journal/notes.txt")
    index = JournalIndex()
    load_journal(disk, index, confirmed_tx=0, on_torn=never_torn)
    assert sorted(index.files) == [3, 7]
    assert [share.entry.last.tx for share in index.shares_of(1)] == [10, 20]
    assert index.new_file().number == 8
    assert index.size == sum(map(len, disk.contents().values()))


def test_a_torn_journal_is_told() -> None:
    disk = MemoryDisk()
    file = written(disk, 1, 10, 20)
    size = disk.size(file.path)
    disk.truncate(file.path, size - 1)
    torn: list[tuple[str, int, str]] = []
    index = JournalIndex()
    load_journal(disk, index, confirmed_tx=0, on_torn=lambda *told: torn.append(told))
    assert [(path, end) for path, end, _ in torn] == [(file.path, index.files[1].refs[-1].end)]
    assert [share.entry.last.tx for share in index.shares_of(1)] == [10]


def test_another_kind_of_block_is_no_journal() -> None:
    disk = MemoryDisk()
    disk.make_folder(layout.JOURNAL)
    write = FileWrite(layout.journal_path(1), is_new=True, size=0, synced=0, repairs=[], shared=True)
    header = BlockHeader(**{name: getattr(HEADER, name) for name in HEADER.__slots__} | {"kind": BlockKind.ROWS})
    write.put(disk, [(header, [encode_batches([rows([(1, 0)])])])])
    index = JournalIndex()
    load_journal(disk, index, confirmed_tx=0, on_torn=never_torn)
    (place,) = index.files[1].unreadable
    assert "another kind" in str(place.fault)


def test_a_copy_has_the_rows_and_says_where_they_come_from() -> None:
    disk = MemoryDisk()
    written(disk, 1, 10, 20)
    index = JournalIndex()
    load_journal(disk, index, confirmed_tx=0, on_torn=never_torn)
    shares = index.shares_of(1)
    target = index.new_file()
    copy = JournalCopy(shares, target, FileWrite(target.path, True, 0, 0, [], shared=True), 1)
    copy.run(disk, 5)
    assert copy.file.stage is Stage.DONE
    assert {ref.header.log for ref in copy.file.refs} == {1}
    disk.remove(layout.journal_path(1))
    again = JournalIndex()
    load_journal(disk, again, confirmed_tx=99, on_torn=never_torn)
    assert [(one.last, one.aligned, one.previous) for one in entries_of(again.shares_of(1))] == [
        (one.entry.last, one.entry.aligned, one.entry.previous) for one in shares
    ]
    assert [offsets(block.tables) for block in copy.blocks] == [[LogOffset(10, 0)], [LogOffset(20, 0)]]


def test_a_copy_of_what_cannot_be_read_fails_and_says_why() -> None:
    disk = MemoryDisk()
    file = written(disk, 1, 10)
    index = JournalIndex()
    load_journal(disk, index, confirmed_tx=0, on_torn=never_torn)
    content = bytearray(disk.contents()[file.path])
    content[-200] ^= 1
    disk.truncate(file.path, 0)
    disk.append(file.path, [content])
    target = index.new_file()
    copy = JournalCopy(index.shares_of(1), target, FileWrite(target.path, True, 0, 0, [], shared=True), 1)
    copy.run(disk, 5)
    assert isinstance(copy.file.failure, CorruptBlock)
    assert copy.file.stage is Stage.WAITING
    assert not disk.exists(target.path)
