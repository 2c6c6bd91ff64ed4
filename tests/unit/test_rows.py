"""What is asked of rows in columns gives what a slow loop over Python values gives."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import rows as rows_module
from storage.errors import InvalidRows
from storage.limits import ROW_WIRE_OVERHEAD_BYTES
from storage.offset import BEFORE_ALL, OP_INFINITE, LogOffset
from storage.rows import (
    are_ordered,
    check_schema,
    column,
    combine,
    gather,
    offset_at,
    row_schema,
    rows_up_to,
    stored_size,
    wire_sizes,
)

few = st.integers(0, 4)
pairs = st.lists(st.tuples(few, few), max_size=12)
texts = st.none() | st.sampled_from(["", "a", "ß", "\U0001f40d", "text", "x" * 300]) | st.text(max_size=5)
values = st.none() | st.fixed_dictionaries({"a": texts, "b": texts})
row_lists = st.lists(st.tuples(values, values), max_size=8)


def numbers(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


def batch_of(rows: Sequence[tuple[Any, Any]]) -> pa.RecordBatch:
    records = [
        {"tx": 1, "op": 2 * index, "kind": 2, "absent": None, "new": new, "old": old}
        for index, (new, old) in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(records, schema=row_schema(["a", "b"], old=True))


def wire_size(*values: dict[str, str | None] | None) -> int:
    """Slow and plain."""
    lengths = [len(text.encode()) for value in values if value for text in value.values() if text]
    return ROW_WIRE_OVERHEAD_BYTES + sum(lengths)


# Offsets of rows.


@given(pairs, st.builds(LogOffset, few, few | st.just(OP_INFINITE)) | st.just(BEFORE_ALL))
def test_rows_up_to_an_offset(pairs: list[tuple[int, int]], offset: LogOffset) -> None:
    pairs.sort()
    tx, op = numbers([tx for tx, _ in pairs]), numbers([op for _, op in pairs])
    assert rows_up_to(tx, op, offset) == sum(LogOffset(*pair) <= offset for pair in pairs)


def test_rows_up_to_the_greatest_numbers() -> None:
    tx, op = numbers([2**63 - 1] * 3), numbers([0, 2**63 - 1, 2**64 - 1])
    assert rows_up_to(tx, op, LogOffset(2**63 - 1, 2**63 - 1)) == 2
    assert rows_up_to(tx, op, LogOffset(2**63 - 1, OP_INFINITE)) == 3
    assert rows_up_to(numbers([]), numbers([]), LogOffset(1, 1)) == 0


@given(pairs, st.booleans())
def test_are_ordered(pairs: list[tuple[int, int]], sort: bool) -> None:
    if sort:
        pairs = sorted(set(pairs))
    tx, op = numbers([tx for tx, _ in pairs]), numbers([op for _, op in pairs])
    assert are_ordered(tx, op) == all(one < two for one, two in itertools.pairwise(pairs))


def test_columns_and_offsets_of_a_slice() -> None:
    batch = batch_of([(None, None)] * 5).slice(2, 2)
    assert column(batch, "op").tolist() == [4, 6]
    assert [offset_at(batch, row) for row in range(2)] == [LogOffset(1, 4), LogOffset(1, 6)]


# Wire sizes.


@given(row_lists, st.integers(0, 8), st.integers(0, 8))
def test_wire_sizes(rows: list[tuple[Any, Any]], start: int, length: int) -> None:
    batch = batch_of(rows)
    assert wire_sizes(batch).tolist() == [wire_size(*row) for row in rows]
    expected = [wire_size(*row) for row in rows[start : start + length]]
    assert wire_sizes(batch.slice(start, length)).tolist() == expected


@given(row_lists, st.data())
def test_wire_sizes_stay_when_rows_are_gathered_and_stored(rows: list[tuple[Any, Any]], data: st.DataObject) -> None:
    picked = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    batch = gather(batch_of(rows), np.array(picked, dtype=np.int64))
    expected = [wire_size(*rows[row]) for row in picked]
    assert wire_sizes(batch).tolist() == expected
    with pa.ipc.open_stream(stored(batch)) as reader:
        assert [size for part in reader for size in wire_sizes(part).tolist()] == expected


def stored(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


@given(
    st.lists(st.sampled_from(["", "a", "ß", "text"]), min_size=1, max_size=8),
    st.data(),
)
def test_what_nulls_own_is_nobodys(texts: list[str], data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))
    texts_null, structs_null = data.draw(flags), data.draw(flags)
    # Built from buffers: a NULL has bytes of its own, and so have the values below a NULL struct.
    plain = pa.array(texts)
    strings = pa.Array.from_buffers(
        pa.string(), len(texts), [bitmap(texts_null), *plain.buffers()[1:]], null_count=sum(texts_null)
    )
    structs = pa.StructArray.from_arrays([strings], ["a"], mask=pa.array(structs_null))
    start = data.draw(st.integers(0, len(texts)))
    batch = pa.RecordBatch.from_arrays([structs], ["new"]).slice(start)
    expected = [
        wire_size(None if structs_null[row] or texts_null[row] else {"a": text}) for row, text in enumerate(texts)
    ]
    assert wire_sizes(batch).tolist() == expected[start:]


def bitmap(nulls: list[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits([not null for null in nulls], bitorder="little").tobytes())


def test_wire_sizes_of_struct_slices() -> None:
    # The offset may be the struct's own and not the batch's.
    structs = batch_of([({"a": "x" * n, "b": None}, None) for n in range(6)]).column("new").slice(2, 3)
    batch = pa.RecordBatch.from_arrays([structs], ["new"])
    assert wire_sizes(batch).tolist() == [102, 103, 104]
    assert wire_sizes(batch.slice(1, 1)).tolist() == [103]


def test_wire_sizes_of_no_rows_and_of_no_columns() -> None:
    assert wire_sizes(batch_of([])).tolist() == []
    without_buffers = pa.Array.from_buffers(pa.string(), 0, [None, None, pa.py_buffer(b"")])
    structs = pa.StructArray.from_arrays([without_buffers], ["a"])
    assert wire_sizes(pa.RecordBatch.from_arrays([structs], ["new"])).tolist() == []
    nothing = pa.array([{}, None], pa.struct([]))
    assert wire_sizes(pa.RecordBatch.from_arrays([nothing], ["new"])).tolist() == [100, 100]


def test_only_text_has_a_wire_size() -> None:
    numbers = pa.array([{"a": 1}])
    with pytest.raises(InvalidRows, match="values are text, not int64"):
        wire_sizes(pa.RecordBatch.from_arrays([numbers], ["new"]))


# Selections.


@given(row_lists, st.data())
def test_gather(rows: list[tuple[Any, Any]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    batch = batch_of(rows).slice(start)
    expected = batch.to_pylist()
    assert gather(batch, None) is batch
    picked = sorted(data.draw(st.sets(st.integers(0, len(expected) - 1)))) if expected else []
    found = gather(batch, np.array(picked, dtype=np.int64))
    assert found.to_pylist() == [expected[row] for row in picked]
    assert found.schema == batch.schema


def test_neighbours_are_gathered_without_a_copy() -> None:
    batch = batch_of([({"a": "text", "b": None}, None)] * 5)
    found = gather(batch, np.array([1, 2, 3]))
    assert found.column("tx").buffers()[1].address == batch.column("tx").buffers()[1].address


@given(st.lists(st.tuples(row_lists, few), max_size=4))
def test_combine(parts: list[tuple[list[tuple[Any, Any]], int]]) -> None:
    batches = [batch_of(rows).slice(start) for rows, start in parts]
    combined = combine(batches)
    assert [row for batch in combined for row in batch.to_pylist()] == [row for b in batches for row in b.to_pylist()]
    assert len(combined) <= 1 or len(batches) < 2


def test_large_batches_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch_of([({"a": "text", "b": None}, None)])] * 3
    monkeypatch.setattr(rows_module, "COMBINE_BYTES_MAX", sum(map(stored_size, batches)))
    assert len(combine(batches)) == 1
    monkeypatch.setattr(rows_module, "COMBINE_BYTES_MAX", sum(map(stored_size, batches)) - 1)
    assert combine(batches) == batches


# Schemas.


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("absent", [True, False])
@pytest.mark.parametrize("xid", [True, False])
def test_the_schema_of_a_log(old: bool, absent: bool, xid: bool) -> None:
    schema = row_schema(["id", "name"], old=old, absent=absent, xid=xid)
    check_schema(schema)
    assert schema.names == ["tx", "op", "kind", *["xid"] * xid, *["absent"] * absent, "new", *["old"] * old]
    assert schema.field("new").type == pa.struct([("id", pa.string()), ("name", pa.string())])


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("tx", None, "the column 'tx' is missing"),
        ("op", None, "the column 'op' is missing"),
        ("kind", None, "the column 'kind' is missing"),
        ("new", None, "the column 'new' must be a struct"),
        ("tx", pa.int64(), "the column 'tx' is int64, not uint64"),
        ("op", pa.uint32(), "the column 'op' is uint32, not uint64"),
        ("kind", pa.string(), "the column 'kind' is string, not uint8"),
        ("new", pa.string(), "the column 'new' must be a struct"),
        ("xid", pa.int64(), "the column 'xid' is int64, not uint32"),
        ("absent", pa.string(), "the column 'absent' is string, not binary"),
    ],
)
def test_other_schemas_are_refused(name: str, kind: pa.DataType | None, message: str) -> None:
    schema = row_schema(["id"], xid=True)
    index = schema.get_field_index(name)
    changed = schema.remove(index) if kind is None else schema.set(index, pa.field(name, kind))
    with pytest.raises(InvalidRows, match=message):
        check_schema(changed)


def test_a_column_that_is_there_twice_is_refused() -> None:
    schema = row_schema(["id"])
    with pytest.raises(InvalidRows):
        check_schema(schema.append(pa.field("tx", pa.uint64())))
