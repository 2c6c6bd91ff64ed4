"""Spark as somebody's own job has it: a session of theirs with its settings as they come, in another time zone."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as sql

from storage.lake.java import java_home
from storage.lake.source import register
from storage.lake.spark import own_folder
from storage.rows import Kind
from tests.bank import COLUMNS, Row, as_texts
from tests.lakes import Lakes

pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own, of each of its versions others

CLOCKS = COLUMNS | {"local": (1114, -1), "day": (1082, -1)}
MOMENTS: list[Row] = [
    {"id": "1", "local": "2024-03-10 02:30:00", "opened": "2024-03-10 02:30:00+00", "day": "0001-01-01"},
    {"id": "2", "local": "0001-01-01 00:00:00", "opened": "1500-01-01 00:00:00+00", "day": "1500-06-01"},
    {"id": "3", "local": "9999-12-31 23:59:59.999999", "opened": "9999-12-31 23:59:59.999999+00", "day": "9999-12-31"},
]
"""An hour that New York skips, days before the calendar was put right, and the last of all."""


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """Made as its manual says, and not by us."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", java_home(os.environ, own_folder()))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        opened = builder.config("spark.sql.session.timeZone", "America/New_York").getOrCreate()
        register(opened)
        yield opened
        opened.stop()


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    made = Lakes(tmp_path)
    made.bank.confirm()
    return made


def frame(lakes: Lakes, session: SparkSession, shape: str) -> pa.Table:
    read = session.read.format("shapelog").option("data", str(lakes.data)).option("shape", shape)
    return read.load().where("_tx >= 0").toArrow()


def test_the_format_works_in_any_session(lakes: Lakes, session: SparkSession) -> None:
    lakes.bank.play(10)
    lakes.bank.confirm()
    assert len(frame(lakes, session, "savings")) == 60 + len(lakes.bank.changes["savings"])


def test_moments_are_those_of_postgres_in_any_zone(lakes: Lakes, session: SparkSession) -> None:
    """A local time has no zone, so no session shifts it; a moment is the same everywhere."""
    bank = lakes.bank
    bank.open_table("clocks", {str(row["id"]): dict.fromkeys(CLOCKS) | row for row in MOMENTS[:2]}, CLOCKS)
    bank.confirm()
    bank.commit(("clocks", Kind.INSERT, dict.fromkeys(CLOCKS) | MOMENTS[2]))
    bank.confirm()
    lakes.writer().step()
    columns = "id", "cast(local AS string) local", "unix_micros(opened) opened", "cast(day AS string) day"
    table = lakes.latest().table("clocks")
    read = session.read.format("shapelog").option("data", str(lakes.data)).option("shape", "clocks").load()
    plain = session.read.parquet(str(lakes.root / "tables/clocks/state"))
    micros = {str(row["id"]): row["opened"].value for row in scalars(table.arrow())}
    expected = [[int(str(one["id"])), one["local"], micros[str(one["id"])], one["day"]] for one in MOMENTS]
    for found in (read, plain, table.spark(session)):
        assert found.schema["local"].dataType == sql.TimestampNTZType()
        assert sorted([*row] for row in found.selectExpr(*columns).collect()) == expected


def scalars(rows: pa.Table) -> list[dict[str, pa.Scalar]]:
    """Rows of values as Arrow has them: Python's know no year 10000, nor the zone of one before 1900."""
    return [{name: rows.column(name)[number] for name in rows.column_names} for number in range(len(rows))]


def test_a_table_without_rows_is_a_frame_with_its_columns(lakes: Lakes, session: SparkSession) -> None:
    """Neither has a file: a state behind a TRUNCATE, and a history in which nothing was told yet."""
    lakes.writer().step()
    table = lakes.latest().table("savings")
    lakes.check()
    history = table.spark(session, "changes")
    assert (history.count(), history.columns) == (0, table.schema("changes").names)
    assert table.spark(session).count() == 60
    lakes.bank.commit(("savings", Kind.TRUNCATE, None))
    lakes.bank.confirm()
    lakes.writer().step()
    emptied = lakes.latest().table("savings")
    assert emptied.files() == []
    assert (emptied.spark(session).count(), emptied.spark(session).columns) == (0, emptied.schema().names)
    assert emptied.spark(session, "changes").count() == 1


def test_a_column_that_no_file_has_yet_is_there(lakes: Lakes, session: SparkSession) -> None:
    """After a column was added, the frame has the columns that the table says, whichever files there are."""
    bank = lakes.bank
    lakes.writer().step()
    bank.play(5)
    bank.confirm()
    lakes.writer().step()
    rows = bank.rows["savings"]
    bank.succeed_table("savings", bank.end_table("savings", "columns_changed"), COLUMNS | {"limit": (20, -1)}, rows)
    bank.confirm()
    lakes.writer().step()
    table = lakes.latest().table("savings")
    for side in ("state", "changes"):
        found = table.spark(session, side)
        assert found.columns == table.schema(side).names
        assert found.select("limit").distinct().count() == 1
    state = table.spark(session).toArrow()
    place = state.schema.get_field_index("opened")
    state = state.set_column(place, "opened", state.column("opened").cast(pa.timestamp("us", "UTC")))
    assert as_texts(state, COLUMNS) == {key: {name: row[name] for name in COLUMNS} for key, row in rows.items()}
