"""A lake and logs that are made shorter before the lake has their rows, as they really are: by compaction and by folds.

A history misses what was folded, and says so before any work. A state goes on, at the start and in mid-stream, and is
the table as of every version.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.catalog_records import Rebased
from storage.clocks import Clocks
from storage.compaction import CompactionOptions, compact
from storage.flush_control import FlushOptions
from storage.lake.errors import LogGap, OtherSettings
from storage.lake.lake_reader import open_lake
from storage.lake.limits import LEASE_SECONDS
from storage.lake.retire import retire as retire_lake
from storage.lake.writer import LakeWriter
from storage.retention import RetentionPolicy, fold_prefix, retire
from storage.rows import Kind
from storage.store import Store, StoreOptions
from tests.bank import COLUMNS
from tests.lakes import POINTS, Lakes

AWAY = int(3 * LEASE_SECONDS * 1_000_000)
"""Leases that were taken at the writers' time are over by then."""

ALL_BUT_ONE = RetentionPolicy(bytes_max=0)


Shorten = Callable[..., bool]
"""`compacted` or `folded`."""


class Killed(BaseException):
    """The writer is gone; what is on the disk is what is left."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """Every flush is a segment of its own, so that there is something to fold soon."""
    made = Lakes(tmp_path, accounts=5)
    made.end_segments(1)
    return made


def update(lakes: Lakes, times: int, name: str = "savings") -> int:
    """The same row again and again."""
    for number in range(times):
        lakes.bank.commit((name, Kind.UPDATE, {"id": "1", "note": f"note {number}"}))
        lakes.bank.store.flush_all()
    return lakes.bank.confirm()


def compacted(lakes: Lakes, now: int = AWAY, name: str = "savings") -> bool:
    log = lakes.bank.logs[name]
    return compact(lakes.bank.store, log, now=now, options=CompactionOptions(segments_kept=1)) is not None


def folded(lakes: Lakes, now: int = AWAY, name: str = "savings") -> bool:
    """As the server does it: the base, its record, and only then what lies below it goes."""
    bank, log = lakes.bank, lakes.bank.logs[name]
    base = fold_prefix(bank.store, log, ALL_BUT_ONE, now=now)
    if base is not None:
        old = bank.catalog.state.newest_of(log)
        assert old is not None
        bank.catalog.append(Rebased(log, old.handle, f"{name}-{log}-{base.number}", base.number, base.floor, "fold"))
        retire(bank.store, log, now=now)
    return base is not None


def remove_old_files(lakes: Lakes) -> None:
    """What only versions before the newest need."""
    retire_lake(lakes.root, now=2e10, kept=1, age_seconds=0, orphan_seconds=0)


SHORTENED = pytest.mark.parametrize("shortened", [compacted, folded])


@SHORTENED
def test_changes_that_were_folded_are_missed_before_a_cut_is_decided(lakes: Lakes, shortened: Shorten) -> None:
    update(lakes, 2)
    lakes.writer().step()
    update(lakes, 8)
    assert shortened(lakes), "nobody leased the rows any more"
    lakes.bank.confirm()
    writer = lakes.writer()
    with pytest.raises(LogGap, match=r"'savings'.* folded into") as caught:
        writer.step()
    assert {"after", "upto"} < set(caught.value.facts)
    assert "--state-only" in caught.value.hint
    lake = open_lake(lakes.root)
    assert (lake.latest().number, lake.open_cut()) == (1, None)
    lakes.check()


@SHORTENED
def test_what_a_lake_leases_stays_as_it_is(lakes: Lakes, shortened: Shorten) -> None:
    update(lakes, 6)
    lakes.writer().step()
    update(lakes, 6)
    shortened(lakes, now=2)
    assert lakes.writer().step().version is not None
    lakes.check_all()


def test_rows_that_are_folded_while_they_are_read_stop_the_cut(lakes: Lakes) -> None:
    update(lakes, 2)
    lakes.writer().step()
    update(lakes, 8)

    def at(where: str) -> None:
        if where == "before the work":
            assert compacted(lakes)

    with pytest.raises(LogGap, match="folded"):
        lakes.writer(at).step()
    assert lakes.latest().number == 1
    lakes.check_all()


@SHORTENED
@pytest.mark.parametrize("begun", [False, True])
def test_a_state_accepts_what_was_folded(lakes: Lakes, shortened: Shorten, begun: bool) -> None:
    """At the start of a lake, and in mid-stream."""
    update(lakes, 2)
    writer = lakes.writer(state_only=True)
    if begun:
        writer.step()
    lakes.bank.play(30)
    update(lakes, 8)
    assert shortened(lakes)
    lakes.bank.play(10)
    lsn = lakes.bank.confirm()
    version = writer.step().version
    assert version is not None
    assert version.lsn == lsn
    assert all(table.changes is None for table in version.tables)
    lakes.bank.play(10)
    lakes.bank.confirm()
    assert lakes.writer().step().version is not None, "another writer goes on, and keeps the lake's choice"
    lakes.check_all()
    assert lakes.files_on_disk() >= lakes.files_in_tables()


def test_no_version_is_cut_inside_a_folded_range(lakes: Lakes) -> None:
    """What a writer decided before has no version with the table, if its rows came into a later one meanwhile."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    update(lakes, 4)

    def at(where: str) -> None:
        if where == "before the work":
            update(lakes, 4)
            assert compacted(lakes)

    assert lakes.writer(at).step().overtaken is not None
    assert lakes.latest().number == 1
    lakes.check_all()
    writer = lakes.writer()
    versions = [step.version for step in (writer.step(), writer.step())]
    assert [version and len(version.tables) for version in versions] == [1, 2]
    lakes.check()


