"""Lakes of earlier versions: every version in them is read as it was written, and the next one is made from them."""

import json
import tarfile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.lake.lake_reader import LakeVersion, open_lake
from storage.lake.materialize import Order, materialize
from storage.lake.spark import run_here
from tests.bank import as_texts
from tests.tree import ROOT

RECORDED = sorted((ROOT / "tests/corpus").glob("lake-*.tar.xz"))


@pytest.fixture(params=RECORDED, ids=lambda path: path.name.partition(".")[0])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # as an argument, it is there since 3.11.4
        archive.extractall(tmp_path)  # noqa: S202 - it is ours
    return tmp_path


def check(version: LakeVersion, expected: dict[str, Any]) -> None:
    """Its tables are what they were, read through each door, and so is their history."""
    tables = expected["history"][str(version.lsn)]
    assert set(version.tables) == set(tables)
    for name, rows in tables.items():
        columns = dict.fromkeys(next(iter(rows.values()), {}), (0, 0))
        table = version.table(name)
        doors = [
            table.arrow(),
            duckdb.read_parquet(table.files()).to_arrow_table(),
            pl.read_delta(str(Path(table.files()[0]).parent), version=table.delta().version()).to_arrow(),
        ]
        for door in doors:
            assert as_texts(in_utc(door), columns) == rows, f"{name} at {version.number}"
        told = table.arrow("changes").select(["_tx", "_op", "_kind"]).to_pylist()
        found = [[*row.values()] for row in told if row["_kind"] != "refetch"]
        made = [one for one in expected["changes"][name] if one[0] < version.lsn]
        assert found == made[len(made) - len(found) :]
        assert len(found) == len(made) or len(found) < len(told), "a hole is marked"


def in_utc(table: Any) -> Any:
    """An engine may name the zone otherwise."""
    place = table.schema.get_field_index("opened")
    return table.set_column(place, "opened", table.column("opened").cast(pa.timestamp("us", "UTC")))


def test_an_old_lake_is_read_and_goes_on(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    lake = open_lake(folder / "lake")
    known = lake.numbers()
    assert len(known) == 3
    for version in lake.versions():
        check(version, expected)
    for name in lake.latest().tables:  # the plain door
        shown = pq.read_table((folder / "lake/tables" / name / "state").resolve(), partitioning=None)
        assert len(shown) == len(expected["history"][str(lake.latest().lsn)][name])
    materialize(Order(folder / "data", folder / "lake"), run_here, lambda _: None)
    newest = lake.latest()
    assert (newest.number, newest.lsn) == (4, max(map(int, expected["history"])))
    for version in lake.versions():
        check(version, expected)


def test_there_is_one_of_each_format() -> None:
    assert [path.name for path in RECORDED] == ["lake-1.tar.xz"]
