"""What a writer reads goes while it reads: a twin had it first, somebody removed the shape, or a base was replaced."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage.catalog import CatalogReader
from storage.lake.errors import LogGap
from storage.lake.materialize import Order, Told, materialize
from storage.lake.spark import run_here
from storage.lake.tasks import Done, ReadPiece, Work, run
from storage.lake.writer import LakeWriter
from storage.progress import ProgressReader
from tests.integration.test_lake_folded import AWAY, Shorten, compacted, folded, update
from tests.lakes import Lakes


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    made = Lakes(tmp_path, accounts=5)
    made.end_segments(1)
    return made


def before_its_work(writer: LakeWriter, happens: Callable[[], object]) -> list[int]:
    """Something happens once, when all is planned and nothing is read; what comes back says so."""
    met = list[int]()

    def runner(work: Sequence[Work]) -> list[Done]:
        met.append(len(work))
        if len(met) == 1:
            happens()
        return [run(one) for one in work]

    writer._run = writer._next._run = runner
    return met


def remove(lakes: Lakes, name: str) -> None:
    """As `shapelog shapes remove` does: the record first, then the log."""
    log = lakes.bank.logs[name]
    lakes.bank.end_table(name, "removed")
    lakes.bank.store.remove_log(log)


@pytest.mark.parametrize("shortened", [compacted, folded])
@pytest.mark.parametrize("state_only", [False, True])
@pytest.mark.parametrize("lead", [1, 2])
def test_a_slow_twin_misses_no_rows_that_the_lake_has(
    lakes: Lakes, shortened: Shorten, lead: int, *, state_only: bool
) -> None:
    """The faster one holds the log's rows behind its own version only."""
    update(lakes, 2)
    twin = lakes.writer(state_only=state_only)
    twin.step()
    update(lakes, 8)
    slow = lakes.writer()

    def overtake() -> None:
        twin.step()
        for _ in range(lead - 1):
            update(lakes, 8)
            twin.step()
        assert shortened(lakes)

    assert before_its_work(slow, overtake) == []
    slow.step()
    assert lakes.latest().number == 1 + lead
    update(lakes, 2)
    assert slow.step().version is not None
    lakes.check_all()


def test_rows_that_a_lake_does_not_have_are_missed(lakes: Lakes) -> None:
    """Nobody was faster, and nobody removed the shape."""
    update(lakes, 2)
    lakes.writer().step()
    update(lakes, 8)
    writer = lakes.writer()
    before_its_work(writer, lambda: folded(lakes))
    with pytest.raises(LogGap):
        writer.step()


@pytest.mark.parametrize("shortened", [compacted, folded])
def test_who_follows_with_states_only_goes_on_over_a_fold_in_mid_read(lakes: Lakes, shortened: Shorten) -> None:
    """Nobody has to start it again; the process ended here once."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    update(lakes, 8)
    order, met = Order(lakes.data, lakes.root, every_seconds=0.01), list[int]()
    behind_its_leases = time.time_ns() // 1000 + AWAY

    def runner(work: Sequence[Work]) -> list[Done]:
        met.append(len(work))
        if len(met) == 1:
            update(lakes, 4)
            assert shortened(lakes, behind_its_leases)
        return run_here(work)

    def tell(told: Told) -> None:
        if told.step.version is not None and told.step.version.lsn == lakes.bank.lsn:
            order.stop.set()

    materialize(order, runner, tell)
    assert lakes.latest().tables == ["checking", "savings"]
    lakes.check()


@pytest.mark.parametrize("shortened", [compacted, folded])
def test_a_fold_in_mid_read_hides_no_rows_that_are_gone(lakes: Lakes, shortened: Shorten) -> None:
    """One table was folded; the other's log is gone, and nothing says where its rows are."""
    for name in ("checking", "savings"):
        update(lakes, 2, name)
    lakes.writer(state_only=True).step()
    update(lakes, 8, "checking")
    update(lakes, 8)
    writer = lakes.writer()

    def happens() -> None:
        update(lakes, 4)
        assert shortened(lakes)
        lakes.bank.store.remove_log(lakes.bank.logs["checking"])

    before_its_work(writer, happens)
    assert writer.step().overtaken is not None, "what was folded is had from elsewhere"
    for _ in range(2):
        with pytest.raises(LogGap, match="checking"):
            writer.step()
    assert lakes.latest().number == 1


