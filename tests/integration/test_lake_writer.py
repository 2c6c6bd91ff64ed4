"""The lake's writer: versions against the bank's memory, through crashes at each point, twins, and new shapes."""

import errno
import os
import random
import time
from functools import partial
from pathlib import Path

import pytest

from storage.disk import LocalDisk
from storage.lake import limits
from storage.lake.delta_log import DeltaLog
from storage.lake.errors import (
    CommitUnknown,
    LaggingWriter,
    LogGap,
    NoDataFolder,
    NoTable,
    NotALake,
    NoVersion,
    OtherSettings,
)
from storage.lake.joins import joins
from storage.lake.lake_reader import open_lake
from storage.lake.loads import read_loads
from storage.lake.materialize import Order, Told, materialize
from storage.lake.parquet_files import FileWriter, NewFile
from storage.lake.retire import retire
from storage.lake.spark import run_here
from storage.lake.table_schema import TableSchema
from storage.leases import leases
from storage.rows import Kind
from tests.bank import COLUMNS, FIRST_LSN, as_texts
from tests.lakes import POINTS, Lakes


def empty_file(log: DeltaLog, schema: TableSchema, name: str) -> NewFile:
    return FileWriter(log.folder, name, schema.state).finish()


class Killed(BaseException):
    """The writer is gone; what is on the disk is what is left."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path)


def test_every_version_is_the_bank_as_of_its_lsn(lakes: Lakes) -> None:
    writer = lakes.writer()
    for number in range(1, 6):
        lakes.bank.play(20)
        lsn = lakes.bank.confirm()
        step = writer.step()
        assert step.version is not None
        assert (step.version.number, step.version.lsn) == (number, lsn)
    lakes.check_all()


def test_nothing_is_done_while_nothing_changes(lakes: Lakes) -> None:
    writer = lakes.writer()
    lakes.bank.confirm()
    assert writer.step().version is not None
    assert writer.step().version is None
    lakes.bank.confirm()
    assert writer.step().version is None, "G moved, and no table has a change"
    before = lakes.files_on_disk()
    step = writer.step(even_if_quiet=True)
    assert step.version is not None
    assert step.version.number == 2
    assert lakes.files_on_disk() == before
    lakes.check_all()


def test_truncate_empties_a_table_and_is_a_change(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.confirm()
    writer.step()
    bank.commit(("checking", Kind.TRUNCATE, None))
    bank.confirm()
    writer.step()
    lakes.check()
    assert lakes.latest().table("checking").files() == []
    bank.commit(
        ("checking", Kind.INSERT, bank.account("checking", "7")),
        ("savings", Kind.TRUNCATE, None),
        ("savings", Kind.INSERT, bank.account("savings", "1")),
    )
    bank.confirm()
    writer.step()
    lakes.check_all()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_writer_killed_anywhere_is_replaced(lakes: Lakes, point: str, times: int) -> None:
    """Killed when it comes by for the first or second time; another goes on, and nothing is lost or done twice."""
    seen = 0

    def kill(where: str) -> None:
        nonlocal seen
        seen += where == point
        if seen == times and where == point:
            raise Killed

    lakes.bank.play(10)
    lakes.bank.confirm()
    writer = lakes.writer(kill)
    try:
        writer.step()
        lakes.bank.play(10)
        lakes.bank.confirm()
        writer.step()
    except Killed:
        pass
    assert seen == times or point in {"before a load", "after a load"}
    lakes.bank.play(10)
    lsn = lakes.bank.confirm()
    other = lakes.writer()
    for _ in range(3):
        other.step()
    other.show()
    assert lakes.latest().lsn == lsn
    lakes.check_all()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("lead", [1, 2])
def test_a_twin_overtakes_at_any_point(lakes: Lakes, point: str, lead: int) -> None:
    """While one writer stands somewhere, another finishes the same cut, or the next one too."""
    twin = lakes.writer()
    met: list[str] = []

    def overtake(where: str) -> None:
        if where == point and not met:
            met.append(where)
            for _ in range(lead):
                twin.step()
                lakes.bank.play(5)
                lakes.bank.confirm()

    lakes.bank.play(10)
    lakes.bank.confirm()
    slow = lakes.writer(overtake)
    slow.step()
    assert met
    for writer in (slow, twin, slow):
        writer.step()
        lakes.bank.play(5)
        lakes.bank.confirm()
    slow.step()
    slow.show()
    lakes.check_all()
    numbers = open_lake(lakes.root).numbers()
    assert numbers == [*range(1, len(numbers) + 1)]


def test_two_writers_by_turns_make_what_one_makes(lakes: Lakes, tmp_path: Path) -> None:
    chance = random.Random(3)
    writers = [lakes.writer(), lakes.writer()]
    for _ in range(12):
        lakes.bank.play(8)
        lakes.bank.confirm()
        for _ in range(chance.randrange(1, 3)):
            chance.choice(writers).step()
    writers[0].step()
    lakes.check_all()


def test_what_a_loser_wrote_does_not_stay(lakes: Lakes) -> None:
    lakes.bank.play(10)
    lakes.bank.confirm()
    twin = lakes.writer()
    slow = lakes.writer(lambda where: None if where != "before the commits" else void(twin.step()))
    slow.step()
    loaded = {file.name for load in read_loads(LocalDisk(lakes.root)).values() for file in load.files}
    assert lakes.files_on_disk() - loaded == lakes.files_in_tables() - loaded


def void(_: object) -> None:
    return None


def test_a_named_shape_holds_the_lake_until_its_successor_is_ready(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.play(10)
    bank.confirm()
    writer.step()
    old = bank.end_table("savings", "columns_changed")
    bank.play(5)
    bank.confirm()
    step = writer.step(even_if_quiet=True)
    assert step.version is None
    assert "savings" in step.waits_for
    columns = COLUMNS | {"limit": (20, -1)}
    rows = {"5": {"id": "5", "owner": "me", "balance": "1.00", "opened": None, "note": None, "limit": "9"}}
    bank.succeed_table("savings", old, columns, rows)
    bank.play(5)
    bank.confirm()
    step = writer.step()
    assert step.version is not None
    assert not step.waits_for
    lakes.check()
    table = lakes.latest().table("savings")
    assert table.facts.generation == 1
    assert table.arrow().column("limit").to_pylist()[0] is not None
    assert table.arrow("changes").column("_kind").to_pylist().count("refetch") == 1


def test_a_column_of_another_type_begins_a_generation(lakes: Lakes, caplog: pytest.LogCaptureFixture) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.play(5)
    first_lsn = bank.confirm()
    writer.step()
    old = bank.end_table("savings", "column_retyped")
    rows = {"5": {"id": "5", "owner": "me", "balance": "1", "opened": None, "note": None}}
    bank.succeed_table("savings", old, COLUMNS | {"balance": (20, -1)}, rows)
    bank.confirm()
    writer.step()
    assert lakes.latest().table("savings").facts.generation == 2
    assert "generation 2 begins" in caplog.text
    assert "balance was decimal128(12, 2) and is int64" in caplog.text
    assert lakes.latest().table("savings").arrow().column("balance").to_pylist() == [1]
    lake = open_lake(lakes.root)
    assert lake.version(1).table("savings").facts.generation == 1
    assert lake.as_of(first_lsn).number == 1
    lakes.check()


def test_a_removed_shape_leaves_the_next_version(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.confirm()
    writer.step()
    bank.end_table("savings", "removed")
    bank.confirm()
    assert writer.step().version is not None
    assert lakes.latest().tables == ["checking"]
    assert not (lakes.root / "tables" / "savings" / "state").exists()
    with pytest.raises(NoTable):
        lakes.latest().table("savings")


def test_a_shape_that_comes_later_joins(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.confirm()
    writer.step()
    bank.open_table("brokerage", bank.accounts("brokerage", 130))
    assert writer.step().version is None, "no G speaks for it yet"
    bank.play(5)
    bank.confirm()
    writer.step()
    assert lakes.latest().tables == ["brokerage", "checking", "savings"]
    lakes.check_all()


def test_a_choice_of_shapes_is_kept(lakes: Lakes) -> None:
    lakes.bank.confirm()
    lakes.writer(shapes=["savings"]).step()
    assert lakes.latest().tables == ["savings"]
    lakes.writer().step()
    with pytest.raises(OtherSettings):
        lakes.writer(shapes=["checking"])


def test_without_a_key_there_are_changes_and_no_state(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.open_table("loose", {}, key=[])
    bank.commit(("loose", Kind.INSERT, bank.account("loose", "1")))
    bank.confirm()
    writer.step()
    table = lakes.latest().table("loose")
    assert len(table.arrow("changes")) == 1
    with pytest.raises(NoTable):
        table.arrow()


def test_rows_that_are_gone_stop_the_lake_loudly(lakes: Lakes) -> None:
    writer, bank = lakes.writer(), lakes.bank
    bank.confirm()
    writer.step()
    bank.play(20)
    bank.confirm()
    bank.store.remove_log(bank.logs["savings"])
    with pytest.raises(LogGap, match="savings"):
        writer.step()
    assert lakes.latest().number == 1


def test_a_shape_removed_in_mid_cut_leaves_the_version(lakes: Lakes) -> None:
    bank = lakes.bank
    bank.confirm()
    lakes.writer().step()
    bank.play(20)
    bank.confirm()

    def stop(where: str) -> None:
        if where == "after the cut":
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(stop).step()
    log = bank.logs["savings"]
    bank.end_table("savings", "removed")
    bank.store.remove_log(log)
    assert lakes.writer().step().version is not None
    assert lakes.latest().tables == ["checking"]
    bank.play(5)
    bank.confirm()
    lakes.writer().step()
    lakes.check()


def test_many_small_cuts_leave_few_files(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.lake.table_step.joins", partial(joins, tiers=((32 << 20, 12), (40_000, 4))))
    writer = lakes.writer()
    for _ in range(30):
        lakes.bank.play(4)
        lakes.bank.confirm()
        writer.step()
    lakes.check()
    table = lakes.latest().table("savings")
    assert len(table.files("changes")) <= 16
    assert len(table.files()) == 1


def test_retirement_keeps_what_kept_versions_need(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.lake.delta_log.CHECKPOINT_COMMITS", 4)
    writer = lakes.writer()
    for _ in range(14):
        lakes.bank.play(3)
        lakes.bank.confirm()
        writer.step()
    later = time.time() + 10 * limits.ORPHAN_AGE_SECONDS_MIN
    orphan = lakes.root / "delta/savings/1/state/orphan.parquet"
    orphan.write_bytes(b"x")
    done = retire(lakes.root, now=later, kept=5)
    assert done.versions > 0
    assert done.files > 0
    assert done.commits > 0
    assert not orphan.exists()
    assert len(open_lake(lakes.root).numbers()) == 5
    lakes.check_all()
    lakes.bank.play(3)
    lakes.bank.confirm()
    writer.step()
    lakes.writer().step()
    lakes.check_all()
    with pytest.raises(NoVersion):
        open_lake(lakes.root).version(1)


def test_a_young_orphan_and_a_load_without_a_cut_are_left_alone(lakes: Lakes) -> None:
    lakes.bank.confirm()
    writer = lakes.writer()
    writer.step()
    lakes.bank.open_table("brokerage", lakes.bank.accounts("brokerage", 30))
    lakes.bank.confirm()

    def stop(where: str) -> None:
        if where == "after a load":
            raise Killed

    with pytest.raises(Killed):
        lakes.writer(stop).step()
    orphan = lakes.root / "delta/savings/1/state/orphan.parquet"
    orphan.write_bytes(b"x")
    retire(lakes.root, now=time.time(), kept=1)
    assert orphan.exists()
    retire(lakes.root, now=time.time() + 10 * limits.ORPHAN_AGE_SECONDS_MIN, kept=1)
    lakes.writer().step()
    lakes.check_all()


def test_the_log_is_leased_for_the_lake_and_once(lakes: Lakes) -> None:
    lakes.bank.confirm()
    for _ in range(2):
        lakes.bank.play(3)
        lakes.bank.confirm()
        lakes.writer().step()
    held = leases(lakes.bank.disk, lakes.bank.logs["savings"], now=2)
    assert len(held) == 1
    assert held[0].offset.tx == lakes.latest().lsn - 1


def test_a_lease_goes_on_behind_the_version(lakes: Lakes) -> None:
    """Until there is one, whoever takes the place of a writer that died needs the rows that it read."""
    lakes.bank.confirm()
    lakes.writer().step()
    lakes.bank.play(10)
    lakes.bank.confirm()

    def held() -> list[int]:
        return [lease.offset.tx for log in lakes.bank.logs.values() for lease in leases(lakes.bank.disk, log, now=2)]

    before, seen = lakes.latest().lsn - 1, dict[str, list[int]]()

    def at(where: str) -> None:
        seen[where] = held()

    lakes.writer(at).step()
    seen.pop("after the views")
    assert len(seen) > 4
    assert all(offsets == [before, before] for offsets in seen.values()), seen
    assert held() == [lakes.latest().lsn - 1] * 2


def test_a_folder_without_a_lake_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotALake):
        open_lake(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> tuple[DeltaLog, TableSchema]:
    schema = TableSchema.of_definition({"version": 1, "columns": [["id", 1, 23, -1]], "key": ["id"], "log": "full"})
    log = DeltaLog(tmp_path / "t")
    log.create(schema.state)
    return log, schema


def test_a_stale_and_a_fresh_twin_commit_a_cut_once(table: tuple[DeltaLog, TableSchema]) -> None:
    log, schema = table
    stale, fresh = DeltaLog(log.folder), DeltaLog(log.folder)
    stale_handle = stale.open()
    assert stale_handle is not None
    files = [empty_file(log, schema, f"{name}.parquet") for name in "abc"]
    first = log.commit(1, schema.state, files[:1], [], {"quarantined": 3}, after=0)
    assert fresh.commit(1, schema.state, files[1:2], [], {}, after=0).version == first.version
    with pytest.raises(Exception, match="commit"):
        stale._write(stale_handle, schema.state, files[2:], [], {"cut": 1})
    assert stale.commit(1, schema.state, files[2:], [], {}, after=0).facts["quarantined"] == 3
    assert log.files() == ["a.parquet"]
    log.commit(2, schema.state, files[1:2], ["a.parquet"], {}, after=1)
    with pytest.raises(LaggingWriter):
        stale.commit(1, schema.state, files[2:], [], {}, after=0)
    assert fresh.files() == ["b.parquet"]


def test_what_was_seen_before_another_cut_is_not_committed_after_it(table: tuple[DeltaLog, TableSchema]) -> None:
    """Files that the other cut added would stay beside those that have their rows too."""
    log, schema = table
    files = [empty_file(log, schema, f"{name}.parquet") for name in "abc"]
    log.commit(1, schema.state, files[:1], [], {}, after=0)
    DeltaLog(log.folder).commit(2, schema.state, files[1:2], ["a.parquet"], {}, after=1)
    with pytest.raises(LaggingWriter, match="from cut 1 to cut 2"):
        log.commit(3, schema.state, files[2:], ["a.parquet"], {}, after=1)
    assert log.files() == ["b.parquet"]


def test_a_commit_that_never_works_is_unknown_and_loud(
    table: tuple[DeltaLog, TableSchema], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, schema = table
    new = empty_file(log, schema, "a.parquet")

    def refuse(*_: object) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(DeltaLog, "_write", refuse)
    with pytest.raises(CommitUnknown):
        log.commit(1, schema.state, [new], [], {}, after=0)


def test_a_commit_that_failed_after_it_happened_is_found(
    table: tuple[DeltaLog, TableSchema], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, schema = table
    new = empty_file(log, schema, "a.parquet")
    write = DeltaLog._write

    def happen_and_fail(self: DeltaLog, *rest: object) -> None:
        write(self, *rest)  # type: ignore[arg-type]  # passed on as they came
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(DeltaLog, "_write", happen_and_fail)
    assert log.commit(1, schema.state, [new], [], {}, after=0).version == 1
    assert log.files() == ["a.parquet"]


def test_a_writer_that_follows_outlives_a_full_disk(lakes: Lakes) -> None:
    """Whatever it was doing is tried again, and is done once."""
    lakes.bank.play(5)
    lsn = lakes.bank.confirm()
    order, faults = Order(lakes.data, lakes.root, every_seconds=0.01), list[str]()

    def fail_once(where: str) -> None:
        if where == "after a commit" and not faults:
            faults.append(where)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def tell(_: Told) -> None:
        order.stop.set()

    materialize(order, run_here, tell, fail_once)
    assert faults
    assert lakes.latest().lsn == lsn
    lakes.check_all()


def test_a_folder_in_which_nothing_was_confirmed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoDataFolder, match="nothing was confirmed"):
        materialize(Order(tmp_path, tmp_path / "lake"), run_here, void)


def test_a_lake_of_another_shape_of_time(lakes: Lakes) -> None:
    """A new incarnation of the slot: LSNs begin anew, all logs are new, versions go on."""
    writer, bank = lakes.writer(), lakes.bank
    bank.play(5)
    bank.confirm()
    writer.step()
    old = {name: bank.end_table(name, "another_timeline") for name in ("checking", "savings")}
    bank.incarnation = type(bank.incarnation)(7, 2, 1)
    bank.lsn = FIRST_LSN // 2
    for name, handle in old.items():
        bank.succeed_table(name, handle, COLUMNS, bank.accounts(name, 20))
    bank.play(5)
    bank.confirm()
    step = writer.step()
    assert step.version is not None
    assert step.version.incarnation.timeline == 2
    for name in ("checking", "savings"):
        assert as_texts(lakes.latest().table(name).arrow(), COLUMNS) == bank.history[step.version.lsn][name]
