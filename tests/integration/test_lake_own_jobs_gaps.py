"""The format `shapelog` over logs that were made shorter, or set back: it says so, unless gaps are allowed."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from storage.compaction import CompactionOptions, compact
from storage.lake.errors import ChangesFolded, InvalidOption, StepBack
from storage.lake.source import ShapelogSource, ShapelogStreamReader
from storage.offset import OP_INFINITE, LogOffset
from storage.rows import Kind
from tests.lakes import Lakes

UPDATES = 8


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """A row with many updates, each in a segment."""
    made = Lakes(tmp_path, accounts=3)
    made.end_segments(1)
    update(made)
    return made


def update(lakes: Lakes) -> int:
    for number in range(UPDATES):
        lakes.bank.commit(("savings", Kind.UPDATE, {"id": "1", "note": f"note {number}"}))
        lakes.bank.store.flush_all()
    return lakes.bank.confirm()


def shorten(lakes: Lakes) -> None:
    done = compact(lakes.bank.store, lakes.bank.logs["savings"], now=1, options=CompactionOptions(segments_kept=1))
    assert done is not None, "nobody leases rows"


def source(lakes: Lakes, **options: str) -> ShapelogSource:
    return ShapelogSource({"data": str(lakes.data), "shape": "savings", **options})


def batch(lakes: Lakes, **options: str) -> pa.Table:
    opened = source(lakes, **options)
    reader = opened.reader(opened.schema())
    return pa.Table.from_batches([rows for part in reader.partitions() for rows in reader.read(part)])


def stream(lakes: Lakes, **options: str) -> ShapelogStreamReader:
    opened = source(lakes, **options)
    return opened.streamReader(opened.schema())


def notes(rows: pa.Table) -> list[Any]:
    return [one["note"] for one in rows.to_pylist() if one["id"] == 1 and one["_tx"]]


def test_a_batch_over_changes_that_became_fewer_is_refused_before_any_work(lakes: Lakes) -> None:
    assert notes(batch(lakes)) == [f"note {number}" for number in range(UPDATES)]
    shorten(lakes)
    opened = source(lakes)
    with pytest.raises(ChangesFolded, match=r"'savings-2' were folded .*gaps") as caught:
        opened.reader(opened.schema()).partitions()
    assert {"after", "upto", "folded"} == {*caught.value.facts}


def test_gaps_that_are_allowed_leave_the_newest_values(lakes: Lakes) -> None:
    shorten(lakes)
    found = notes(batch(lakes, gaps="allowed"))
    assert len(found) < UPDATES, "some are gone"
    assert found[-1] == f"note {UPDATES - 1}"


def test_behind_a_folded_range_nothing_is_missed(lakes: Lakes) -> None:
    upto = LogOffset(max(lakes.bank.history) - 1, OP_INFINITE)
    shorten(lakes)
    update(lakes)
    assert notes(batch(lakes, after=str(upto))) == [f"note {number}" for number in range(UPDATES)]


def test_a_micro_batch_that_is_read_again_has_all_its_rows_or_none(lakes: Lakes) -> None:
    """Spark repeats one whose outcome it does not know; also if the log becomes shorter while a task reads."""
    reader = stream(lakes)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = reader.partitions(start, end)
    before = sum(rows.num_rows for part in parts for rows in reader.read(part))
    shorten(lakes)
    with pytest.raises(ChangesFolded):
        reader.partitions(start, end)
    with pytest.raises(ChangesFolded):
        list(reader.read(parts[-1]))
    allowed = stream(lakes, gaps="allowed")
    after = sum(rows.num_rows for part in allowed.partitions(start, end) for rows in allowed.read(part))
    assert 0 < after < before


def test_a_stream_does_not_go_on_from_an_older_copy(lakes: Lakes, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(lakes.data, older)
    update(lakes)
    reader = stream(lakes)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    lakes.data.rename(tmp_path / "newer")
    older.rename(lakes.data)
    again = stream(lakes)
    with pytest.raises(StepBack, match=r"'savings-2' goes backwards.*given_out=\d+_inf, folder_has=\d+") as caught:
        again.latestOffset(end, ReadAllAvailable())
    assert caught.value.facts["folder_has"] <= LogOffset.parse(end["after"]).tx
    assert again.latestOffset(again.initialOffset(), ReadAllAvailable()) != end, "a new query may begin there"


def test_a_query_may_begin_above_what_is_on_disk_for_good(lakes: Lakes) -> None:
    """Readers of the server see rows a little sooner."""
    lakes.bank.commit(("savings", Kind.UPDATE, {"id": "1", "note": "new"}))
    lakes.bank.store.flush_all()
    above = LogOffset(max(lakes.bank.history) + 1, 0)
    reader = stream(lakes, after=str(above))
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == reader.initialOffset()


@pytest.mark.parametrize("text", ["yes", "true", "Allowed"])
def test_the_option_has_two_values(lakes: Lakes, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"gaps is refused or allowed, not '{text}'"):
        source(lakes, gaps=text)