def test_a_base_with_which_a_history_begins_is_folded_in_mid_read(lakes: Lakes) -> None:
    """It misses nothing, as it has not begun."""
    update(lakes, 8)
    writer = lakes.writer()
    met = list[int]()

    def runner(work: Sequence[Work]) -> list[Done]:
        if isinstance(work[0], ReadPiece):
            met.append(len(work))
            if len(met) == 1:
                update(lakes, 4)
                assert folded(lakes)
        return run_here(work)

    writer._run = writer._next._run = runner
    assert writer.step().overtaken is not None
    while writer.step().version is not None:
        pass
    assert lakes.latest().lsn == lakes.bank.lsn
    expected = lakes.bank.history[lakes.bank.lsn]["savings"]
    rows = lakes.latest().table("savings").arrow().to_pylist()
    assert {str(row["id"]): row["note"] for row in rows} == {key: row["note"] for key, row in expected.items()}


def test_a_shape_is_removed_while_its_rows_are_read(lakes: Lakes) -> None:
    """The version is without it, and the others are in it."""
    lakes.bank.confirm()
    writer = lakes.writer()
    writer.step()
    lakes.bank.play(10)
    lsn = lakes.bank.confirm()
    met = before_its_work(writer, lambda: remove(lakes, "savings"))
    assert writer.step().overtaken is not None
    assert met
    version = writer.step().version
    assert version is not None
    assert (version.lsn, [table.name for table in version.tables]) == (lsn, ["checking"])
    lakes.bank.play(3)
    lakes.bank.confirm()
    assert writer.step().version is not None
    lakes.check()


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_shape_is_removed_before_its_base_is_loaded(lakes: Lakes, *, is_begun: bool) -> None:
    """G lists it still. A base that is half read is none."""
    lakes.bank.confirm()
    writer = lakes.writer()
    writer.step()
    lakes.bank.open_table("extra", lakes.bank.accounts("extra", 5))
    lakes.bank.commit()
    lakes.bank.play(5)
    lsn = lakes.bank.confirm()
    if is_begun:
        before_its_work(writer, lambda: remove(lakes, "extra"))
    else:
        remove(lakes, "extra")
    version = writer.step().version
    assert version is not None
    assert (version.lsn, [table.name for table in version.tables]) == (lsn, ["checking", "savings"])
    lakes.bank.play(3)
    lakes.bank.confirm()
    assert writer.step().version is not None
    lakes.check()


@pytest.mark.parametrize("state_only", [False, True])
@pytest.mark.parametrize("others", [1, 3])
def test_a_base_is_replaced_while_others_are_loaded(lakes: Lakes, others: int, *, state_only: bool) -> None:
    """And its own, between the look at it and the first chunk, as often as may be."""
    update(lakes, 8)
    for name in ("checking", "savings"):
        update(lakes, 3, name)
    left = others

    def fold(where: str) -> None:
        nonlocal left
        if where == "before a load" and left:
            left -= 1
            for name in ("checking", "savings"):
                update(lakes, 3, name)
                assert folded(lakes, AWAY, name)

    writer = lakes.writer(fold, state_only=state_only)
    writer.step()
    assert not left
    update(lakes, 3)
    assert writer.step().version is not None
    version = lakes.latest()
    for name in ("checking", "savings"):
        expected = lakes.bank.history[version.lsn][name]
        rows = version.table(name).arrow().to_pylist()
        assert {str(row["id"]): row["note"] for row in rows} == {key: row["note"] for key, row in expected.items()}


def test_a_base_is_replaced_while_it_is_read_anew(lakes: Lakes) -> None:
    """What a state needs next was folded, and then it was folded again."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    update(lakes, 8)
    assert folded(lakes)
    lakes.bank.confirm()
    writer = lakes.writer()

    def fold() -> None:
        update(lakes, 4)
        assert folded(lakes)

    assert before_its_work(writer, fold) == []
    steps = [writer.step() for _ in range(3)]
    assert steps[0].overtaken is not None
    assert lakes.latest().lsn == lakes.bank.lsn
    lakes.check()


def test_a_table_comes_between_a_look_at_g_and_one_at_the_catalog(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G says which version of the catalog it stands on: whoever read that one first would not know it."""
    update(lakes, 2)
    writer, met = lakes.writer(), list[str]()
    writer.step()

    def followed(look: type[CatalogReader | ProgressReader]) -> Callable[..., bool]:
        refresh = look.refresh

        def refreshed(reader: Any) -> bool:
            found = refresh(reader)
            met.append(look.__name__)
            if len(met) == 1:
                lakes.bank.open_table("more", lakes.bank.accounts("more", 5))
                lakes.bank.confirm()
            return found

        return refreshed

    for look in (CatalogReader, ProgressReader):
        monkeypatch.setattr(look, "refresh", followed(look))
    update(lakes, 2)
    assert writer.step().version is not None
    assert len(met) > 1
    monkeypatch.undo()
    writer.step()
    assert "more" in lakes.latest().tables
    lakes.check_all()
