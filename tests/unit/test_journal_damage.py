"""A damaged block of the journal stops the logs that may have lost rows with it, and no others.

Below G no log is ever shorter than it was without saying so, in the process that finds the damage and in those that
follow, and in readers beside them.
"""

import contextlib
import zlib
from dataclasses import replace

import pytest

from storage import layout
from storage.block import HEADER_SIZE
from storage.errors import CorruptBlock, Hole, LogFault, UnknownFormat
from storage.flush_control import FlushOptions
from storage.folder_reader import FolderReader
from storage.limits import BLOCK_ALIGNMENT_BYTES
from storage.memory_disk import Crashed, MemoryDisk, luckiest, strictest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions
from tests.unit.builders import NEVER_SECONDS, Rig, offsets, rows, to_journal, to_segments, transaction

LOGS = (1, 2, 3, 4)
G = 100
"""Above all that is written here."""

IN_HEADER = 40
IN_DIRECTORY = HEADER_SIZE + 64 + 300
"""Into the block: the first part, behind the table."""


def spoiled(disk: MemoryDisk, path: str, position: int) -> None:
    content = bytearray(disk.contents()[path])
    content[position] ^= 1
    disk.truncate(path, 0)
    disk.append(path, [content])
    disk.sync(path)


def written() -> tuple[MemoryDisk, str, list[int]]:
    """A journal with a block each of logs 1, 2, 1, 3; log 4 has a segment that was written last. Where blocks begin."""
    disk = MemoryDisk()
    rig = Rig(disk, to_journal())
    for log in LOGS[1:]:
        rig.create(log)
    starts: list[int] = []
    for tx, log in ((10, 4), (20, 1), (30, 2), (40, 1), (50, 3)):
        rig.write(tx, log=log)
        rig.store.flush_all()
        rig.clock.seconds += 1
    (file,) = rig.store.logs.index.files.values()
    starts = [ref.position for ref in file.refs]
    own = Rig(disk, to_segments())
    own.clock.seconds = rig.clock.seconds
    own.write(60, log=4)
    own.store.flush_all()
    return disk, file.path, starts


def read_on(rig: Rig | FolderReader, log: int) -> tuple[list[int], type[Exception] | None]:
    """The transactions that can be read, and what is told behind them."""
    found: list[int] = []
    after = SNAPSHOT_END
    while True:
        try:
            result = rig.read(after, log=log) if isinstance(rig, Rig) else rig.read(log, after)
        except LogFault as fault:
            return found, type(fault)
        found += [offset.tx for offset in offsets(result.rows)]
        if result.at_end:
            return found, None
        assert result.next > after
        after = result.next


def everywhere(disk: MemoryDisk, confirmed_tx: int) -> list[dict[int, tuple[list[int], type[Exception] | None]]]:
    """What the next process finds, the one after it, and the one after a power cut."""
    reader = FolderReader(disk, pause=lambda _: None)
    found = [{log: read_on(reader, log) for log in LOGS}]
    for _ in range(2):
        rig = Rig(disk, to_journal(), confirmed_tx=confirmed_tx)
        found.append({log: read_on(rig, log) for log in LOGS})
    found.append({log: read_on(reader, log) for log in LOGS})
    rig = Rig(disk.crash_image(strictest), to_journal(), confirmed_tx=confirmed_tx)
    found.append({log: read_on(rig, log) for log in LOGS})
    return found


@pytest.mark.parametrize("where", [IN_HEADER, IN_DIRECTORY], ids=["header", "directory"])
def test_who_went_on_behind_the_damage_is_sound(where: int) -> None:
    disk, path, starts = written()
    spoiled(disk, path, starts[2] + where)  # of log 2
    for found in everywhere(disk, G):
        assert found[1] == ([20, 40], None), "its later share continues from the one before"
        assert found[2] == ([], CorruptBlock)
        assert found[3] == ([50], None)
        assert found[4] == ([10, 60], None), "its segment took along what the journal held"


def test_who_lost_a_share_in_the_middle_has_a_hole() -> None:
    disk, path, starts = written()
    rig = Rig(disk, to_journal())
    rig.write(70, log=2)
    rig.store.flush_all()
    spoiled(disk, path, starts[2] + IN_HEADER)
    assert all(found[2] == ([], Hole) for found in everywhere(disk, G))


