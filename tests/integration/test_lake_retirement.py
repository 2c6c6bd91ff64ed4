"""What is old goes while others are at work: what is about to be a version stays, whoever looks and whenever."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from storage.lake import retire as retire_module
from storage.lake.delta_log import DeltaLog
from storage.lake.lake_layout import CHANGES, side_folder
from storage.lake.limits import CHECKPOINT_COMMITS, ORPHAN_AGE_SECONDS_MIN
from storage.lake.retire import retire
from storage.lake.writer import LakeWriter
from tests.bank import COLUMNS
from tests.lakes import Lakes


class Killed(BaseException):
    """The writer's process is gone."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path, accounts=20)


def later() -> float:
    """When everything of today is old."""
    return time.time() + 10 * ORPHAN_AGE_SECONDS_MIN


def killed_at(lakes: Lakes, point: str, times: int = 1) -> None:
    left = times

    def kill(where: str) -> None:
        nonlocal left
        left -= where == point
        if not left:
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(kill).step()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_table_whose_first_cut_is_open_stays(lakes: Lakes, times: int) -> None:
    """Its commits name files that no version has yet."""
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    bank.open_table("brokerage", bank.accounts("brokerage", 30))
    old = bank.end_table("savings", "altered")
    bank.succeed_table("savings", old, COLUMNS | {"balance": (25, -1)}, bank.accounts("savings", 10))
    bank.play(30)
    bank.confirm()
    killed_at(lakes, "after a commit", times)
    retire(lakes.root, now=time.time(), kept=1)
    retire(lakes.root, now=time.time() + ORPHAN_AGE_SECONDS_MIN / 2, kept=1)
    lakes.writer().step()
    assert lakes.latest().number == 2
    lakes.check()


def test_a_load_waits_for_its_cut_however_long_that_takes(lakes: Lakes) -> None:
    """Also if a log that came later is in a version before it."""
    bank = lakes.bank
    lsn = bank.lsn
    bank.lsn += 10_000  # where this table is born, the others are not yet
    bank.open_table("brokerage", bank.accounts("brokerage", 30))
    bank.lsn = lsn
    bank.open_table("current", bank.accounts("current", 30))
    bank.confirm()
    del bank.history[bank.lsn]["brokerage"]
    writer = lakes.writer()
    writer.step()
    assert lakes.latest().tables == ["checking", "current", "savings"]
    retire(lakes.root, now=later(), kept=1)
    bank.lsn += 10_000
    bank.play(10)
    bank.confirm()
    writer.step()
    assert "brokerage" in lakes.latest().tables
    lakes.check_all()


def test_a_view_that_somebody_died_over_goes(lakes: Lakes) -> None:
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    unfinished = lakes.root / "views" / "savings" / "state.2.w9.tmp"
    unfinished.mkdir()
    (unfinished / "held.parquet").write_bytes(b"x")
    retire(lakes.root, now=time.time(), kept=1)
    assert unfinished.exists(), "somebody may be at work on it"
    retire(lakes.root, now=later(), kept=1)
    assert not unfinished.exists()
    lakes.check_all()


def test_the_view_that_is_shown_stays_although_it_is_old(lakes: Lakes) -> None:
    """Who published the next version died before it was shown: readers of plain files have this one until then."""
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    rows = lakes.latest().table("savings").arrow()
    bank.play(10)
    bank.confirm()
    killed_at(lakes, "after the version")
    retire(lakes.root, now=later(), kept=1, age_seconds=0)
    assert lakes.lake().numbers() == [2]
    assert pq.read_table(lakes.root / "tables/savings/state", partitioning=None).equals(rows)
    lakes.writer().step()
    lakes.check_all()


@pytest.mark.parametrize("has_hint", [False, True])
def test_a_checkpoint_that_a_crash_tore_is_nothing(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, *, has_hint: bool
) -> None:
    """Its commits are still there, and stay until there is a whole one."""
    monkeypatch.setattr("storage.lake.delta_log.CHECKPOINT_COMMITS", 4)
    writer, bank = lakes.writer(), lakes.bank

    def go_on(writer: LakeWriter, steps: int) -> None:
        for _ in range(steps):
            bank.play(10)
            bank.confirm()
            assert writer.step().version is not None

    go_on(writer, 6)
    torn = [*(lakes.root / "delta").glob("savings/1/*/_delta_log/*4.checkpoint.parquet")]
    assert len(torn) == 2
    for path in torn:
        path.write_bytes(b"")
        if not has_hint:
            path.with_name("_last_checkpoint").unlink()
    if not has_hint:
        retire(lakes.root, now=later(), kept=1)
    go_on(lakes.writer(), 6)
    lakes.check_all()
    assert retire(lakes.root, now=later(), kept=1).commits > 0
    lakes.check_all()
    go_on(lakes.writer(), 1)
    lakes.check_all()