@SHORTENED
def test_a_cut_ends_where_the_rows_are_known(lakes: Lakes, shortened: Shorten) -> None:
    """G is found in the progress log, and older ones are there as well: none below the fold is taken."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    middle = [update(lakes, 3), update(lakes, 3)]
    last = update(lakes, 3)
    assert shortened(lakes)
    version = lakes.writer().step().version
    assert version is not None
    assert version.lsn == last > max(middle)
    lakes.check_all()


def left_out_once(lakes: Lakes, shortened: Shorten) -> LakeWriter:
    """A cut whose writer died is folded over: its version is without the table, and the next one has it again."""

    def kill(where: str) -> None:
        if where == "after the cut":
            raise Killed

    update(lakes, 2)
    with pytest.raises(Killed):
        lakes.writer(kill).step()
    update(lakes, 8)
    assert shortened(lakes)
    writer = lakes.writer()
    for names in (["checking"], ["checking", "savings"]):
        step = writer.step()
        assert step.version is not None
        assert [table.name for table in step.version.tables] == names
    lakes.check()
    return writer


@SHORTENED
@pytest.mark.parametrize("loads_are_gone", [False, True])
def test_a_cut_that_was_folded_over_is_done_without_the_table(
    lakes: Lakes, shortened: Shorten, loads_are_gone: bool
) -> None:
    """Its writer died for longer than a lease; the next version has the table again, from whatever base there is."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    if loads_are_gone:
        update(lakes, 1)
        lakes.writer().step()
        remove_old_files(lakes)
    left_out_once(lakes, shortened)


@pytest.mark.parametrize("shortened", [compacted, folded])
@pytest.mark.parametrize("file_rows", [100, 2])
def test_a_table_that_comes_again_has_each_row_of_its_load_once(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, shortened: Shorten, file_rows: int
) -> None:
    """What it was loaded with is still in its state, where nothing had changed; and it begins with that once more."""
    monkeypatch.setattr("storage.lake.state_files.STATE_FILE_ROWS", file_rows)
    lakes.bank.confirm()
    lakes.writer(state_only=True).step()
    writer = left_out_once(lakes, shortened)
    update(lakes, 2)
    writer.step()
    lakes.check()


def test_below_a_base_there_is_no_cut_without_the_table(lakes: Lakes) -> None:
    """Another table holds the lake at an older G, where rows of this one are not known any more: both wait."""
    update(lakes, 2)
    writer = lakes.writer(state_only=True)
    writer.step()
    update(lakes, 2)
    old = lakes.bank.end_table("checking", "altered")
    update(lakes, 6)
    assert folded(lakes)
    step = writer.step()
    assert (step.version, [*step.waits_for]) == (None, ["checking"])
    lakes.bank.succeed_table("checking", old, COLUMNS, lakes.bank.accounts("checking", 3))
    lakes.bank.confirm()
    assert writer.step().version is not None
    assert lakes.latest().tables == ["checking", "savings"]
    lakes.check()