def test_who_ends_before_the_damage_stops() -> None:
    disk, path, starts = written()
    spoiled(disk, path, starts[4] + IN_HEADER)  # of log 3, and nothing follows
    first, *found = everywhere(disk, G)
    assert first[4] == ([10, 60], CorruptBlock), "a reader sees nothing that was written later"
    assert all(one[3] == ([], CorruptBlock) for one in found)
    assert all(one[1] == ([20, 40], CorruptBlock) for one in found)
    assert all(one[2] == ([30], CorruptBlock) for one in found)


def test_who_has_all_below_g_is_sound() -> None:
    """What is missing above it, Postgres sends again."""
    disk, path, starts = written()
    spoiled(disk, path, starts[4] + IN_HEADER)
    _, *found = [one for number, one in enumerate(everywhere(disk, 40)) if number != 3]
    assert all(one[1] == ([20, 40], None) for one in found)
    assert all(one[2] == ([30], CorruptBlock) for one in found)


def test_a_copy_is_no_witness_of_when_something_was_written() -> None:
    """A copy has the next number at once, while the file before it goes on."""
    disk = MemoryDisk()
    rig = Rig(disk, to_journal())
    for log in (2, 3):
        rig.create(log)
    rig.write(10, log=2)
    for tx in range(11, 16):
        rig.write(tx)
        rig.store.flush_all()
    facts, text = layout.log_facts(2), disk.contents()[layout.log_facts(2)]
    spoiled(disk, facts, 5)  # it cannot be opened, so what the journal holds of it can only be copied
    rig = Rig(disk, going_on(journal_bytes_max=20_000, journal_file_bytes_max=20_000))
    for tx in range(20, 40):
        rig.clock.seconds += 1
        rig.write(tx, log=1)
        rig.store.flush_all()
        if not disk.exists(layout.journal_path(1)):
            break
    assert disk.exists(layout.journal_path(3)), "the copy"
    for tx, text_bytes in ((50, 20_000), (60, 8)):  # the first goes to the log's segment
        rig.clock.seconds += 1
        rig.write(tx, log=3, text="x" * text_bytes)
        rig.store.flush_all()
    file = rig.store.logs.index.files[2]
    disk.truncate(facts, 0)
    disk.append(facts, [text])
    spoiled(disk, file.path, file.refs[-1].position + IN_HEADER)
    assert read_on(Rig(disk, confirmed_tx=G), 3) == ([50], CorruptBlock)


def going_on(**flush: int) -> StoreOptions:
    return StoreOptions(
        buffer=BufferOptions(flush_age_seconds=NEVER_SECONDS), flush=FlushOptions(own_segment_bytes=10_000, **flush)
    )


def test_rows_that_cannot_be_read_are_one_logs() -> None:
    disk, path, starts = written()
    spoiled(disk, path, starts[3] - BLOCK_ALIGNMENT_BYTES)  # rows of log 2
    for _ in range(2):
        rig = Rig(disk, confirmed_tx=G)
        assert [read_on(rig, log)[1] for log in LOGS] == [None, CorruptBlock, None, None]


def test_a_stopped_log_takes_no_more_rows_and_the_others_do() -> None:
    disk, path, starts = written()
    spoiled(disk, path, starts[2] + IN_HEADER)
    rig = Rig(disk, to_journal(), confirmed_tx=G)
    with pytest.raises(LogFault):
        rig.write(200, log=2)
    for log in (1, 3, 4):
        rig.write(200, log=log)
    rig.store.flush_all()
    rig.store.remove_log(2)
    rig.create(5)
    again = Rig(disk, to_journal(), confirmed_tx=300)
    assert again.read_all(log=1) == [LogOffset(tx, 0) for tx in (20, 40, 200)]
    assert again.read_all(log=5) == [], "a log that was made since has lost nothing"
    damaged = [name for name in disk.names(layout.JOURNAL) if name.endswith(".damaged")]
    assert len(damaged) == 1, "for whoever wants to look"


