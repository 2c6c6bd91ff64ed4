"""Folders that older versions wrote are read to the same rows by this one, by every reader, and go on from there.

They are in `old_logs`, one or more for each format version, as `make_old_logs` wrote them; here they are copied first.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from storage.block import FORMAT_VERSION
from storage.catalog import Catalog, CatalogReader
from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.folder_reader import FolderReader
from storage.journal import JournalIndex
from storage.journal_scan import load_journal
from storage.leases import leases
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import ProgressLog, ProgressReader
from storage.rows import Kind, row_schema
from storage.store import Store
from storage.store_reader import StoreReader
from tests.crash.make_old_logs import COLUMNS, EXPECTED, MAKERS, NOW, expected, insert
from tests.crash.make_old_logs import batch_of as batch_of_rows

OLD_LOGS = Path(__file__).parent / "old_logs"
FOLDERS = sorted(OLD_LOGS.iterdir())
BYTES_MAX = 200_000

old = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@pytest.fixture
def disk(folder: Path, tmp_path: Path) -> Iterator[LocalDisk]:
    shutil.copytree(folder / "data", tmp_path / "data")
    local = LocalDisk(tmp_path / "data")
    yield local
    local.close()


def facts(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads((folder / EXPECTED).read_bytes())
    return content


def as_json(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows as `expected.json` has them."""
    found = []
    for row in [row for batch in batches for row in batch.to_pylist()]:
        absent = row.get("absent")
        found.append(
            {
                "at": str(LogOffset(row["tx"], row["op"])),
                "kind": row["kind"],
                "new": row["new"],
                "old": row.get("old"),
                "absent": None if absent is None else absent.hex(),
            }
        )
    return found


def check(reader: StoreReader | FolderReader, wanted: dict[str, Any]) -> None:
    for name, log in wanted["logs"].items():
        result = reader.read(int(name), SNAPSHOT_END, 10**9)
        assert as_json(result.rows) == log["rows"]
        assert result.at_end
        assert str(result.visible) == str(result.durable) == log["aligned"]
        for number, chunk in enumerate(log["chunks"]):
            found = reader.read_chunk(int(name), 0, number)
            assert found is not None
            assert as_json(found if isinstance(found, list) else [found]) == chunk


def store_on(disk: LocalDisk, *, confirmed_tx: int = 0) -> Store:
    return Store(disk, Clocks(lambda: 0.0, lambda: NOW), confirmed_tx=confirmed_tx)


@old
def test_a_reader_without_the_writer_finds_the_rows(folder: Path, disk: LocalDisk) -> None:
    reader = FolderReader(disk)
    wanted = facts(folder)
    assert [str(log) for log in reader.logs()] == list(wanted["logs"])
    check(reader, wanted)
    for name, log in wanted["logs"].items():
        assert reader.facts(int(name)).handle == log["handle"]


@old
def test_the_writer_recovers_the_rows_and_goes_on(folder: Path, disk: LocalDisk) -> None:
    wanted = facts(folder)
    store = store_on(disk, confirmed_tx=wanted["g"])
    check(StoreReader(store), wanted)
    for name in wanted["logs"]:
        row = insert(5_000, 0, 1, "of this version")
        store.append(int(name), batch_of_rows([row]), after=LogOffset(0, 2**64 - 1), aligned=LogOffset(5_000, 1))
        wanted["logs"][name]["rows"].append(row.as_json())
        wanted["logs"][name]["aligned"] = "5000_1"
    store.flush_all()
    check(StoreReader(store), wanted)
    check(StoreReader(store_on(disk, confirmed_tx=6_000)), wanted)
    check(FolderReader(disk), wanted)


@old
def test_catalog_progress_and_leases_are_as_they_were(folder: Path, disk: LocalDisk) -> None:
    wanted = facts(folder)
    catalog, progress = CatalogReader(disk), ProgressReader(disk)
    assert catalog.refresh()
    assert progress.refresh()
    for state in (catalog.state, Catalog(disk).state):
        assert {shape.handle: shape.life.value for shape in state.shapes.values()} == wanted["handles"]
    for history in (progress.history, ProgressLog(disk).history):
        assert [record.lsn for record in history.newest_first()] == wanted["progress"][::-1]
    assert [lease.reader for lease in leases(disk, 1, now=NOW)] == ["a-reader"]


def test_the_folders_are_small_and_of_every_version() -> None:
    assert {folder.name for folder in FOLDERS} >= MAKERS.keys()
    assert sorted({int(folder.name.split(".")[0]) for folder in FOLDERS}) == list(range(1, FORMAT_VERSION + 1))
    files = [path for folder in FOLDERS for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < BYTES_MAX


made = pytest.mark.parametrize("name", MAKERS)


@made
def test_what_is_written_follows_from_the_code_alone(name: str) -> None:
    first, second = MAKERS[name](), MAKERS[name]()
    assert first.disk.contents() == second.disk.contents()
    assert expected(first) == expected(second)


@made
def test_the_newest_folder_is_what_this_version_writes(name: str) -> None:
    """In rows; the bytes may differ with Arrow's version."""
    assert facts(OLD_LOGS / name) == orjson.loads(orjson.dumps(expected(MAKERS[name]())))


def test_the_folders_have_all_that_a_reader_may_meet(tmp_path: Path) -> None:
    kinds = {row["kind"] for log in facts(OLD_LOGS / "1")["logs"].values() for row in log["rows"]}
    assert kinds == {int(kind) for kind in Kind}
    assert row_schema(COLUMNS).names[-1] == "new"
    shutil.copytree(OLD_LOGS / "1.joined" / "data", tmp_path / "data")
    with folder_of(LocalDisk(tmp_path / "data")) as disk:
        index = JournalIndex()
        load_journal(disk, index, confirmed_tx=0, on_torn=lambda *_: None)
    (joined,) = index.joined_files.values()
    (directory,) = joined.directories
    assert joined.refs[0].header.log in index.young_files, "those that it was made of are there as well"
    assert len({entry.log for entry in map(directory.entry, range(len(directory))) if entry.rows > 2}) > 1
