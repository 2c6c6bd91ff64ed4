"""Histories through all that happens to tables: they keep their order, say where they have a hole, or begin anew."""

from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from storage.lake import table_step, tasks
from storage.lake.joins import joins
from storage.lake.lake_layout import changes_name
from storage.lake.retire import retire
from storage.lake.table_step import TableStep
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import Kind
from tests.bank import COLUMNS, FIRST_LSN, Rows
from tests.lakes import Lakes

RESPELLED = {"Owner" if name == "owner" else name: kind for name, kind in COLUMNS.items()}
LATER = 10**10
"""A time at which everything is old."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path, accounts=20)


def succeed(lakes: Lakes, columns: dict[str, tuple[int, int]]) -> None:
    """Another log takes the place of the one that `savings` had, with the same rows."""
    bank = lakes.bank
    rows: Rows = {key: {name: row.get(name) for name in columns} for key, row in bank.rows["savings"].items()}
    old = bank.end_table("savings", "altered")
    bank.succeed_table("savings", old, columns, rows)


def history(lakes: Lakes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lakes.latest().table("savings").arrow("changes").to_pylist()
    return rows


@pytest.mark.parametrize("is_joined", [False, True])
def test_what_a_successor_tells_comes_behind_what_was_told(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, *, is_joined: bool
) -> None:
    """Its base has a floor of its own, below all of the history. Files that are joined later are still in order."""
    writer, bank = lakes.writer(), lakes.bank
    for number in range(9):
        if number == 4:
            succeed(lakes, COLUMNS)
        if is_joined and number == 6:
            monkeypatch.setattr(table_step, "joins", partial(joins, tiers=((1 << 20, 3),)))
        bank.play(10)
        bank.confirm()
        writer.step()
    found = history(lakes)
    assert [row["_kind"] for row in found].count("refetch") == 1
    assert found == sorted(found, key=lambda row: (row["_tx"], row["_op"]))
    lakes.check_all()
    by_duckdb = duckdb.read_parquet(lakes.latest().table("savings").files("changes")).project("_tx").fetchall()
    assert by_duckdb == [(row["_tx"],) for row in found]


def test_files_that_an_old_lake_named_too_early_are_in_order_and_get_their_names_with_a_compaction(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were named by the floor of the base alone, which is below all that had been told."""
    writer, bank = lakes.writer(), lakes.bank

    def old_name(_: LogOffset, upto: LogOffset, unique: str) -> str:
        return changes_name(SNAPSHOT_END, upto, unique)

    for number in range(6):
        with monkeypatch.context() as patch:
            if number in {2, 4}:
                succeed(lakes, COLUMNS)
                patch.setattr(tasks, "changes_name", old_name)
            bank.play(10)
            bank.confirm()
            writer.step()
    found, files = history(lakes), lakes.latest().table("savings").files("changes")
    assert [row["_kind"] for row in found].count("refetch") == 2
    assert found == sorted(found, key=lambda row: (row["_tx"], row["_op"]))
    assert files != sorted(files)
    monkeypatch.setattr(table_step, "joins", lambda _sizes, _tiers=None: [range(1)])  # others stay as they are
    lakes.writer().compact()
    files = lakes.latest().table("savings").files("changes")
    assert files == sorted(files)
    assert history(lakes) == found
    lakes.check_all()


