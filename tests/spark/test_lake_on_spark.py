"""The lake on Spark: its work as jobs, its tables read by every engine, its logs as frames and streams."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage.lake import open_lake
from storage.lake.errors import LogGap, TaskFailed
from storage.lake.materialize import Order, Told, materialize
from storage.lake.metrics import Trigger
from storage.lake.source import register
from storage.lake.spark import LOG_NAME, open_session, own_folder, runner_of
from storage.lake.tasks import MergeRange
from storage.lake.work_progress import Share
from storage.rows import Kind
from tests.bank import COLUMNS, as_texts
from tests.lake_equality import check_made_as_by_one
from tests.lakes import Lakes
from tests.tree import ROOT
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own, of each of its versions others


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    opened = open_session("local[2]", {"spark.ui.enabled": "false", "spark.sql.python.filterPushdown.enabled": "true"})
    register(opened)
    yield opened
    opened.stop()


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path)


def run_once(lakes: Lakes, session: SparkSession) -> list[Told]:
    told: list[Told] = []
    materialize(Order(lakes.data, lakes.root), runner_of(session), told.append)
    return told


def test_every_engine_reads_what_the_bank_had(lakes: Lakes, session: SparkSession, tmp_path: Path) -> None:
    """As plain files and through the Delta log, at each version; money is never made."""
    total = None
    for _ in range(3):
        lakes.bank.play(25)
        lakes.bank.confirm()
        run_once(lakes, session)
        version = lakes.latest()
        lakes.check(version)
        sums = []
        for name in version.tables:
            table, expected = version.table(name), lakes.bank.history[version.lsn][name]
            side = table.facts.state
            assert side is not None
            delta = pl.scan_delta(str(lakes.root / "delta" / name / "1/state"), version=side.delta).collect().to_arrow()
            plain = pl.scan_parquet(str(lakes.root / "tables" / name / "state" / "*.parquet")).collect().to_arrow()
            listed = duckdb.read_parquet(table.files()).to_arrow_table()
            for found in (delta, plain, listed):
                assert as_texts(in_utc(found), COLUMNS) == expected
            by_spark = session.read.parquet(str(lakes.root / "tables" / name / "state"))
            assert as_texts(in_utc(by_spark.toArrow()), COLUMNS) == expected
            sums.append(duckdb.read_parquet(table.files()).sum("balance").fetchall()[0][0])
        total = total or sum(sums)
        assert sum(sums) == total
    assert table.spark(session).count() == len(expected)
    check_made_as_by_one(lakes, tmp_path / "alone")  # and so does a cluster: `test_lake_on_a_cluster`


def in_utc(table: pa.Table) -> pa.Table:
    """An engine may name the zone otherwise."""
    place = table.schema.get_field_index("opened")
    return table.set_column(place, "opened", table.column("opened").cast(pa.timestamp("us", "UTC")))


def test_a_condition_with_a_name_comes_back_from_a_worker(lakes: Lakes, session: SparkSession) -> None:
    lakes.bank.play(5)
    lakes.bank.confirm()
    run_once(lakes, session)
    lakes.bank.play(20)
    lakes.bank.confirm()
    writer = lakes.writer()
    writer._run = runner_of(session)
    writer._next.trigger = lambda *_: Trigger.ROWS  # type: ignore[method-assign]  # so that a worker is the first to notice
    lakes.bank.store.remove_log(lakes.bank.logs["savings"])
    with pytest.raises(LogGap):
        writer.step()


def test_how_far_a_job_is_is_told(lakes: Lakes, session: SparkSession) -> None:
    lakes.bank.play(40)
    lakes.bank.confirm()
    heard: list[Share] = []
    materialize(Order(lakes.data, lakes.root), runner_of(session, heard.append), lambda _: None)
    jobs = [share for share in heard if share.pieces == 0]
    ends = [share for share in heard if share.pieces == share.of]
    assert len(jobs) >= 3, "two loads, and the cut"
    assert len(ends) >= len(jobs)
    assert all(0 <= share.pieces <= share.of for share in heard)
    assert max(share.rows for share in heard) >= 60
    assert sum(share.files for share in heard) > 0


def test_spark_writes_its_log_to_its_file(session: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    java: Any = session.sparkContext._jvm
    java.org.apache.logging.log4j.LogManager.getLogger("shapelog.test").warn("a word to the log")
    until(lambda: "a word to the log" in (own_folder() / LOG_NAME).read_text(), "the line")
    assert capfd.readouterr() == ("", "")


def test_a_session_that_cannot_start_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cdc.cli", "materialize", "--once"]
    lakes = Lakes(tmp_path, accounts=3)
    lakes.bank.confirm()
    done = subprocess.run(
        [*command, "--data-dir", lakes.data, "--lake", lakes.root, "--conf", "spark.driver.memory=100000g"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, "[spark_gone] Spark did not start at local[2]" in last) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_that_fails_says_why(session: SparkSession) -> None:
    broken: Any = MergeRange(None, None, ())  # type: ignore[arg-type]  # nothing that a task could work on
    with pytest.raises(TaskFailed, match="AttributeError"):
        runner_of(session)([broken])


def test_a_log_as_a_frame(lakes: Lakes, session: SparkSession) -> None:
    bank = lakes.bank
    bank.play(40)
    lsn = bank.confirm()
    bank.commit(("savings", Kind.UPDATE, {"id": next(iter(bank.rows["savings"])), "note": "not confirmed"}))
    bank.store.flush_all()
    source = session.read.format("shapelog").option("data", str(lakes.data)).option("shape", "savings")
    rows = source.load().toArrow().to_pylist()
    assert [row["_kind"] for row in rows[:60]] == ["insert"] * 60
    found = [(row["_tx"], row["_op"], row["_kind"]) for row in rows[60:]]
    assert found == [change for change in bank.changes["savings"] if change[0] < lsn]

    middle = found[len(found) // 2][0]
    assert source.load().where(f"_tx > {middle}").count() == sum(one[0] > middle for one in found)
    few = session.read.schema("id int, _tx long").format("shapelog").option("data", str(lakes.data))
    narrow = few.option("shape", "savings").load().toArrow()
    assert narrow.column_names == ["id", "_tx"]
    assert narrow.column("id").to_pylist() == [row["id"] for row in rows]
    assert source.option("after", "0_inf").load().count() == len(found)


def test_a_log_as_a_stream(lakes: Lakes, session: SparkSession, tmp_path: Path) -> None:
    """In small micro-batches, over a restart: every row once."""
    bank, out = lakes.bank, tmp_path / "out"

    def drain() -> int:
        stream = session.readStream.format("shapelog").option("data", str(lakes.data)).option("shape", "checking")
        query = (
            stream.option("maxRows", "25")
            .load()
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return len(query.recentProgress)

    for _ in range(2):
        bank.play(90)
        lsn = bank.confirm()
        assert drain() >= 2
        rows = session.read.parquet(str(out)).toArrow().to_pylist()
        found = sorted((row["_tx"], row["_op"], row["_kind"]) for row in rows if row["_tx"])
        assert found == [change for change in bank.changes["checking"] if change[0] < lsn]
        assert sum(not row["_tx"] for row in rows) == 60


def test_a_wrong_option_is_named(lakes: Lakes, session: SparkSession) -> None:
    with pytest.raises(PySparkException, match="option 'shape' is missing"):
        session.read.format("shapelog").option("data", str(lakes.data)).load()
    with pytest.raises(PySparkException, match="no shape 'nobody'"):
        session.read.format("shapelog").option("data", str(lakes.data)).option("shape", "nobody").load()


def test_the_public_door(lakes: Lakes, session: SparkSession) -> None:
    lakes.bank.play(5)
    lakes.bank.confirm()
    (told,) = run_once(lakes, session)
    assert told.step.version is not None
    version = open_lake(os.fspath(lakes.root)).latest()
    assert version.number == told.step.version.number
    assert version.table("savings").dataset().count_rows() == len(lakes.bank.rows["savings"])
