"""Records of the bases that are in a lake: each is read as often as it must be, and goes when nobody can need it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.disk import LocalDisk
from storage.lake.errors import LakeDamage
from storage.lake.limits import ORPHAN_AGE_SECONDS_MIN
from storage.lake.loads import forget_load, read_loads
from storage.lake.next_cut import NextCut
from storage.lake.records import read_record
from storage.lake.retire import retire
from storage.lake.writer import LakeWriter
from tests.bank import COLUMNS
from tests.lakes import Lakes


class Killed(BaseException):
    """The writer's process is gone."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    made = Lakes(tmp_path, accounts=10)
    made.bank.confirm()
    return made


def loaded(lakes: Lakes) -> set[int]:
    return set(read_loads(LocalDisk(lakes.root)))


def files_of(lakes: Lakes, log: int) -> set[str]:
    return {file.name for file in read_loads(LocalDisk(lakes.root))[log].files}


def succeed(lakes: Lakes, name: str = "savings") -> int:
    """Another log takes the table's place, and its own is removed; returns that one."""
    bank, log = lakes.bank, lakes.bank.logs[name]
    old, rows = bank.end_table(name, "altered"), bank.accounts(name, 5)
    bank.succeed_table(name, old, COLUMNS, rows)
    bank.store.remove_log(log)
    bank.confirm()
    return log


def remove(lakes: Lakes, name: str) -> int:
    log = lakes.bank.logs[name]
    lakes.bank.end_table(name, "removed")
    lakes.bank.store.remove_log(log)
    lakes.bank.confirm()
    return log


def swept(lakes: Lakes, writer: LakeWriter, now: float | None = None) -> None:
    """As a writer that follows does it."""
    retire(lakes.root, now=now or time.time(), is_of_use=writer.is_of_use)


def kill(where: str) -> Callable[[str], None]:
    def at(point: str) -> None:
        if point == where:
            raise Killed

    return at


def die_with_another_table(lakes: Lakes, point: str) -> None:
    """A writer that would bring it in."""
    lakes.bank.open_table("extra", lakes.bank.accounts("extra", 5))
    lakes.bank.confirm()
    with pytest.raises(Killed):
        lakes.writer(kill(point)).step()


