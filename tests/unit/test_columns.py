"""Columns: bitmaps and key codes against a plain model, cuts by size, and the input that is refused."""

from collections.abc import Callable
from itertools import pairwise
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.columns import Bitmaps, Columns, Picked, PickedStruct, assemble, encode_bitmaps, spans
from storage.errors import InvalidRows
from storage.rows import ABSENT, KIND, NEW, OLD, OP, TX, Kind, row_schema

NAMES = ["a", "b"]

parts = st.none() | st.sampled_from(["", "|", "a", "a|", "|a", "ä", "\x00"])
keys = st.lists(st.tuples(parts, parts), min_size=1)


def batch_of(new: list[Any], absent: list[bytes | None] | None = None, old: list[Any] | None = None) -> pa.RecordBatch:
    """UPDATEs with these values."""
    count = len(new)
    columns = {TX: [1] * count, OP: range(count), KIND: [Kind.UPDATE] * count, NEW: new}
    columns |= {} if absent is None else {ABSENT: absent}
    columns |= {} if old is None else {OLD: old}
    schema = row_schema(NAMES, absent=absent is not None, old=old is not None)
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def structs(rows: list[tuple[str | None, str | None]]) -> list[dict[str, str | None]]:
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


@given(st.lists(st.none() | st.binary(max_size=4)), st.integers(0, 3))
def test_bitmaps_are_read_lowest_bit_first(bitmaps: list[bytes | None], skipped: int) -> None:
    values = pa.array(bitmaps, pa.large_binary()).slice(skipped)
    read = Bitmaps(values)
    numbers = [int.from_bytes(bitmap or b"", "little") for bitmap in bitmaps[skipped:]]
    for index in range(34):
        assert read.rows_without(index).tolist() == [row for row, number in enumerate(numbers) if number >> index & 1]


def test_a_bitmap_that_is_null_has_no_bits_whatever_lies_below_it() -> None:
    whole = pa.array([b"\x01", b"\x01"], pa.large_binary())
    _, offsets, data = whole.buffers()
    second_only = pa.py_buffer(b"\x02")
    values = pa.Array.from_buffers(pa.large_binary(), 2, [second_only, offsets, data])
    assert values.to_pylist() == [None, b"\x01"]
    assert Bitmaps(values).rows_without(0).tolist() == [1]


@given(st.integers(1, 20), st.data())
def test_bitmaps_say_what_was_encoded(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width)))
    masks = np.array(rows, dtype=np.bool_).reshape(len(rows), width).T
    bitmaps = encode_bitmaps(masks, len(rows))
    assert bitmaps.is_valid().to_pylist() == [any(row) for row in rows]
    read = Bitmaps(bitmaps)
    for index in range(width):
        assert read.rows_without(index).tolist() == np.flatnonzero(masks[index]).tolist()


@given(keys, st.integers(0, 40))
def test_equal_keys_have_equal_codes_and_no_others(rows: list[tuple[str | None, str | None]], cut: int) -> None:
    batch = batch_of(structs(rows))
    columns = Columns([batch.slice(0, cut), batch.slice(cut)])
    for names in (NAMES, NAMES[::-1], ["b"]):
        wanted: dict[tuple[str | None, ...], int] = {}
        for row in rows:
            key = tuple(row[NAMES.index(name)] for name in names)
            if None not in key:
                wanted.setdefault(key, len(wanted))
        found = [tuple(row[NAMES.index(name)] for name in names) for row in rows]
        assert columns.key_codes(names).tolist() == [wanted.get(key, -1) for key in found]


@given(keys, keys, st.lists(st.none() | st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x03"]), min_size=1))
def test_what_new_does_not_tell_of_a_key_is_taken_from_old(
    new: list[tuple[str | None, str | None]], old: list[tuple[str | None, str | None]], absent: list[bytes | None]
) -> None:
    rows = list(zip(new, old, absent, strict=False))
    batch = batch_of(structs([row[0] for row in rows]), [row[2] for row in rows], structs([row[1] for row in rows]))
    told = [
        tuple(
            o if n is None or (bits or b"\x00")[0] >> i & 1 else n for i, (n, o) in enumerate(zip(*both, strict=True))
        )
        for *both, bits in rows
    ]
    assert np.array_equal(Columns([batch]).key_codes(NAMES), Columns([batch_of(structs(told))]).key_codes(NAMES))


def test_a_struct_that_is_null_has_no_values() -> None:
    # What lies below a NULL struct is nobody's, even if bytes are there.
    child = pa.array(["x", "y"])
    values = pa.StructArray.from_arrays([child, child], names=NAMES, mask=pa.array([True, False]))
    batch = batch_of([None, None])
    batch = batch.set_column(batch.schema.get_field_index(NEW), batch.schema.field(NEW), values)
    columns = Columns([batch])
    assert columns.new[0].to_pylist() == [None, "y"]
    assert columns.is_valid(NEW).tolist() == [False, True]
    assert columns.key_codes(NAMES).tolist() == [-1, 0]


@given(st.lists(st.tuples(st.tuples(parts, parts), st.booleans(), st.booleans())), st.lists(st.integers(0, 12)))
def test_columns_of_slices_have_what_the_rows_have(
    rows: list[tuple[tuple[str | None, str | None], bool, bool]], cuts: list[int]
) -> None:
    """Also where a struct is NULL above values that are there: `new` by the second of a row's parts, `old` by both."""
    is_null = {NEW: [row[1] for row in rows], OLD: [row[1] and row[2] for row in rows]}
    batch = batch_of([None] * len(rows), old=[None] * len(rows))
    children = [pa.array([row[0][index] for row in rows], pa.string()) for index in range(len(NAMES))]
    for name, mask in is_null.items():
        values = pa.StructArray.from_arrays(children, names=NAMES, mask=pa.array(mask, pa.bool_()))
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), values)
    bounds = [0, *sorted(cuts), len(rows)]
    columns = Columns([batch.slice(start, max(0, stop - start)) for start, stop in pairwise(bounds)])
    for name, mask in is_null.items():
        for index in range(len(NAMES)):
            wanted = [None if hidden else row[0][index] for row, hidden in zip(rows, mask, strict=True)]
            assert columns.text(name, index).to_pylist() == wanted
            assert columns.text(name, index).to_pylist() == [  # and as a struct's rows tell it
                row and row[NAMES[index]] for row in batch.column(name).to_pylist()
            ]


