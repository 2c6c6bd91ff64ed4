"""`verify` finds every damaged byte below what was confirmed, says whose it is, and calls nothing else damage."""

import functools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk import Disk
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.verify import size_of, verify
from storage.verify_report import Report
from tests.unit.builders import Rig, rows, to_journal, to_segments

LOGS = 3
TRANSACTIONS = 12


def filled(confirmed_tx: int = 10_000) -> MemoryDisk:
    """Three logs: one with a base and a segment, one with a segment and shares in the journal, one in the journal."""
    disk = MemoryDisk()
    rig = Rig(disk, to_segments())
    for log in range(2, LOGS + 1):
        rig.create(log)
    base = rig.store.new_base(1)
    base.chunk(rows([(0, 0)] * 5), written_at=1)
    base.chunk(rows([(0, 1)] * 5), written_at=1)
    base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=1)
    for tx in range(1, TRANSACTIONS):
        for log in (1, 2):
            rig.write(10 * tx, 3, log=log)
        rig.store.flush_all()
    rig = Rig(disk, to_journal())
    for tx in range(TRANSACTIONS, 2 * TRANSACTIONS):
        for log in (2, 3):
            rig.write(10 * tx, 2, log=log)
        rig.store.flush_all()
    ProgressLog(disk).append(ProgressRecord(Incarnation(1, 1, 1), confirmed_tx, 0, 0))
    return disk


@functools.cache
def files() -> dict[str, bytes]:
    """Of a filled folder, what has checksums."""
    disk = filled()
    folders = ["journal", *(f"logs/{log}" for log in range(1, LOGS + 1))]
    paths = [f"{folder}/{name}" for folder in folders for name in disk.names(folder) if not name.endswith("json")]
    return {path: disk.read(path, 0, disk.size(path)) for path in paths}


def with_content(disk: MemoryDisk, path: str, content: bytes) -> MemoryDisk:
    disk.truncate(path, 0)
    disk.append(path, [content])
    return disk


def report_of(disk: Disk) -> Report:
    heard: list[int] = []
    report = verify(disk, heard.append)
    if not report.damage:
        assert sum(heard) == report.bytes <= size_of(disk)
    return report


def owner_of(path: str) -> Iterator[int | None]:
    """Whom damage of a file may be reported for."""
    yield int(path.split("/")[1]) if path.startswith("logs/") else None
    if path.startswith("journal/"):
        yield from (2, 3)


def test_a_sound_folder_is_sound() -> None:
    report = report_of(filled())
    assert (report.damage, report.unfinished) == ([], [])
    assert report.logs == LOGS
    assert report.rows == 10 + 2 * 3 * (TRANSACTIONS - 1) + 2 * 2 * TRANSACTIONS
    assert report.confirmed == 10_000


def test_an_empty_folder_is_sound() -> None:
    assert report_of(Rig().disk).damage == []


@given(st.data())
def test_every_flipped_bit_is_found(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(files())))
    content = bytearray(files()[path])
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    report = report_of(with_content(filled(), path, bytes(content)))
    assert {one.log for one in report.damage} & set(owner_of(path)), report
    assert all(one.hint and one.code for one in report.damage)
    assert all(one.handle == f"handle-{one.log}" for one in report.damage if one.log is not None)


@given(st.data())
def test_a_file_that_lacks_is_found_where_another_follows(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path in files() if "/2/" in path]))
    disk = filled()
    disk.remove(path)
    (damage,) = report_of(disk).damage
    assert (damage.log, damage.code) == (2, "hole")


def test_a_torn_tail_is_no_damage() -> None:
    disk = filled(confirmed_tx=0)
    path = next(path for path in files() if path.startswith("journal/"))
    report = report_of(with_content(disk, path, files()[path][:-64]))
    assert report.damage == []
    assert [path in text for text in report.unfinished] == [True]


def test_a_torn_tail_below_what_was_confirmed_is_damage() -> None:
    path = next(path for path in files() if path.startswith("logs/1/") and path.endswith("segment"))
    report = report_of(with_content(filled(), path, files()[path][:-64]))
    assert [(one.log, one.code) for one in report.damage] == [(1, "corrupt_block")]


def test_rows_in_the_wrong_log_are_found() -> None:
    disk = filled()
    paths = [path for path in files() if path.endswith("segment")]
    ours, theirs = (next(path for path in paths if path.startswith(f"logs/{log}/")) for log in (1, 2))
    report = report_of(with_content(disk, ours, files()[theirs]))
    assert {(one.log, one.code) for one in report.damage} == {(1, "corrupt_block")}
    assert "a block of log 2 is in log 1" in report.damage[0].message


@pytest.mark.parametrize("name", ["log.json", "progress.000001"])
def test_a_register_that_nobody_understands_is_damage(name: str) -> None:
    disk = filled()
    path = f"logs/3/{name}" if name == "log.json" else name
    report = report_of(with_content(disk, path, b"?" * 100))
    assert [one.log for one in report.damage] == [3 if name == "log.json" else None]


def test_open_rows_are_no_damage() -> None:
    rig = Rig(filled(), to_segments())
    rig.store.append(3, rows([(500, 0)]), after=rig.upper(3))
    rig.store.flush_all()
    report = report_of(rig.disk)
    assert report.damage == []