def test_the_open_rows_of_a_stopped_log_stay() -> None:
    """Their commit may be what was lost."""
    rig = Rig(MemoryDisk(), to_journal())
    rig.store.append(1, rows(transaction(2, 2)), after=SNAPSHOT_END)
    rig.store.flush(demand=[1])
    rig.store.commit(1, LogOffset(2, 5))
    rig.store.flush_all()
    disk = rig.disk
    assert isinstance(disk, MemoryDisk)
    (file,) = rig.store.logs.index.files.values()
    spoiled(disk, file.path, file.refs[1].position + IN_HEADER)
    for _ in range(2):
        again = Rig(disk, confirmed_tx=G)
        assert isinstance(again.store.log(1).state.fault, CorruptBlock)
        assert b"2.0" in b"".join(content for path, content in disk.contents().items() if path.endswith(".journal"))


def test_open_rows_behind_the_damage_are_no_witness() -> None:
    """They are removed, since their transaction is sent again; what they continued from was below G, and is not."""
    disk = MemoryDisk()
    rig = Rig(disk, to_journal())
    rig.create(2)
    for log in (1, 2):
        rig.write(10, log=log)
    rig.store.flush_all()
    again = rig.reopened(confirmed_tx=11)
    again.store.append(2, rows(transaction(20, 1)), after=again.upper(2))
    again.store.flush(demand=[2])
    path = rig.store.logs.index.files[1].path
    spoiled(disk, path, IN_HEADER)
    for found in (rig.reopened(confirmed_tx=11), rig.reopened(confirmed_tx=11)):
        assert read_on(found, 1) == ([], CorruptBlock)
        assert read_on(found, 2) == ([], Hole), "it is in doubt, so its open rows stay, and show the hole"


def test_a_crash_while_the_file_is_put_aside_changes_nothing() -> None:
    start, path, starts = written()
    spoiled(start, path, starts[2] + IN_HEADER)
    expected = everywhere(start.crash_image(luckiest), G)[1]
    number = 0
    crashed = True
    while crashed:
        number += 1
        for image in (strictest, luckiest):
            disk = start.crash_image(luckiest)
            disk.crash_at_operation = number
            with contextlib.suppress(Crashed):
                Rig(disk, confirmed_tx=G)
            crashed = disk.crashed
            for found in everywhere(disk.crash_image(image), G)[1:]:
                assert found == expected
    assert number > 8


def test_another_versions_journal_is_refused() -> None:
    disk, path, starts = written()
    content = bytearray(disk.contents()[path])
    header = bytearray(content[starts[1] : starts[1] + HEADER_SIZE])
    header[8] = 2
    header[-4:] = zlib.crc32(bytes(header[:-4])).to_bytes(4, "little")
    content[starts[1] : starts[1] + HEADER_SIZE] = header
    disk.truncate(path, 0)
    disk.append(path, [content])
    with pytest.raises(UnknownFormat):
        Rig(disk, confirmed_tx=G)
    assert disk.contents()[path] == bytes(content)


def test_open_rows_beside_rows_that_cannot_be_read_are_removed() -> None:
    """A file with open rows is written anew: what cannot be read of it stops its log, not the store."""
    options = StoreOptions(
        buffer=BufferOptions(flush_age_seconds=NEVER_SECONDS), flush=FlushOptions(own_segment_bytes=2**40)
    )
    rig = Rig(MemoryDisk(), options)
    rig.create(2)
    rig.write(10, log=2)
    rig.store.flush_all()
    rig.store.append(1, rows(transaction(20, 2)), after=SNAPSHOT_END)
    rig.store.flush(demand=[1])
    disk = rig.disk
    assert isinstance(disk, MemoryDisk)
    (file,) = rig.store.logs.index.files.values()
    spoiled(disk, file.path, file.refs[1].position - BLOCK_ALIGNMENT_BYTES)
    again = Rig(disk, options, confirmed_tx=15)
    assert again.read_all() == []
    assert read_on(again, 2) == ([], CorruptBlock)
    again.write(20)
    again.store.flush_all()
    assert Rig(disk, options, confirmed_tx=25).read_all() == [LogOffset(20, 0)]


