"""A lake has the rows of one data folder: others are refused before any work, unless the lake is to go over to them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import small_file
from storage.disk import LocalDisk, folder_of
from storage.lake.errors import OtherData
from storage.lake.lake_layout import LOADS, numbered_path
from storage.lake.lake_reader import open_lake
from storage.lake.materialize import Order, materialize
from storage.lake.records import read_record, record_numbers
from storage.lake.settings import LakeSettings
from storage.lake.spark import run_here
from storage.lake.writer import LakeWriter
from storage.progress import Incarnation, ProgressLog
from tests.bank import COLUMNS, FIRST_LSN, Bank, as_texts
from tests.lakes import POINTS, Lakes

NAMES = ("checking", "savings")


class Killed(BaseException):
    """A writer's process is gone."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    (tmp_path / "one").mkdir()
    return Lakes(tmp_path / "one")


@pytest.fixture
def others(tmp_path: Path, lakes: Lakes) -> Lakes:
    """Another folder of tables with the same names and numbers of logs, and the lake of the first."""
    (tmp_path / "two").mkdir()
    made = Lakes(tmp_path / "two")
    made.root, made.data = lakes.root, tmp_path / "other"
    made.data.mkdir()
    made.bank = bank = Bank(made.data, 2)
    bank.incarnation = Incarnation(7, 1, 2)
    for name in reversed(NAMES):
        bank.open_table(name, bank.accounts(name, 40, start=500))
    return made


def follow(lakes: Lakes) -> None:
    """Two versions."""
    for _ in range(2):
        lakes.bank.play(10)
        lakes.bank.confirm()
        lakes.writer().step()


def succeed(bank: Bank, count: int) -> None:
    """Every table has another log."""
    for name in NAMES:
        bank.succeed_table(name, bank.end_table(name, "altered"), COLUMNS, bank.accounts(name, count, start=900))


def forget_where_bases_are_from(root: Path) -> None:
    """As in lakes of early versions."""
    with folder_of(LocalDisk(root)) as lake:
        for number in record_numbers(lake, LOADS):
            path = numbered_path(LOADS, number)
            facts = {
                key: fact for key, fact in (read_record(lake, path) or {}).items() if key not in {"incarnation", "lsn"}
            }
            (root / path).write_bytes(small_file.encode(facts))


def adopting(lakes: Lakes, at: Callable[[str], None] = lambda _: None) -> LakeWriter:
    writer = lakes.writer(at)
    writer._next._settings = LakeSettings(adopts=True)
    return writer


def run(lakes: Lakes, data: Path | None = None, *, adopts: bool = False) -> None:
    materialize(Order(data or lakes.data, lakes.root, adopts=adopts), run_here, lambda _: None)


def contents(root: Path) -> dict[str, int]:
    """What the folder has, and when each file was written last."""
    return {str(path.relative_to(root)): path.lstat().st_mtime_ns for path in root.rglob("*")}


@pytest.mark.parametrize("step", [lambda lakes: lakes.writer().step(), lambda lakes: lakes.writer().compact(), run])
def test_another_folder_is_refused_before_any_work(
    lakes: Lakes, others: Lakes, step: Callable[[Lakes], object]
) -> None:
    follow(lakes)
    others.bank.play(10)
    others.bank.confirm()
    before = contents(lakes.root)
    with pytest.raises(OtherData, match="another data folder") as refused:
        step(others)
    assert refused.value.facts["folder_has"] == "7-1-2"
    assert contents(lakes.root) == before
    follow(lakes)
    lakes.check_all()


def test_an_older_copy_is_refused_and_one_that_is_as_far_is_not(lakes: Lakes, tmp_path: Path) -> None:
    follow(lakes)
    shutil.copytree(lakes.data, tmp_path / "early")
    follow(lakes)
    shutil.copytree(lakes.data, tmp_path / "late")
    with pytest.raises(OtherData, match="older copy"):
        run(lakes, tmp_path / "early")
    run(lakes, tmp_path / "late")
    lakes.check_all()


def test_a_stream_that_began_anew_is_of_the_same_folder(lakes: Lakes) -> None:
    """How far the slot was confirmed is lost, as after a recovery; the catalog is there, and numbers of logs go on."""
    follow(lakes)
    bank = lakes.bank
    old = {name: bank.end_table(name, "stream_lost") for name in NAMES}
    for path in lakes.data.glob("progress*"):
        path.unlink()
    bank.progress, bank.incarnation = ProgressLog(bank.disk), Incarnation(7, 1, 9)
    for name, handle in old.items():
        bank.succeed_table(name, handle, COLUMNS, bank.accounts(name, 20))
    follow(lakes)
    lakes.check()