def after_checkpoints(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> LakeWriter:
    """A writer that made versions enough for tables to have checkpoints."""
    monkeypatch.setattr("storage.lake.delta_log.CHECKPOINT_COMMITS", 3)
    writer = lakes.writer()
    for _ in range(8):
        lakes.bank.play(5)
        lakes.bank.confirm()
        writer.step()
    return writer


@pytest.mark.parametrize("place", ["record_numbers", "_retire_views", "_commits", "files_at", "_retire_commits"])
@pytest.mark.parametrize("is_before", [True, False])
def test_two_who_remove_what_is_old_at_once(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, place: str, *, is_before: bool
) -> None:
    """A command beside a writer that follows: what one has removed, with all commits, the other does not find."""
    writer, bank = after_checkpoints(lakes, monkeypatch), lakes.bank
    for path in lakes.root.rglob("*.parquet"):
        os.utime(path, (0, 0))  # as old as can be
    work: Callable[..., Any] = getattr(retire_module, place)
    met = list[str]()

    def overtaken(*arguments: Any) -> Any:
        is_first = not met
        met.append(place)
        if is_first and is_before:
            retire(lakes.root, now=later(), kept=1)
        found = work(*arguments)
        if is_first and not is_before:
            retire(lakes.root, now=later(), kept=1)
        return found

    monkeypatch.setattr(retire_module, place, overtaken)
    retire(lakes.root, now=later(), kept=6)
    assert len(met) > 1
    lakes.check_all()
    monkeypatch.undo()
    bank.play(10)
    bank.confirm()
    writer.step()
    retire(lakes.root, now=later(), kept=1)
    lakes.check_all()
    assert lakes.files_on_disk() == lakes.files_in_tables(), "nothing is left over"


@pytest.mark.parametrize("place", ["_retire_views", "_retire_loads", "_retire_files", "_retire_commits"])
@pytest.mark.parametrize("times", [1, 2])
def test_killed_while_what_is_old_goes(lakes: Lakes, monkeypatch: pytest.MonkeyPatch, place: str, times: int) -> None:
    """Every version that is there yet is whole, and the next one removes the rest."""
    after_checkpoints(lakes, monkeypatch)
    work: Callable[..., Any] = getattr(retire_module, place)
    met = list[str]()

    def dies(*arguments: Any) -> Any:
        found = work(*arguments)
        met.append(place)
        if len(met) == times:
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(retire_module, place, dies)
        for _ in range(times):
            with contextlib.suppress(Killed):
                retire(lakes.root, now=later(), kept=3)
    assert len(met) >= times
    lakes.check_all()
    retire(lakes.root, now=later(), kept=1)
    lakes.check_all()
    assert lakes.files_on_disk() == lakes.files_in_tables(), "nothing is left over"


def test_a_table_whose_newest_commit_is_a_checkpoint_goes_on(lakes: Lakes) -> None:
    """Where it was quiet for as long as versions are kept, the commit before that one is gone; then its shape ends."""
    bank, log = lakes.bank, DeltaLog(lakes.root / side_folder("checking", 1, CHANGES))
    bank.confirm()
    lakes.writer().step()
    while not log.folder.joinpath("_delta_log", f"{CHECKPOINT_COMMITS:020d}.json").exists():
        bank.play(3)
        bank.confirm()
        lakes.writer().step()
    retire(lakes.root, now=later(), kept=1, age_seconds=0)
    assert not log.folder.joinpath("_delta_log", f"{CHECKPOINT_COMMITS - 1:020d}.json").exists()
    old = bank.end_table("checking", "altered")
    bank.succeed_table("checking", old, COLUMNS, bank.accounts("checking", 10))
    bank.confirm()
    assert lakes.writer().step().version is not None
    lakes.check_all()