def rig_that_joins(monkeypatch: pytest.MonkeyPatch, file_bytes_max: int) -> tuple[Rig, MemoryDisk]:
    """Its journal is so short that shares are soon joined, of one log with each flush."""
    monkeypatch.setattr("storage.limits.JOURNAL_LOGS_PER_FLUSH", 1)
    options = to_journal()
    flush = replace(options.flush, journal_bytes_max=8_000, journal_file_bytes_max=file_bytes_max)
    disk = MemoryDisk()
    return Rig(disk, replace(options, flush=flush)), disk


def test_a_file_that_goes_out_of_turn_takes_the_witness_of_joined_rows_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joined block names the oldest file that it was made of: while that is there, it may be torn, and nothing lost.

    Open rows are removed with their file, though older ones stay: rows that were joined out of it have gone with it.
    """
    rig, disk = rig_that_joins(monkeypatch, file_bytes_max=3_000)
    index = rig.store.logs.index
    for log in (2, 3):
        rig.create(log)
    tx = 0
    while not index.joined_files:
        tx += 10
        for log in (1, 2) if len(index.young_files) < 2 else (2,):
            rig.write(tx, log=log)
        if len(index.young_files) == 2:
            rig.store.append(3, rows(transaction(tx, 1)), after=rig.upper(3))
        rig.store.flush(demand=[1, 2, 3])
    (joined,) = index.joined_files.values()
    (share,) = index.shares_of(1)
    assert share.ref.path == joined.path
    had = rig.read_all()
    rig.store.abandon()
    assert not disk.exists(layout.journal_path(2)), "it had the open rows, and joined ones of log 1"
    again = rig.reopened(confirmed_tx=tx + 1)
    assert (again.read_all(), len(again.read_all(log=2))) == (had, tx // 10)
    spoiled(disk, joined.path, share.ref.end - BLOCK_ALIGNMENT_BYTES)
    for _ in range(2):
        found, fault = read_on(rig.reopened(confirmed_tx=tx + 1), 1)
        assert found == [at.tx for at in had] or fault is not None


def test_joined_rows_are_no_witness_of_what_came_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their file has the next number at once, while the one before it goes on, and loses a row behind them."""
    rig, disk = rig_that_joins(monkeypatch, file_bytes_max=3_500)
    index = rig.store.logs.index
    rig.create(2)
    tx = 0
    while not (index.joined_files and index.shares_of(1)[-1].ref.path < layout.journal_path(min(index.joined_files))):
        tx += 10
        for log in (1, 2):
            rig.write(tx, log=log)
        rig.store.flush(demand=[1, 2])
    had = [at.tx for at in rig.read_all()]
    *_, joined, last = index.shares_of(1)
    assert joined.ref.header.log
    assert not last.ref.header.log
    spoiled(disk, last.ref.path, last.ref.position + IN_HEADER)
    found, fault = read_on(rig.reopened(confirmed_tx=tx + 1), 1)
    assert found == had[:-1]
    assert fault is not None


def test_a_later_damage_takes_no_verdict_back() -> None:
    """The numbers of files begin anew where the journal is empty, but not those of files that were put aside."""
    disk, path, starts = written()
    spoiled(disk, path, starts[2] + IN_HEADER)
    rig = Rig(disk, to_segments(), confirmed_tx=G)
    for log in (1, 3, 4):  # their segments take along what the journal has of them
        rig.write(G, log=log)
        rig.store.flush_all()
    rig = Rig(disk, to_journal(), confirmed_tx=G)
    assert not [name for name in disk.names(layout.JOURNAL) if layout.journal_number(name)]
    aside = set(disk.names(layout.JOURNAL))
    rig.write(G + 10, log=1)
    rig.store.flush_all()
    (file,) = rig.store.logs.index.files.values()
    spoiled(disk, file.path, disk.contents()[file.path].index(f"{G + 10}.0".encode()))
    for found in everywhere(disk, G + 20)[1:]:
        assert found[1] == ([20, 40, G], CorruptBlock)
        assert found[2] == ([], CorruptBlock), "it may have lost rows with the first file"
        assert found[3] == ([50, G], None)
    assert set(disk.names(layout.JOURNAL)) > aside, "nor is the file replaced that somebody may want to look at"