def test_a_column_that_is_spelled_otherwise_begins_a_generation(lakes: Lakes, caplog: pytest.LogCaptureFixture) -> None:
    """`owner` and `Owner` are one column to most engines, so no table may have both."""
    writer, bank = lakes.writer(), lakes.bank
    bank.play(10)
    bank.confirm()
    writer.step()
    succeed(lakes, RESPELLED)
    bank.play(10)
    bank.confirm()
    writer.step()
    assert "generation 2 begins, with a history of its own: column Owner was spelled owner" in caplog.text
    assert lakes.latest().table("savings").schema().names[:2] == ["id", "Owner"]
    lakes.check()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_table_that_comes_again_has_a_new_history(lakes: Lakes, *, is_forgotten: bool) -> None:
    """Nobody told what happened while it was away, and the files of its first stay may be gone."""
    writer, bank = lakes.writer(), lakes.bank
    bank.play(10)
    bank.confirm()
    writer.step()
    rows = dict(bank.rows["savings"])
    bank.end_table("savings", "removed")
    bank.confirm()
    writer.step()
    assert lakes.latest().tables == ["checking"]
    if is_forgotten:
        retire(lakes.root, now=LATER, kept=1)
    bank.changes["savings"].clear()
    bank.open_table("savings", {key: rows[key] for key in list(rows)[:7]})
    for _ in range(3):
        bank.play(10)
        bank.confirm()
        assert writer.step().version is not None
    assert lakes.latest().table("savings").facts.generation == 2
    assert "refetch" not in {row["_kind"] for row in history(lakes)}
    lakes.check()


def test_transactions_that_are_numbered_anew_begin_a_history(lakes: Lakes, caplog: pytest.LogCaptureFixture) -> None:
    """The server is another one: its LSNs are below those of the history, which is ordered by them."""
    writer, bank = lakes.writer(), lakes.bank
    bank.play(5)
    bank.confirm()
    writer.step()
    bank.incarnation = type(bank.incarnation)(8, 1, 1)
    bank.lsn = FIRST_LSN // 2
    for name in ("checking", "savings"):
        rows = dict(bank.rows[name])
        old = bank.end_table(name, "another_server")
        bank.succeed_table(name, old, COLUMNS, rows)
        bank.changes[name].clear()
    for _ in range(3):
        bank.play(3)
        bank.confirm()
        writer.step()
        lakes.check()
    assert "its transactions are numbered anew" in caplog.text
    assert lakes.latest().table("savings").facts.generation == 2


def test_a_writer_that_is_overtaken_before_it_lists_files_takes_no_harm(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a later cut have not the row that this cut's change is about."""
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    bank.commit(("savings", Kind.UPDATE, {"id": "7", "note": "new"}))
    bank.confirm()
    slow, twin, look = lakes.writer(), lakes.writer(), TableStep._look_at_state

    def overtaken(step: TableStep) -> None:
        monkeypatch.setattr(TableStep, "_look_at_state", look)
        assert twin.step().version is not None
        bank.commit(("savings", Kind.DELETE, {"id": "7"}))
        bank.confirm()
        assert twin.step().version is not None
        look(step)

    monkeypatch.setattr(TableStep, "_look_at_state", overtaken)
    assert slow.step().version is None
    assert lakes.latest().number == 3
    lakes.check_all()


@pytest.mark.parametrize("point", ["after the version", "before the view"])
def test_who_lives_shows_what_a_dead_one_published(lakes: Lakes, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Also while nothing new comes."""
    bank, living = lakes.bank, lakes.writer()
    bank.confirm()
    living.step()
    bank.play(10)
    bank.confirm()

    def kill(name: str) -> None:
        if name == "after the version":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lakes.writer(kill).step()
    if point == "before the view":  # a link that is on the disk, and its folder is not
        link = lakes.root / "tables" / "savings" / "state"
        link.unlink()
        link.symlink_to("../../views/savings/state.2")
    assert living.step().version is None
    lakes.check_all()


def test_files_that_are_joined_have_few_row_groups(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_step, "joins", partial(joins, tiers=((1 << 20, 8),)))
    writer, bank = lakes.writer(), lakes.bank
    for _ in range(17):
        bank.play(5)
        bank.confirm()
        writer.step()
    files = lakes.latest().table("savings").files("changes")
    assert len(files) < 8
    assert [pq.read_metadata(file).num_row_groups for file in files] == [1] * len(files)
    lakes.check_all()
