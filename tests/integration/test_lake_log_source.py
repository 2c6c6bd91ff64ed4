"""The format `shapelog` without a JVM: ranges and their parts, what is passed down to it, and G as the end."""

import pickle
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadMaxRows

from storage.lake import changes
from storage.lake.casts import cast
from storage.lake.errors import LogGap
from storage.lake.log_source import LogSource
from storage.lake.pieces import pieces
from storage.lake.source import ShapelogReader, ShapelogSource
from storage.offset import BEFORE_ALL, OP_INFINITE, LogOffset
from tests.lakes import Lakes

ACCOUNTS = 120
"""A base of three chunks."""

LONG_MAX = 2**63 - 1
"""Of Spark's numbers."""

Place = tuple[int, int]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    """A log of many blocks, with rows above G."""
    made = Lakes(tmp_path_factory.mktemp("source"), accounts=ACCOUNTS)
    made.end_segments(500)
    for _ in range(12):
        made.bank.play(15)
        made.bank.store.flush_all()
    made.bank.confirm()
    made.bank.play(15)
    made.bank.store.flush_all()
    return made


@pytest.fixture(scope="module", autouse=True)
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("storage.lake.log_source.CHUNKS_EACH", 1)
        patch.setattr("storage.lake.log_source.pieces", partial(pieces, wire_bytes=700))
        yield


def reader_of(lakes: Lakes, columns: list[str] | None = None, **options: str) -> ShapelogReader:
    source = ShapelogSource({"data": str(lakes.data), "shape": "savings", **options})
    schema = source.schema()
    return source.reader(schema if columns is None else type(schema)([schema[name] for name in columns]))


def read(reader: ShapelogReader) -> pa.Table:
    """Its parts, one behind the other, as Spark's tasks would read them."""
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches)


def places(table: pa.Table) -> list[Place]:
    return list(zip(table.column("_tx").to_pylist(), table.column("_op").to_pylist(), strict=True))


def all_places(lakes: Lakes) -> list[Place]:
    """Rows of the base, and changes below G."""
    lsn = max(lakes.bank.history)
    told = [(tx, op) for tx, op, _ in lakes.bank.changes["savings"] if tx < lsn]
    return [(0, number // 50) for number in range(ACCOUNTS)] + told


def test_parts_are_all_rows_below_g_once_and_in_order(lakes: Lakes) -> None:
    reader = reader_of(lakes)
    assert len(reader.partitions()) > 6
    assert places(read(reader)) == all_places(lakes)
    assert len(lakes.bank.changes["savings"]) > len(all_places(lakes)) - ACCOUNTS, "there are rows above G"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.data())
def test_a_range_is_a_function_of_its_ends(lakes: Lakes, data: st.DataObject) -> None:
    """Cut anywhere, also inside a transaction, the parts have what the whole has; and the same when read again."""
    source = LogSource(str(lakes.data), "savings")
    known = sorted({LogOffset(*place) for place in all_places(lakes)} | {BEFORE_ALL, LogOffset(0, OP_INFINITE)})
    ends = sorted(data.draw(st.lists(st.sampled_from(known), min_size=2, max_size=5)))
    parts = [part for low, high in pairwise(ends) for part in source.ranges(low, high)]
    found = [place for low, high in parts for place in of_range(source, low, high)]
    wanted = [place for place in all_places(lakes) if ends[0] < LogOffset(*place) <= ends[-1]]
    assert found == of_range(source, ends[0], ends[-1]) == wanted


def of_range(source: LogSource, low: LogOffset, high: LogOffset) -> list[Place]:
    batches = list(source.read(low, high, ["_tx", "_op"]))
    return [place for batch in batches for place in places(pa.Table.from_batches([batch]))]


FILTERS: dict[type[Any], Any] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
@given(data=st.data())
def test_comparisons_of_the_transaction_narrow_what_is_read(lakes: Lakes, data: st.DataObject) -> None:
    """To exactly what they say; and Spark is told to apply them all the same."""
    numbers = [-1, 0, 1, *{tx for tx, _ in all_places(lakes)}, LONG_MAX - 1]
    drawn = data.draw(
        st.lists(st.tuples(st.sampled_from([*FILTERS]), st.sampled_from(numbers), st.integers(-1, 1)), max_size=3)
    )
    chosen: list[tuple[type[Any], int]] = [(kind, number + shift) for kind, number, shift in drawn]
    filters: list[Filter] = [kind(("_tx",), number) for kind, number in chosen]
    others: list[Filter] = [GreaterThan(("id",), 10**6), EqualTo(("_tx", "inner"), 3), EqualTo(("_tx",), None)]
    reader = reader_of(lakes, ["_tx", "_op"])
    assert [*reader.pushFilters([*others, *filters])] == [*others, *filters]
    found = [place for part in reader.partitions() for batch in reader.read(part) for place in batch_places(batch)]
    assert found == [
        place for place in all_places(lakes) if all(FILTERS[kind](place[0], number) for kind, number in chosen)
    ]


def batch_places(batch: pa.RecordBatch) -> list[Place]:
    return places(pa.Table.from_batches([batch]))


def test_columns_that_are_not_asked_for_are_not_cast(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[pa.DataType] = []

    def counted(texts: pa.Array, kind: Any) -> Any:
        seen.append(kind.arrow)
        return cast(texts, kind)

    monkeypatch.setattr(changes, "cast", counted)
    narrow = read(reader_of(lakes, ["balance", "_tx"]))
    assert {*seen} == {pa.decimal128(12, 2)}
    whole = read(reader_of(lakes))
    assert len({*seen}) > 3
    assert narrow.column_names == ["balance", "_tx"]
    for name in narrow.column_names:
        assert narrow.column(name).to_pylist() == whole.column(name).to_pylist()


def test_a_stream_in_batches_of_any_size_has_each_row_once(lakes: Lakes) -> None:
    for size in (1, 7, 1000):
        source = ShapelogSource({"data": str(lakes.data), "shape": "savings"})
        stream = source.streamReader(source.schema())
        start, found = stream.initialOffset(), list[Place]()
        while (end := stream.latestOffset(start, ReadMaxRows(size))) != start:
            parts: list[InputPartition] = [*stream.partitions(start, end)]
            rows = [place for part in parts for batch in stream.read(part) for place in batch_places(batch)]
            assert rows, "an offset that moves has rows"
            assert len(rows) <= max(size, 50), "a chunk of a base is not divided"
            found, start = found + rows, end
        assert found == all_places(lakes)


def test_a_folder_that_is_named_from_here_is_found_from_elsewhere(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker is another process, in a folder of its own."""
    monkeypatch.chdir(lakes.data.parent)
    source = ShapelogSource({"data": "data", "shape": "savings"})
    sent = pickle.dumps([source.reader(source.schema()), source.streamReader(source.schema())])
    monkeypatch.chdir(tmp_path)
    reader, stream = pickle.loads(sent)  # noqa: S301 - it was made above
    assert places(read(reader)) == all_places(lakes)
    assert stream.initialOffset()["handle"] == "savings-2"


def test_a_log_that_is_gone_is_said(tmp_path: Path) -> None:
    made = Lakes(tmp_path, accounts=3)
    made.bank.play(10)
    made.bank.confirm()
    reader = reader_of(made)
    parts = reader.partitions()
    made.bank.store.remove_log(made.bank.logs["savings"])
    with pytest.raises(LogGap, match="begin a new query"):
        [*reader.read(parts[-1])]
