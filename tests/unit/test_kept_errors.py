"""Errors that somebody keeps, or raises again and again, hold neither rows nor flushes.

Invariants:
    a read that fails as the one before did costs nothing that stays
    the reason why a log stopped, and a doubt, keep no flush in memory
    what was found damaged is told without the bytes that were looked at
"""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shapes.http.pages import Pages
from storage.bases import list_bases
from storage.disk import Disk, LocalDisk, folder_of
from storage.errors import StorageError
from storage.flush import FlushJob
from storage.journal_write import JournalCopy
from storage.offset import SNAPSHOT_END, LogOffset
from storage.verify import verify
from tests.in_memory import alive
from tests.unit.builders import Rig, rows, to_segments
from tests.unit.test_folder_reader import EVERYTHING, Writer, options

DAMAGED_CHUNKS = 10
CHUNK_BYTES = 1_000_000


def overwrite(disk: Disk, path: str, start: int, stop: int | None = None) -> None:
    """Turn the bits of a part of a file."""
    content = bytearray(disk.read(path, 0, disk.size(path)))
    for place in range(*slice(start, stop).indices(len(content))):
        content[place] ^= 0x5A
    disk.truncate(path, 0)
    disk.append(path, [content])
    disk.sync(path)


def frames_of(error: BaseException) -> int:
    traceback, count = error.__traceback__, 0
    while traceback is not None:
        traceback, count = traceback.tb_next, count + 1
    return count


def refused(rig: Rig, after: LogOffset) -> StorageError:
    with pytest.raises(StorageError) as caught:
        rig.reader.read(1, after, EVERYTHING)
    return caught.value


def test_an_error_is_made_anew_without_its_past() -> None:
    with pytest.raises(StorageError) as caught:
        raise StorageError("it broke", log=7) from ValueError("because")
    again = caught.value.anew()
    assert (str(again), again.facts) == (str(caught.value), {"log": 7})
    assert (again.__traceback__, again.__cause__, again.__context__) == (None, None, None)


def test_a_damage_that_every_read_meets_does_not_grow() -> None:
    writer = Writer()
    for _ in range(4):
        writer.large()
    disk = writer.rig.disk
    second = [name for name in disk.names("logs/1") if name.endswith(".segment")][1]
    overwrite(disk, f"logs/1/{second}", 8, 9)
    writer.restart()
    counts = [frames_of(refused(writer.rig, writer.ends[1])) for _ in range(20)]
    assert counts[-1] == counts[0]
    damage = next(one.damage for one in writer.rig.store.log(1).files.segments if one.damage is not None)
    assert frames_of(damage) < counts[0]


@pytest.fixture
def nobody_collects() -> Iterator[None]:
    """The server's collector of garbage goes by objects, and bytes of Arrow's are none."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def damaged(disk: Disk) -> Rig:
    """A log with a large block, of which a byte was changed."""
    rig = Rig(disk, to_segments())
    for tx in (1, 2):
        rig.write(tx, text="".join(map(chr, np.random.default_rng(tx).integers(32, 127, CHUNK_BYTES))))
        rig.store.flush(demand=[1])
    first = next(name for name in disk.names("logs/1") if name.endswith(".segment"))
    overwrite(disk, f"logs/1/{first}", CHUNK_BYTES // 2, CHUNK_BYTES // 2 + 1)
    return rig.reopened()


@pytest.mark.usefixtures("nobody_collects")
@pytest.mark.parametrize("is_page", [False, True], ids=["rows", "page"])
async def test_a_damaged_block_that_many_ask_for_is_not_kept(tmp_path: Path, is_page: bool) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        rig, codes = damaged(disk), set[str]()
        pages, before = Pages(rig.reader), pa.total_allocated_bytes()

        def read() -> Any:
            return rig.reader.read(1, SNAPSHOT_END, EVERYTHING)

        for _ in range(10):
            try:  # what pytest's own look at an error keeps is not asked for
                await pages._get("here", "here", read) if is_page else read()
            except StorageError as error:
                codes.add(error.code)
        assert codes == {"corrupt_block"}
        assert pa.total_allocated_bytes() - before < 3 * CHUNK_BYTES


def test_why_a_log_stopped_does_not_grow_and_keeps_no_flush(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest would keep what was logged, and the error with it
    others = alive(FlushJob)
    rig = Rig(options=options(3000, 10**9))
    rig.write(1)
    rig.store.flush(demand=[1])
    (journal,) = rig.disk.names("journal")
    overwrite(rig.disk, f"journal/{journal}", 256)
    rig.write(2, text="x" * 5000)
    rig.store.flush(demand=[1])
    assert rig.store.log(1).state.fault is not None
    counts = [frames_of(refused(rig, LogOffset(2, 9))) for _ in range(20)]
    assert counts[-1] == counts[0]
    assert alive(FlushJob) <= others


def test_a_doubt_keeps_no_flush(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest would keep what was logged, and the error with it
    others = alive(FlushJob, JournalCopy)
    rig = Rig(options=options(10**9, 9000))
    for log in (2, 3):
        rig.create(log)
    rig.write(1, text="y" * 500)
    rig.store.flush(demand=[1])
    (journal,) = rig.disk.names("journal")
    overwrite(rig.disk, f"journal/{journal}", -600, -200)
    for tx in range(2, 60):
        for log in (2, 3):
            rig.write(10 * tx + log, log=log, text="x" * 1000)
        rig.store.flush_all()
    assert set(rig.store.logs.found.doubts) == {1}
    assert alive(FlushJob, JournalCopy) <= others


def test_a_damaged_folder_is_verified_in_the_memory_of_a_block(tmp_path: Path) -> None:
    with folder_of(LocalDisk(tmp_path)) as disk:
        rig = Rig(disk, to_segments())
        base = rig.store.new_base(1)
        for number in range(DAMAGED_CHUNKS):
            base.chunk(rows([(0, number)], text="x" * CHUNK_BYTES), written_at=1)
        base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=1)
        (found,) = list_bases(disk, 1)
        for ref in found.chunks:
            overwrite(disk, found.path, ref.position + CHUNK_BYTES // 2, ref.position + CHUNK_BYTES // 2 + 1)
        before, held = pa.total_allocated_bytes(), list[int]()
        report = verify(disk, lambda _: held.append(pa.total_allocated_bytes() - before))
        assert len(report.damage) == DAMAGED_CHUNKS
        assert max(held) < 3 * CHUNK_BYTES