def test_wide_rows_are_not_taken_apart_anew_for_each_column() -> None:
    """Measured with 1,600 columns and 30 batches: 0.3 s of work, and 30 s with a struct flattened for each column."""
    names = [f"c{place}" for place in range(1600)]
    row = {TX: 1, OP: 0, KIND: Kind.INSERT, NEW: dict.fromkeys(names, "x")}
    batch = pa.RecordBatch.from_pylist([row] * 30, row_schema(names, absent=False))
    begun = process_time()
    columns = Columns([batch.slice(place, 1) for place in range(30)])
    assert columns.new[1599].to_pylist() == ["x"] * 30
    assert process_time() - begun < 10.0


def test_batches_with_and_without_the_optional_columns_go_together() -> None:
    row = {"a": "1", "b": "2"}
    columns = Columns([batch_of([row]), batch_of([row], [b"\x02"], [row])])
    assert columns.absent.rows_without(1).tolist() == [1]
    assert columns.text(OLD, 0).to_pylist() == [None, "1"]
    assert columns.is_valid(OLD).tolist() == [False, True]


def test_picked_values_come_from_anywhere_and_nowhere() -> None:
    picked = Picked(pa.array(["long", None, "s"], pa.large_string()), np.array([2, -1, 1, 0, 0]))
    assert picked.taken().to_pylist() == ["s", None, None, "long", "long"]
    assert picked.sizes().tolist() == [1, 0, 0, 4, 4]
    numbers: dict[str, npt.NDArray[Any]] = {
        TX: np.arange(5, dtype=np.uint64),
        OP: np.zeros(5, np.uint64),
        KIND: np.full(5, 2, np.uint8),
    }
    struct = PickedStruct([picked, picked], np.array([True, True, True, True, False]))
    (batch,) = assemble(row_schema(NAMES, absent=False), numbers, {NEW: struct})
    assert batch.column(NEW).to_pylist() == [*structs([("s", "s"), (None, None), (None, None), ("long", "long")]), None]


@given(st.lists(st.integers(1, 30)), st.integers(-1, 40))
def test_spans_cover_all_rows_and_end_at_multiples(sizes: list[int], size_max: int) -> None:
    found = list(spans(np.array(sizes, dtype=np.int64), size_max))
    assert [row for start, stop in found for row in range(start, stop)] == list(range(len(sizes)))
    for start, stop in found:
        assert sum(sizes[start : stop - 1]) < max(1, size_max)
    for _, stop in found[:-1]:
        assert sum(sizes[: stop - 1]) // max(1, size_max) < sum(sizes[:stop]) // max(1, size_max)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda batch: batch.append_column("more", pa.array([1])), "a log does not have"),
        (lambda batch: batch.append_column(ABSENT, pa.array(["x"])), "'absent' is string"),
        (lambda batch: batch.append_column(OLD, pa.array([{"c": "x"}])), "'old' is struct"),
        (lambda batch: batch.drop_columns([TX]), "'tx' is missing"),
        (lambda batch: batch.set_column(0, TX, pa.array([None], pa.uint64())), "no offset"),
        (lambda batch: batch.set_column(2, KIND, pa.array([5], pa.uint8())), "unknown kind"),
        (lambda batch: batch.set_column(2, KIND, pa.array([0], pa.uint8())), "unknown kind"),
        (lambda batch: batch.set_column(3, NEW, pa.array([{"a": 1}])), "'a' is int64"),
    ],
)
def test_rows_that_are_none_are_refused(change: Callable[[pa.RecordBatch], pa.RecordBatch], complaint: str) -> None:
    batch = change(batch_of([{"a": "1", "b": "2"}]))
    with pytest.raises(InvalidRows, match=complaint):
        Columns([batch])
