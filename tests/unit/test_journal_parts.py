"""Rows out of the journal: the right ones for each share, each part read once, and damage told to whom it concerns."""

from storage.errors import CorruptBlock
from storage.journal import JournalShare
from storage.journal_parts import rows_of_shares
from storage.memory_disk import MemoryDisk
from storage.offset import LogOffset
from tests.unit.builders import Rig, offsets, rows, to_journal
from tests.unit.hooked_disk import hooked

LOGS = range(1, 21)


def written() -> Rig:
    """Three journal blocks with rows of all logs, of some logs in two schemas, and one of bare commits."""
    rig = Rig(options=to_journal())
    for log in LOGS[1:]:
        rig.create(log)
    for tx in (10, 20, 30):
        for log in LOGS:
            columns = ("id", "text", "more") if log % 2 else ("id", "text")
            batch = rows([(tx, 2 * log)], text=f"log {log}", columns=columns)
            rig.store.append(log, batch, after=rig.upper(log))
            if tx < 30:
                rig.store.commit(log, LogOffset(tx, 99))
        rig.store.flush(demand=LOGS)
    for log in LOGS:
        rig.store.commit(log, LogOffset(30, 99))
    rig.store.flush(demand=LOGS)
    return rig


def shares(rig: Rig) -> list[JournalShare]:
    return [share for log in reversed(LOGS) for share in rig.store.logs.index.shares_of(log)]


def test_each_share_gets_its_rows() -> None:
    rig = written()
    wanted = shares(rig)
    found = rows_of_shares(rig.disk, wanted)
    assert [batch is None for batch in found] == [not share.entry.rows for share in wanted]
    for share, batch in zip(wanted, found, strict=True):
        assert not isinstance(batch, Exception)
        if batch is not None:
            assert offsets([batch]) == [share.entry.first]
            assert batch.column("new").to_pylist()[0]["text"] == f"log {share.entry.log}"


def test_each_part_is_read_once() -> None:
    rig = written()
    reads: list[str] = []
    disk = hooked(rig.disk, lambda operation, _: reads.append(operation))
    rows_of_shares(disk, shares(rig))
    assert reads.count("read_buffer") == 3 * 2


def test_damage_concerns_the_logs_whose_rows_it_hit() -> None:
    rig = written()
    assert isinstance(rig.disk, MemoryDisk)
    wanted = shares(rig)
    (path,) = {share.ref.path for share in wanted}
    content = bytearray(rig.disk.read(path, 0, rig.disk.size(path)))
    content[content.index(b"log 7")] ^= 1
    rig.disk.truncate(path, 0)
    rig.disk.append(path, [content])
    found = rows_of_shares(rig.disk, wanted)
    hit = {
        (share.entry.log, share.entry.first)
        for share, batch in zip(wanted, found, strict=True)
        if isinstance(batch, CorruptBlock)
    }
    assert hit == {(log, LogOffset(10, 2 * log)) for log in LOGS if log % 2}, "those of its part, and no others"


def test_nothing_is_asked() -> None:
    assert rows_of_shares(MemoryDisk(), []) == []
