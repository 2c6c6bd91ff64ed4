"""A writer at rest joins a state that deletes left in many files; and after `lake compact` it has few in any case."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.lake import state, state_files, state_joins
from storage.lake.lake_reader import LakeVersion
from storage.lake.materialize import Order, Told, materialize
from storage.lake.metrics import Trigger
from storage.lake.parquet_files import groups_in
from storage.lake.spark import run_here
from storage.rows import Kind
from tests.bank import Row
from tests.lakes import POINTS, Lakes

ROWS = 800
FULL = 16
"""Rows of a file: as many files as ten million rows have."""


@pytest.fixture(autouse=True)
def small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, state_files, state_joins):
            patch.setattr(module, "STATE_FILE_ROWS", FULL)
        yield


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """A state of full files, of which some rows in each are deleted."""
    made = Lakes(tmp_path, accounts=2)
    made.bank.open_table("third", made.bank.accounts("third", ROWS))
    made.bank.confirm()
    made.writer().step()
    rows: list[Row] = [{"id": str(number), "note": "x"} for number in range(ROWS)]
    made.bank.commit(*(("third", Kind.UPDATE, row) for row in rows))  # its files are of today's size from now on
    made.bank.confirm()
    made.writer().step()
    return made


def files(version: LakeVersion) -> list[str]:
    return version.table("third").files()


def bound(version: LakeVersion) -> float:
    """The bound of ten million rows, for these."""
    return 4 + 1.2 * len(version.table("third").arrow()) / FULL


def delete(lakes: Lakes, gone: list[int]) -> None:
    keys: list[Row] = [{"id": str(number)} for number in gone]
    lakes.bank.commit(*(("third", Kind.DELETE, key) for key in keys))
    lakes.bank.confirm()


def scatter(lakes: Lakes) -> None:
    """Rows go from everywhere, file by file, and none of them becomes small enough to be joined with the next cut."""
    delete(lakes, [number for number in range(ROWS) if number % 16 < 12])
    lakes.writer().step()
    assert len(files(lakes.latest())) > bound(lakes.latest())


def test_compact_leaves_few_files_of_a_state(lakes: Lakes) -> None:
    scatter(lakes)
    before = lakes.latest()
    assert lakes.writer().compact().version is not None
    assert len(files(lakes.latest())) <= bound(lakes.latest())
    assert lakes.latest().lsn == before.lsn
    assert all(len(groups_in(Path(path))) <= 2 * 8 for path in files(lakes.latest()))
    lakes.check_all()


def test_once_leaves_few_files(lakes: Lakes) -> None:
    scatter(lakes)
    told = list[Told]()
    order = Order(lakes.data, lakes.root)
    materialize(order, run_here, told.append)
    assert [one.step.trigger for one in told] == [None, Trigger.DEMAND], "nothing new, and the joined files"
    assert len(files(lakes.latest())) <= bound(lakes.latest())
    assert order.metrics.level == lakes.latest().lsn
    lakes.check_all()
    told.clear()
    materialize(Order(lakes.data, lakes.root), run_here, told.append)
    assert len(told) == 1, "it is not joined again"


def test_who_follows_joins_when_nothing_comes_in(lakes: Lakes) -> None:
    scatter(lakes)
    told, order = list[Told](), Order(lakes.data, lakes.root, every_seconds=0.01)

    def tell(one: Told) -> None:
        told.append(one)
        order.stop.set()

    running = threading.Thread(target=materialize, args=(order, run_here, tell), daemon=True)
    running.start()
    running.join(120)
    assert not running.is_alive()
    assert len(files(lakes.latest())) <= bound(lakes.latest())
    lakes.check_all()


def test_a_writer_looks_once_at_a_version_and_never_joins_twice(lakes: Lakes) -> None:
    scatter(lakes)
    writer = lakes.writer()
    assert writer.rest().version is not None
    number = lakes.latest().number
    assert writer.rest().version is None
    assert lakes.writer().rest().version is None
    assert lakes.latest().number == number


def test_a_state_that_is_not_scattered_is_left_alone(lakes: Lakes) -> None:
    number = lakes.latest().number
    assert lakes.writer().rest().version is None
    delete(lakes, [*range(0, ROWS, 100)])
    lakes.writer().step()
    assert lakes.writer().rest().version is None
    assert lakes.latest().number == number + 1


@pytest.mark.parametrize("point", POINTS[3:])
def test_a_writer_that_dies_at_rest_is_finished_by_the_next(lakes: Lakes, point: str) -> None:
    scatter(lakes)

    class Killed(BaseException):
        pass

    def kill(where: str) -> None:
        if where == point:
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(kill).rest()
    lakes.bank.play(5)
    lakes.bank.confirm()
    writer = lakes.writer()
    while writer.step().version is not None:
        pass
    writer.rest()
    assert len(files(lakes.latest())) <= bound(lakes.latest())
    lakes.check_all()
