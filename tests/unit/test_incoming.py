"""What comes into a store: bad tables are refused before anything is taken, and fragments reach each log's readers."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BufferFull, InvalidRows, StorageError, WentBackwards
from storage.incoming import FragmentShares, source_of
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.rows import row_schema
from storage.share import Share
from storage.store import StoreOptions
from tests.unit.builders import BOTH_FILES, COLUMNS, Rig, offsets, rows, to_journal, transaction

GOOD = {"tx": 1, "op": 0, "kind": 1, "new": {"id": "1.0", "text": ""}}
SCHEMA = pa.schema(
    [
        pa.field("tx", pa.uint64()),
        pa.field("op", pa.uint64()),
        pa.field("kind", pa.uint8()),
        pa.field("new", row_schema(COLUMNS).field("new").type),
    ]
)


def table(*wanted: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([GOOD | row for row in wanted], schema=schema)


def with_type(name: str, kind: pa.DataType) -> pa.RecordBatch:
    """The same table, but for the type of a column."""
    kept = [field for field in SCHEMA if field.name != name]
    values = {} if name in GOOD else {name: None}
    return pa.RecordBatch.from_pylist(
        [{key: value for key, value in (GOOD | values).items() if key != name}],
        schema=pa.schema([*kept, pa.field(name, kind)]),
    )


BAD = {
    "no rows": table(),
    "no tx": table({"tx": None}),
    "no op": table({"op": None}),
    "no kind": table({"kind": None}),
    "no columns": pa.RecordBatch.from_pylist([{"a": 1}]),
    "new is missing": table({}).select(["tx", "op", "kind"]),
    "signed tx": with_type("tx", pa.int64()),
    "wide kind": with_type("kind", pa.uint64()),
    "kind 0": table({"kind": 0}),
    "kind 9": table({"kind": 9}),
    "absent is a list": with_type("absent", pa.list_(pa.int64())),
    "absent is text": with_type("absent", pa.string()),
    "a column twice": table({}).append_column("kind", pa.array([1], pa.uint8())),
    "new is no struct": with_type("new", pa.string()),
    "new has numbers": with_type("new", pa.struct([pa.field("id", pa.int64())])),
    "old has numbers": with_type("old", pa.struct([pa.field("id", pa.int64())])),
    "old is no struct": with_type("old", pa.string()),
}


@pytest.mark.parametrize("batch", BAD.values(), ids=BAD)
def test_a_bad_table_is_refused_and_leaves_nothing(batch: pa.RecordBatch) -> None:
    """A table that is found out later, in a flush, would keep all logs from being flushed."""
    rig = Rig()
    with pytest.raises(InvalidRows):
        rig.store.append(1, batch, after=SNAPSHOT_END, aligned=LogOffset(9, 1))
    assert rig.upper() == SNAPSHOT_END
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] == 0


@pytest.mark.parametrize("at", [[(1, 0), (1, 0)], [(2, 0), (1, 0)], [(1, 2), (1, 0)]])
def test_rows_out_of_order_are_refused(at: list[tuple[int, int]]) -> None:
    with pytest.raises(WentBackwards):
        source_of(rows(at))


def test_a_table_is_one_batch() -> None:
    source = source_of(pa.Table.from_batches([rows([(1, 0)]), rows([(1, 2)])]))
    assert offsets([source.batch]) == transaction(1, 2)
    with pytest.raises(InvalidRows):
        source_of(pa.Table.from_batches([], schema=SCHEMA))


def test_a_good_table_with_old_values() -> None:
    schema = SCHEMA.append(pa.field("old", SCHEMA.field("new").type))
    rig = Rig()
    rig.store.append(1, table({"old": {"id": "x", "text": None}}, schema=schema), after=SNAPSHOT_END)
    rig.store.flush(demand=[1])


# Fragments.


def shares(*each: tuple[int, list[int], int, LogOffset | None]) -> FragmentShares:
    """Of each log: its number, its rows in the table, how many of them are committed, and up to where."""
    return FragmentShares(
        logs=[log for log, _, _, _ in each],
        rows=np.array([row for _, selected, _, _ in each for row in selected], dtype=np.int64),
        ends=list(np.cumsum([len(selected) for _, selected, _, _ in each])),
        committed=[committed for _, _, committed, _ in each],
        aligned=[aligned for _, _, _, aligned in each],
    )


FIRST_END, SECOND_END = LogOffset(1, 5), LogOffset(2, 3)
TABLE = rows([*transaction(1, 4), *transaction(2, 4)])


@given(st.lists(st.tuples(st.sets(st.integers(0, 7)).map(sorted), st.integers(0, 8)), max_size=6))
def test_a_cut_is_what_slices_of_the_rows_are(wanted: list[tuple[list[int], int]]) -> None:
    """Whatever each log takes, and however much of it is committed: also nothing."""
    each = [(selected, min(committed, len(selected))) for selected, committed in wanted]
    parts = shares(*((log, selected, committed, SECOND_END) for log, (selected, committed) in enumerate(each)))
    source = source_of(TABLE)
    found = list(parts.cut(source, 7.0))
    assert [log for log, _, _, _ in found] == list(range(len(each)))
    for (_, whole, aligned, still_open), (selected, committed) in zip(found, each, strict=True):
        assert aligned == SECOND_END
        for share, numbers in ((whole, selected[:committed]), (still_open, selected[committed:])):
            assert (share is None) == (not numbers)
            if share is not None:
                plain = Share(source, np.array(numbers), at=7.0)
                told = [(one.count, one.first, one.last, one.wire, one.size, one.at) for one in (share, plain)]
                assert told[0] == told[1]
                assert share.batch().equals(plain.batch())


def rig_of_logs(count: int, **buffer: int) -> Rig:
    rig = Rig(options=to_journal(**buffer))
    for log in range(2, count + 1):
        rig.create(log)
    return rig


FRAGMENT = rows([*transaction(1, 3), *transaction(2, 2), *transaction(3, 2)])
PARTS = shares((1, [0, 3, 5], 2, SECOND_END), (2, [1, 2], 2, FIRST_END), (3, [6], 0, None))


def test_a_fragment_gives_each_log_its_rows() -> None:
    """Of two whole transactions and the beginning of a third."""
    rig = rig_of_logs(4)
    rig.store.append_fragment(FRAGMENT, PARTS, after=SNAPSHOT_END, upto=LogOffset(3, 2))
    assert rig.read_all(log=1) == [LogOffset(1, 0), LogOffset(2, 0)]
    assert rig.read_all(log=2) == [LogOffset(1, 2), LogOffset(1, 4)]
    assert [rig.read_all(log=log) for log in (3, 4)] == [[], []]
    rig.store.append_fragment(
        rows([(3, 4)]),
        shares((1, [0], 1, LogOffset(3, 5)), (3, [], 0, LogOffset(3, 5))),
        after=LogOffset(3, 2),
        upto=LogOffset(3, 5),
    )
    assert rig.read_all(log=1)[2:] == [LogOffset(3, 0), LogOffset(3, 4)]
    assert rig.read_all(log=3) == [LogOffset(3, 2)]


@BOTH_FILES
def test_what_a_change_is_to_different_logs_may_differ(options: StoreOptions) -> None:
    """Its offset is there twice then, one row beside the other."""
    rig = Rig(options=options)
    rig.create(2)
    fragment = pa.concat_batches([rows([(1, 0)]), rows([(1, 2)], text="new"), rows([(1, 2)], text="gone")])
    parts = shares((1, [0, 1], 2, FIRST_END), (2, [0, 2], 2, FIRST_END))
    rig.store.append_fragment(fragment, parts, after=SNAPSHOT_END, upto=FIRST_END)
    for _ in range(2):
        for log, text in ((1, "new"), (2, "gone")):
            found = [row["new"]["text"] for batch in rig.read(log=log).rows for row in batch.to_pylist()]
            assert found == ["", text]
        rig.store.flush_all()
        rig = rig.reopened()


@pytest.mark.parametrize("selected", [[0, 3, 2], [0, 1, 1], [1, 0]])
def test_a_logs_rows_of_a_fragment_ascend(selected: list[int]) -> None:
    """By their offsets and by their numbers: rows 0, 3, 2 would be taken for 0, 1, 2, which are as many."""
    fragment = pa.concat_batches([rows(transaction(1, 3)), rows([(1, 2)], text="another")])
    rig = Rig()
    parts = shares((1, selected, len(selected), FIRST_END))
    with pytest.raises(WentBackwards):
        rig.store.append_fragment(fragment, parts, after=SNAPSHOT_END, upto=FIRST_END)
    assert rig.upper() == SNAPSHOT_END


@pytest.mark.parametrize("selected", [[-1], [0, 7]])
def test_a_log_gets_no_rows_that_a_fragment_does_not_have(selected: list[int]) -> None:
    rig = Rig()
    parts = shares((1, selected, len(selected), SECOND_END))
    with pytest.raises(InvalidRows, match="the table has 7"):
        rig.store.append_fragment(FRAGMENT, parts, after=SNAPSHOT_END, upto=SECOND_END)
    assert rig.upper() == SNAPSHOT_END


def test_a_fragment_may_be_repeated() -> None:
    rig = rig_of_logs(3)
    for _ in range(2):
        rig.store.append_fragment(FRAGMENT, PARTS, after=SNAPSHOT_END, upto=LogOffset(3, 2))
    assert rig.read_all(log=1) == [LogOffset(1, 0), LogOffset(2, 0)]
    assert rig.store.log(3).state.pending_rows == 1
    assert rig.store.metrics.value(Metric.REPLAYED_ROWS) == 6


def test_a_quiet_log_is_whole_up_to_where_the_fragments_came() -> None:
    rig = rig_of_logs(2)
    rig.store.append_fragment(rows([(1, 0)]), shares((1, [0], 1, FIRST_END)), after=SNAPSHOT_END, upto=FIRST_END)
    rig.store.append_fragment(rows([(2, 0)]), shares((2, [0], 1, SECOND_END)), after=FIRST_END, upto=SECOND_END)
    assert rig.read_all(log=2) == [LogOffset(2, 0)]


def test_an_oversized_fragment_reaches_all_its_logs() -> None:
    rig = rig_of_logs(3, bytes_max=1_000, log_bytes_max=1_000)
    big = rows(transaction(1, 3), text="x" * 5_000)
    parts = shares(*((log, [log - 1], 1, FIRST_END) for log in (1, 2, 3)))
    rig.store.append_fragment(big, parts, after=SNAPSHOT_END, upto=FIRST_END)
    assert [rig.read_all(log=log) for log in (1, 2, 3)] == [[LogOffset(1, 0)], [LogOffset(1, 2)], [LogOffset(1, 4)]]


def test_who_got_rows_is_told_though_another_log_had_no_room() -> None:
    rig = rig_of_logs(2, log_bytes_max=3_000)
    rig.store.append(2, rows([(1, 0)], text="x" * 2_500), after=SNAPSHOT_END, aligned=FIRST_END)
    rig.store.resume(FIRST_END)
    woken: list[LogOffset | None] = []
    rig.store.watch(1).visible.subscribe(SNAPSHOT_END, woken.append)
    fragment = rows(transaction(2, 2), text="x" * 1_000)
    parts = shares((1, [0], 1, SECOND_END), (2, [1], 1, SECOND_END))
    with pytest.raises(BufferFull):
        rig.store.append_fragment(fragment, parts, after=FIRST_END, upto=SECOND_END)
    assert woken == [SECOND_END]
    rig.store.flush_all()
    rig.store.append_fragment(fragment, parts, after=FIRST_END, upto=SECOND_END)  # the same again
    assert rig.read_all(log=1) == [LogOffset(2, 0)]
    assert rig.read_all(log=2) == [LogOffset(1, 0), LogOffset(2, 2)]


def test_a_fragments_errors_are_storages_own() -> None:
    rig = rig_of_logs(1)
    with pytest.raises(StorageError):
        rig.store.append_fragment(FRAGMENT, shares((9, [0], 1, FIRST_END)), after=SNAPSHOT_END, upto=FIRST_END)
    assert rig.upper() == SNAPSHOT_END