@pytest.mark.parametrize("state_only", [False, True])
def test_what_is_committed_does_not_miss_its_log(lakes: Lakes, state_only: bool) -> None:
    """A writer died between two tables, and then what the first one has was folded."""

    def kill(where: str) -> None:
        if where == "after a commit":
            raise Killed

    update(lakes, 2)
    lakes.writer(state_only=state_only).step()
    update(lakes, 4, "checking")
    update(lakes, 4)
    with pytest.raises(Killed):
        lakes.writer(kill).step()
    update(lakes, 4, "checking")
    assert compacted(lakes, name="checking")
    version = lakes.writer().step().version
    assert version is not None
    assert [table.name for table in version.tables] == ["checking", "savings"]
    lakes.check_all()


@SHORTENED
def test_rows_that_are_emptied_and_folded(lakes: Lakes, shortened: Shorten) -> None:
    """A TRUNCATE on either side of what a state has."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    for _ in range(3):
        lakes.bank.commit(("savings", Kind.TRUNCATE, None))
        lakes.bank.play(20)
        lakes.bank.store.flush_all()
        shortened(lakes)
        lakes.bank.play(20)
        lakes.bank.confirm()
        lakes.writer().step()
    lakes.check_all()


@pytest.mark.parametrize("state_only", [False, True])
def test_a_load_that_waited_too_long_is_done_anew(lakes: Lakes, state_only: bool) -> None:
    """A history has not begun yet, so it misses nothing."""

    def kill(where: str) -> None:
        if where == "before the cut":
            raise Killed

    update(lakes, 4)
    with pytest.raises(Killed):
        lakes.writer(kill, state_only=state_only).step()
    update(lakes, 8)
    assert folded(lakes)
    lakes.bank.play(5)
    lakes.bank.confirm()
    assert lakes.writer().step().version is not None
    expected = lakes.bank.history[lakes.latest().lsn]["savings"]
    assert sorted(lakes.latest().table("savings").arrow()["id"].to_pylist()) == sorted(map(int, expected))


@pytest.mark.parametrize("point", POINTS)
def test_writers_that_die_while_they_read_a_base_anew(lakes: Lakes, point: str) -> None:
    def kill(where: str) -> None:
        if where == point:
            raise Killed

    update(lakes, 2)
    lakes.writer(state_only=True).step()
    update(lakes, 8)
    assert folded(lakes)
    lakes.bank.play(5)
    lakes.bank.confirm()
    with pytest.raises(Killed):
        lakes.writer(kill).step()
    lakes.writer().step()
    lakes.bank.play(5)
    lakes.bank.confirm()
    lakes.writer().step()
    lakes.check_all()


@pytest.mark.parametrize("point", POINTS)
def test_a_twin_overtakes_while_a_base_is_read_anew(lakes: Lakes, point: str) -> None:
    """What was written in vain goes, and nothing that a version names."""
    update(lakes, 2)
    lakes.writer(state_only=True).step()
    before = lakes.files_on_disk()
    update(lakes, 8)
    assert folded(lakes)
    lakes.bank.confirm()
    twin = lakes.writer()

    def at(where: str) -> None:
        if where == point:
            twin.step()

    lakes.writer(at).step()
    lakes.check_all()
    assert lakes.files_on_disk() - before <= lakes.files_in_tables()


@pytest.mark.parametrize("seed", range(6))
def test_states_of_logs_that_are_folded_at_any_time(tmp_path: Path, seed: int) -> None:
    made = Lakes(tmp_path, seed=seed, accounts=8)
    options = StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=400))
    made.bank.store = Store(made.bank.disk, Clocks(lambda: 0.0), options, confirmed_tx=0)
    chance, writer = random.Random(seed), made.writer(state_only=True)
    for _ in range(25):
        for _ in range(chance.randrange(4)):
            made.bank.play(chance.randrange(1, 6))
            made.bank.store.flush_all()
        name, now = chance.choice(["checking", "savings"]), chance.choice([2, AWAY])
        if chance.random() < 0.6:
            chance.choice([compacted, folded])(made, now, name)
        made.bank.confirm()
        if chance.random() < 0.5:
            writer = made.writer() if chance.random() < 0.3 else writer
            writer.step()
    made.bank.confirm()
    writer.step(even_if_quiet=True)
    made.check_all()
    assert made.latest().lsn == made.bank.lsn


def test_a_lake_keeps_its_choice(lakes: Lakes) -> None:
    update(lakes, 2)
    lakes.writer().step()
    with pytest.raises(OtherSettings, match="histories"):
        lakes.writer(state_only=True)


def test_a_shape_with_changes_only_has_no_table_among_states(lakes: Lakes) -> None:
    lakes.bank.open_table("events", {}, log="changes_only")
    update(lakes, 2)
    assert lakes.writer(state_only=True).step().version is not None
    assert lakes.latest().tables == ["checking", "savings"]