def test_first_loads_read_no_records_of_others(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tables would be a million of them."""
    tables = 12
    for number in range(tables):
        lakes.bank.open_table(f"table-{number}", {})
    lakes.bank.confirm()
    looks = list[str]()

    def counted(disk: LocalDisk, path: str) -> Any:
        looks.append(path)
        return read_record(disk, path)

    monkeypatch.setattr("storage.lake.loads.read_record", counted)
    lakes.writer().step()
    assert len(loaded(lakes)) == len(lakes.latest().tables) == tables + 2
    assert max(map(looks.count, looks)) <= 4


def test_a_record_goes_with_its_log(lakes: Lakes) -> None:
    writer = lakes.writer()
    writer.step()
    first = loaded(lakes)
    old = succeed(lakes)
    swept(lakes, writer)
    assert loaded(lakes) == first, "the newest version has it still"
    writer.step()
    swept(lakes, writer)
    assert loaded(lakes) == {*lakes.bank.logs.values()}
    assert old not in loaded(lakes)
    lakes.check_all()
    lakes.bank.play(5)
    lakes.bank.confirm()
    assert lakes.writer().step().rows > 0, "who starts anew loads nothing twice"
    lakes.check_all()


def test_a_shape_that_was_removed_before_its_first_cut_leaves_nothing(lakes: Lakes) -> None:
    """Its base was in the lake; its files were held for ever."""
    writer = lakes.writer()
    writer.step()
    die_with_another_table(lakes, "before the cut")
    log = lakes.bank.logs["extra"]
    files = files_of(lakes, log)
    assert files
    swept(lakes, writer)
    assert log in loaded(lakes), "it waits for its cut"
    assert remove(lakes, "extra") == log
    writer.step(even_if_quiet=True)
    swept(lakes, writer)
    assert log not in loaded(lakes)
    swept(lakes, writer, time.time() + 2 * ORPHAN_AGE_SECONDS_MIN)
    assert not files & lakes.files_on_disk()
    lakes.check_all()


def test_a_successors_load_waits_for_its_cut_however_long_that_takes(lakes: Lakes) -> None:
    """The table is in versions, with another log: no commit names the files yet, and they are old."""
    writer = lakes.writer()
    writer.step()
    old = lakes.bank.end_table("savings", "altered")
    lakes.bank.succeed_table("savings", old, COLUMNS, lakes.bank.accounts("savings", 7))
    lakes.bank.confirm()
    with pytest.raises(Killed):
        lakes.writer(kill("after a load")).step()
    files = files_of(lakes, lakes.bank.logs["savings"])
    swept(lakes, writer, time.time() + 2 * ORPHAN_AGE_SECONDS_MIN)
    assert files
    assert files <= lakes.files_on_disk()
    lakes.writer().step()
    lakes.check_all()


def test_who_does_not_know_the_log_takes_no_record(lakes: Lakes, tmp_path: Path) -> None:
    """`lake vacuum` has no data folder; and a writer of another folder has other logs of these numbers, or none."""
    writer = lakes.writer()
    writer.step()
    succeed(lakes)
    writer.step()
    known = loaded(lakes)
    retire(lakes.root, now=time.time())
    assert loaded(lakes) == known
    (tmp_path / "other").mkdir()
    other = Lakes(tmp_path / "other", accounts=3)
    other.bank.incarnation = type(other.bank.incarnation)(8, 1, 1)
    other.bank.confirm()
    stranger = other.writer()
    stranger.step()
    swept(lakes, stranger)
    assert loaded(lakes) == known


def test_a_record_that_an_open_cut_names_stays(lakes: Lakes) -> None:
    """Whoever finishes it may have to begin with it; its log went behind the decision."""
    writer = lakes.writer()
    writer.step()
    die_with_another_table(lakes, "after the cut")
    log = remove(lakes, "extra")
    swept(lakes, writer)
    assert log in loaded(lakes)
    writer.step()
    swept(lakes, writer)
    assert log not in loaded(lakes)
    assert lakes.latest().tables == ["checking", "savings"]


@pytest.mark.parametrize("place", ["is_ours", "has_rows", "load_of"])
def test_a_slow_twin_meets_a_record_that_went(lakes: Lakes, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """It has found a cut that begins with the log; the other is versions ahead, and the log is gone by then."""
    fast = lakes.writer()
    fast.step()
    die_with_another_table(lakes, "after the cut")
    method, met = getattr(NextCut, place), list[int]()

    def overtaken(self: NextCut, *arguments: Any) -> Any:
        if not met:
            met.append(0)
            fast.step()
            met.append(remove(lakes, "extra"))
            fast.step()
            swept(lakes, fast)
            assert met[-1] not in loaded(lakes)
        return method(self, *arguments)

    monkeypatch.setattr(NextCut, place, overtaken)
    slow = lakes.writer()
    slow.step()
    assert met
    lakes.bank.play(5)
    lakes.bank.confirm()
    slow.step()
    slow.step()
    assert lakes.latest().lsn == lakes.bank.lsn
    lakes.check()


def test_a_record_that_somebody_deleted_is_missed_loudly(lakes: Lakes) -> None:
    with pytest.raises(Killed):
        lakes.writer(kill("after the cut")).step()
    for path in (lakes.root / "loads").glob("*.json"):
        path.unlink()
    with pytest.raises(LakeDamage, match="not on record"):
        lakes.writer().step()


@pytest.mark.parametrize("call", ["remove", "sync_folder"])
@pytest.mark.parametrize("is_before", [False, True])
def test_killed_while_a_record_goes(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, call: str, *, is_before: bool
) -> None:
    """Too much is left and never too little; and the next one takes it."""
    writer = lakes.writer()
    writer.step()
    for name in ("checking", "savings"):
        succeed(lakes, name)
    writer.step()
    done = getattr(LocalDisk, call)

    def killed(disk: LocalDisk, path: str) -> None:
        if not is_before:
            done(disk, path)
        if path.startswith("loads"):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, call, killed)
        with pytest.raises(Killed):
            swept(lakes, writer)
    assert loaded(lakes) >= {*lakes.bank.logs.values()}
    swept(lakes, lakes.writer())
    lakes.bank.play(5)
    lakes.bank.confirm()
    after = lakes.writer()
    after.step()
    swept(lakes, after)
    assert loaded(lakes) == {*lakes.bank.logs.values()}
    lakes.check_all()


def test_two_who_take_the_same_record(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = lakes.writer()
    writer.step()
    succeed(lakes)
    writer.step()
    met = list[int]()

    def overtaken(lake: Any, found: Any) -> None:
        if not met:
            met.append(found.log)
            swept(lakes, writer)
        forget_load(lake, found)

    monkeypatch.setattr("storage.lake.retire.forget_load", overtaken)
    swept(lakes, writer)
    assert met
    assert loaded(lakes) == {*lakes.bank.logs.values()}
    lakes.check_all()
