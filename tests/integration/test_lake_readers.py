"""Readers while a lake is written to and cleaned up: one version, or a loud failure, and never some of two."""

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.lake.lake_reader import open_lake
from storage.lake.retire import retire
from storage.lake.state import shares
from tests.bank import COLUMNS, Rows, as_texts
from tests.lakes import Lakes

VERSIONS = 8
PAUSE_SECONDS = 0.03
"""Of a reader, which leaves the processor to the writer meanwhile."""


def by_duckdb(folder: Path) -> pa.Table:
    with duckdb.connect() as connection:
        return connection.read_parquet(f"{folder}/*.parquet").to_arrow_table()


def by_polars(folder: Path) -> pa.Table:
    return pl.read_parquet(f"{folder}/*.parquet").to_arrow()


def by_arrow(folder: Path) -> pa.Table:
    return pq.read_table(folder, partitioning=None)


@pytest.fixture
def lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    """Many files for each state, so that a mixture would be easy to get."""
    for module in ("state", "state_files", "loads", "tasks"):
        monkeypatch.setattr(f"storage.lake.{module}.STATE_FILE_ROWS", 16, raising=False)
    monkeypatch.setattr("storage.lake.table_step.shares", partial(shares, rows_max=16))
    return Lakes(tmp_path, accounts=120)


def test_plain_folders_are_one_version_or_none(lakes: Lakes) -> None:
    """By every engine, in a loop, through the link; folders of old versions go as soon as they may."""
    folder, stop = lakes.root / "tables/savings/state", threading.Event()
    seen: dict[str, list[pa.Table]] = {}
    loud: Counter[str] = Counter()

    def read(name: str, engine: Callable[[Path], pa.Table]) -> None:
        while not stop.wait(PAUSE_SECONDS):
            try:
                seen.setdefault(name, []).append(engine(folder))
            except (OSError, duckdb.Error, pl.exceptions.PolarsError, pa.ArrowException):
                loud[name] += 1

    writer = lakes.writer()
    lakes.bank.confirm()
    writer.step()
    engines = {"duckdb": by_duckdb, "polars": by_polars, "arrow": by_arrow}
    threads = [threading.Thread(target=read, args=one, daemon=True) for one in engines.items()]
    for thread in threads:
        thread.start()
    for _ in range(VERSIONS):
        lakes.bank.play(15)
        lakes.bank.confirm()
        writer.step()
        retire(lakes.root, now=time.time(), kept=2, age_seconds=0.2)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    known = {frozen(rows["savings"]) for rows in lakes.bank.history.values()}
    for name in engines:
        assert seen[name], f"{name} read nothing: {loud}"
        for table in seen[name]:
            assert frozen(as_texts(in_utc(table), COLUMNS)) in known, f"{name} read some of two versions"
    assert len({frozen(as_texts(in_utc(table), COLUMNS)) for table in seen["arrow"]}) > 2, "the lake moved on"


def test_a_view_is_as_old_as_it_is_not_shown(lakes: Lakes) -> None:
    """Who lists it while it goes would find some of its files, and open those through the link, in the next one."""
    writer = lakes.writer()
    lakes.bank.confirm()
    writer.step()
    view = (lakes.root / "tables/savings/state").resolve()
    shown = view.stat().st_ctime_ns
    lakes.bank.play(30)
    lakes.bank.confirm()
    writer.step()
    assert (lakes.root / "tables/savings/state").resolve() != view
    assert view.stat().st_ctime_ns > shown


@pytest.mark.parametrize("links", [1, 4])
def test_a_view_that_somebody_died_over_is_never_shown(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, links: int
) -> None:
    """It has some of the version's files; whoever comes next makes another."""
    lakes.bank.confirm()
    lakes.writer().step()
    lakes.bank.play(30)
    lakes.bank.confirm()
    link, made = os.link, list[str]()

    def dies(source: Any, target: Any, **more: Any) -> None:
        if "delta" in Path(source).parts:
            made.append(str(source))
            if len(made) > links:
                raise KeyboardInterrupt
        link(source, target, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", dies)
        with pytest.raises(KeyboardInterrupt):
            lakes.writer().step()
    lakes.writer().step()
    assert lakes.latest().number == 2
    lakes.check_all()


def test_there_is_a_link_at_every_moment(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each call that changes a name it leads to a whole folder: to the one before, or to the next."""
    writer, link, seen = lakes.writer(), lakes.root / "tables/savings/state", set[Path]()
    lakes.bank.confirm()
    writer.step()

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def done(*arguments: Any, **more: Any) -> Any:
            found = call(*arguments, **more)
            assert list(link.glob("*.parquet")), f"nothing is shown behind {call.__name__}"
            seen.add(link.resolve())
            return found

        return done

    for name in ("unlink", "rename", "replace", "symlink_to"):
        monkeypatch.setattr(Path, name, watched(getattr(Path, name)))
    lakes.bank.play(30)
    lakes.bank.confirm()
    writer.step()
    monkeypatch.undo()
    assert len(seen) == 2, "the link was replaced meanwhile"
    lakes.check_all()


def test_a_version_that_is_retired_while_it_is_read_fails_loudly(lakes: Lakes) -> None:
    writer = lakes.writer()
    lakes.bank.confirm()
    writer.step()
    old = open_lake(lakes.root).latest()
    files = old.table("savings").files()
    for _ in range(3):
        lakes.bank.play(40)
        lakes.bank.confirm()
        writer.step()
    retire(lakes.root, now=time.time(), kept=1, age_seconds=0.0)
    assert not all(Path(path).exists() for path in files)
    with pytest.raises((OSError, pa.ArrowException)):
        old.table("savings").arrow()
    lakes.check()


def test_a_lake_can_be_copied_and_read_elsewhere(lakes: Lakes, tmp_path: Path) -> None:
    """Nothing in it names the folder where it was made."""
    lakes.bank.play(15)
    lakes.bank.confirm()
    lakes.writer().step()
    shutil.copytree(lakes.root, tmp_path / "elsewhere", symlinks=True)
    shutil.move(lakes.root, tmp_path / "gone")
    lakes.root = tmp_path / "elsewhere"
    lakes.check_all()


def frozen(rows: Rows) -> frozenset[tuple[str, tuple[tuple[str, str | None], ...]]]:
    return frozenset((key, tuple(row.items())) for key, row in rows.items())


def in_utc(table: pa.Table) -> pa.Table:
    """An engine may name the zone otherwise."""
    place = table.schema.get_field_index("opened")
    return table.set_column(place, "opened", table.column("opened").cast(pa.timestamp("us", "UTC")))