@pytest.mark.parametrize(("begins_at", "generation"), [(FIRST_LSN // 2, 2), (10**9, 1)], ids=["lower", "higher"])
def test_a_lake_goes_over_to_another_folder_if_that_is_meant(
    lakes: Lakes, others: Lakes, begins_at: int, generation: int
) -> None:
    """Where transactions have higher numbers, the history goes on, and says that there is a hole."""
    follow(lakes)
    old = open_lake(lakes.root).latest()
    bank = others.bank
    bank.lsn = begins_at
    for name in NAMES:
        bank.end_table(name, "removed")
        bank.open_table(name, bank.accounts(name, 30, start=700))
    bank.play(10)
    lsn = bank.confirm()
    run(others, adopts=True)
    newest = lakes.latest()
    assert (newest.number, newest.lsn, str(newest.facts.incarnation)) == (old.number + 1, lsn, "7-1-2")
    lakes.check(open_lake(lakes.root).version(old.number))
    with pytest.raises(OtherData):
        run(lakes)
    follow(others)
    newest = lakes.latest()
    for name in NAMES:
        table = newest.table(name)
        assert table.facts.generation == generation
        assert as_texts(table.arrow(), COLUMNS) == bank.history[newest.lsn][name]
        told = [(row["_tx"], row["_op"], row["_kind"]) for row in table.arrow("changes").to_pylist()]
        assert told == [
            *(lakes.bank.changes[name] if generation == 1 else []),
            *([(old.lsn - 1, 0, "refetch")] if generation == 1 else []),
            *bank.changes[name],
        ]


@pytest.mark.parametrize("point", POINTS)
def test_a_lake_goes_over_through_a_crash_at_any_point(lakes: Lakes, others: Lakes, point: str) -> None:
    follow(lakes)

    def stop(where: str) -> None:
        if where == point:
            raise Killed

    others.bank.play(10)
    lsn = others.bank.confirm()
    with pytest.raises(Killed):
        adopting(others, stop).step()
    run(others, adopts=True)
    assert lakes.latest().lsn == lsn
    others.check()
    follow(others)
    others.check()


@pytest.mark.parametrize("versions", [0, 1])
@pytest.mark.parametrize("point", ["after the cut", "after a commit"])
def test_a_cut_that_nobody_can_finish_any_more_is_given_up(
    lakes: Lakes, others: Lakes, point: str, versions: int
) -> None:
    for _ in range(versions):
        follow(lakes)
    lakes.bank.play(10)
    lakes.bank.confirm()

    def stop(where: str) -> None:
        if where == point:
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(stop).step()
    others.bank.play(10)
    others.bank.confirm()
    with pytest.raises(OtherData):
        others.writer().step()
    run(others, adopts=True)
    others.check()
    given_up = open_lake(lakes.root).version(lakes.latest().number - 1)
    assert given_up.tables == ([*NAMES] if versions else [])
    for name in given_up.tables:
        assert given_up.table(name).arrow().num_rows == len(lakes.bank.history[given_up.lsn][name])


def test_a_cut_of_another_folder_comes_right_before_ones_own(lakes: Lakes, others: Lakes) -> None:
    """The lake went over: numbers of logs mean other tables, so its rows are not looked for in this folder."""
    follow(lakes)
    others.bank.lsn = 10**6
    others.bank.play(10)
    others.bank.confirm()
    lakes.bank.play(10)
    lakes.bank.confirm()

    def stop(where: str) -> None:
        if where == "after the cut":
            raise Killed

    def go_over(where: str) -> None:
        if where == "before the cut":
            with pytest.raises(Killed):
                adopting(others, stop).step()

    with pytest.raises(OtherData):
        lakes.writer(go_over).step()
    others.writer().step()
    newest = lakes.latest()
    assert newest.lsn == others.bank.lsn
    for name in NAMES:
        assert as_texts(newest.table(name).arrow(), COLUMNS) == others.bank.history[newest.lsn][name]


def test_what_another_folder_had_loaded_is_not_taken_for_its_own(lakes: Lakes, tmp_path: Path) -> None:
    """Names and numbers of logs are the same; nothing was decided yet, so nobody loses anything."""
    (tmp_path / "two").mkdir()
    others = Lakes(tmp_path / "two", accounts=15)
    others.root, others.bank.incarnation = lakes.root, Incarnation(7, 1, 2)
    lakes.bank.confirm()

    def stop(where: str) -> None:
        if where == "before the cut":
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(stop).step()
    others.bank.play(10)
    others.bank.confirm()
    run(others)
    others.check_all()


@pytest.mark.parametrize("is_old_lake", [False, True])
def test_an_older_copy_that_goes_its_own_way_takes_no_base_of_later(
    lakes: Lakes, tmp_path: Path, *, is_old_lake: bool
) -> None:
    """Both folders give out the next numbers of logs, the copy after its stream was begun anew."""
    follow(lakes)
    bank, early = lakes.bank, tmp_path / "early"
    shutil.copytree(lakes.data, early)
    copy = Bank(early, 3)
    copy.lsn, copy.incarnation = bank.lsn, Incarnation(7, 1, 5)
    copy.logs, copy.rows, copy.columns = dict(bank.logs), dict(bank.rows), dict(bank.columns)
    copy.changes = {name: [] for name in NAMES}
    follow(lakes)
    succeed(bank, count=30)
    bank.confirm()

    def stop(where: str) -> None:
        if where == "before the cut":
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(stop).step()
    if is_old_lake:
        forget_where_bases_are_from(lakes.root)
    succeed(copy, count=5)
    assert copy.logs == bank.logs
    copy.play(10)
    lsn = copy.confirm()
    with pytest.raises(OtherData, match="older copy"):
        run(lakes, early)
    run(lakes, early, adopts=True)
    newest = lakes.latest()
    assert (newest.lsn, newest.tables) == (lsn, [*NAMES])
    for name in NAMES:
        assert as_texts(newest.table(name).arrow(), COLUMNS) == copy.history[lsn][name]
