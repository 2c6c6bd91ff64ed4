"""Tables that are altered: wider, new and dropped columns go on in the same lake table, for every engine."""

from functools import partial
from pathlib import Path

import duckdb
import polars as pl
import pytest

from storage.catalog_records import Succeeded
from storage.lake import table_step
from storage.lake.joins import joins
from storage.lake.lake_reader import open_lake
from tests.bank import COLUMNS, Rows
from tests.lakes import POINTS, Lakes

BIG = str(2**40)
WIDER = COLUMNS | {"id": (20, -1), "balance": (1700, (16 << 16 | 2) + 4)}


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path)


def alter(lakes: Lakes, columns: dict[str, tuple[int, int]]) -> None:
    """The table's successor has the same rows, and one that needs the wider types."""
    bank = lakes.bank
    rows: Rows = {key: {name: row.get(name) for name in columns} for key, row in bank.rows["savings"].items()}
    if columns == WIDER:
        rows[BIG] = dict.fromkeys(columns) | {"id": BIG, "balance": "12345678901234.25"}
    old = bank.end_table("savings", "column_retyped")
    bank.succeed_table("savings", old, columns, rows)


def check_engines(lakes: Lakes) -> None:
    """All engines see the history and the rows, in every version."""
    for version in open_lake(lakes.root).versions():
        table = version.table("savings")
        for side in ("state", "changes"):
            expected = table.arrow(side)
            files = table.files(side)
            assert len(expected) == duckdb.read_parquet(files, union_by_name=True).count("*").fetchall()[0][0]
            delta = pl.scan_delta(str(Path(files[0]).parent), version=table.delta(side).version())
            by_polars = delta.select("id", "balance").collect().rows()
            by_duckdb = duckdb.read_parquet(files).project("id, balance").fetchall()
            rows = sorted(map(str, zip(*(expected[name].to_pylist() for name in ("id", "balance")), strict=True)))
            assert sorted(map(str, by_polars)) == rows
            assert sorted(map(str, by_duckdb)) == rows


def test_wider_columns_go_on_in_the_same_table(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    for _ in range(3):
        bank.play(10)
        bank.confirm()
        writer.step()
    before = len(lakes.latest().table("savings").arrow("changes"))
    alter(lakes, WIDER)
    bank.confirm()
    writer.step()
    table = lakes.latest().table("savings")
    assert table.facts.generation == 1
    assert table.schema("changes").field("id").type == table.schema().field("id").type == "int64"
    assert len(table.arrow("changes")) == before + 1  # and the word that the rows were read anew
    assert open_lake(lakes.root).version(1).table("savings").schema().field("id").type == "int32"
    check_engines(lakes)
    bank.play(10)
    bank.confirm()
    writer.step()
    lakes.check_all()
    check_engines(lakes)


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_killed_while_it_widens_is_replaced(lakes: Lakes, point: str) -> None:
    bank = lakes.bank
    bank.play(10)
    bank.confirm()
    lakes.writer().step()
    alter(lakes, WIDER)
    bank.play(5)
    bank.confirm()

    def kill(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lakes.writer(kill).step()
    lakes.writer().step(even_if_quiet=True)
    bank.play(5)
    bank.confirm()
    lakes.writer().step()
    lakes.check_all()
    check_engines(lakes)


def test_what_a_dropped_column_had_stays_in_the_history(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where small files become one, after the column went."""
    monkeypatch.setattr(table_step, "joins", partial(joins, tiers=((1 << 20, 3),)))
    writer, bank = lakes.writer(), lakes.bank
    bank.play(30)
    bank.confirm()
    writer.step()
    owners = lakes.latest().table("savings").arrow("changes")["owner"].drop_null().to_pylist()
    assert owners
    alter(lakes, {name: kind for name, kind in COLUMNS.items() if name != "owner"})
    for _ in range(6):
        bank.play(5)
        bank.confirm()
        writer.step()
    table = lakes.latest().table("savings")
    assert table.arrow("changes")["owner"].drop_null().to_pylist() == owners
    assert len(table.files("changes")) < 5
    lakes.check()


def test_a_table_that_lost_its_key_shows_no_state(lakes: Lakes) -> None:
    """Its rows could not be told apart any more; those of before are older than all else that is shown."""
    bank = lakes.bank
    bank.confirm()
    writer = lakes.writer()
    writer.step()
    for key, is_there in (([], False), (["id"], True)):
        old = bank.end_table("savings", "altered")
        bank.catalog.append(Succeeded(old, bank.open_table("savings", bank.accounts("savings", 3), COLUMNS, key=key)))
        bank.confirm()
        writer.step()
        assert (lakes.latest().table("savings").facts.state is not None) == is_there
        assert (lakes.root / "tables/savings/state").exists() == is_there
        assert (lakes.root / "tables/checking/state").exists()
