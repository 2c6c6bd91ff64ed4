"""Footers of Parquet files: read and written again byte for byte, and row groups that are carried to another file."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.lake import thrift_compact as thrift
from storage.lake.errors import LakeDamage
from storage.lake.parquet_footer import MAGIC, Footer

INTEGERS = st.integers(-(2**63), 2**63 - 1)
LEAVES = st.one_of(
    st.tuples(st.sampled_from(thrift.NUMBERS), INTEGERS),
    st.tuples(st.just(thrift.BINARY), st.binary(max_size=200)),
    st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(thrift.BYTE), st.integers(0, 255)),
    st.tuples(st.sampled_from([thrift.TRUE, thrift.FALSE]), st.none()),
    st.tuples(st.just(thrift.LIST), st.tuples(st.just(thrift.I64), st.lists(INTEGERS, max_size=20))),
    st.tuples(
        st.just(thrift.SET), st.tuples(st.just(thrift.TRUE), st.lists(st.sampled_from([1, 2]), min_size=1, max_size=20))
    ),
)
NUMBERS = st.integers(1, 2000)


def structs(values: st.SearchStrategy[tuple[int, object]]) -> st.SearchStrategy[thrift.Struct]:
    return st.dictionaries(NUMBERS, values, max_size=6).map(lambda one: dict(sorted(one.items())))


STRUCTS = structs(
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.tuples(st.just(thrift.STRUCT), structs(inner)),
            st.tuples(st.just(thrift.LIST), st.tuples(st.just(thrift.STRUCT), st.lists(structs(inner), max_size=17))),
        ),
        max_leaves=12,
    )
)


@given(STRUCTS)
def test_a_struct_is_read_as_it_was_written(facts: thrift.Struct) -> None:
    assert thrift.decode(thrift.encode(facts)) == facts


@given(st.binary(max_size=40))
def test_bytes_that_are_no_struct_are_refused_in_words(data: bytes) -> None:
    try:
        facts = thrift.decode(data)
    except LakeDamage:
        return
    assert isinstance(facts, dict)


def test_a_cut_struct_is_refused() -> None:
    with pytest.raises(LakeDamage, match="footer cannot be read"):
        thrift.decode(thrift.encode({1: (thrift.BINARY, b"abc")})[:-2])


def content(table: pa.Table, group_rows: int, **options: object) -> memoryview:
    file = BytesIO()
    pq.write_table(table, file, row_group_size=group_rows, **options)
    return memoryview(file.getvalue())


SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.bool_()))])
TABLES = st.lists(
    st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=3), st.lists(st.booleans(), max_size=2)),
    min_size=1,
    max_size=9,
).map(lambda rows: pa.table(list(map(list, zip(*rows, strict=True))), schema=SCHEMA))


@given(TABLES, st.integers(1, 4))
def test_a_footer_is_written_as_it_was_read(table: pa.Table, group_rows: int) -> None:
    file = content(table, group_rows)
    tail = Footer.of(file).tail()
    assert bytes(file[-len(tail) :]) == tail


@given(TABLES, TABLES, st.data())
def test_row_groups_of_two_files_make_a_third(left: pa.Table, right: pa.Table, data: st.DataObject) -> None:
    files = [(table, content(table, 2)) for table in (left, right)]
    groups = [
        (table.slice(2 * number, 2), file, group)
        for table, file in files
        for number, group in enumerate(Footer.of(file).groups)
    ]
    chosen = data.draw(st.lists(st.sampled_from(groups), min_size=1, max_size=6))
    made, placed = bytearray(MAGIC), []
    for number, (_, file, group) in enumerate(chosen):
        start, stop = group.span
        placed.append(group.moved(len(made) - start, number))
        made += file[start:stop]
    made += Footer.of(files[0][1]).with_groups(placed, {b"facts": b"of ours"}).tail()
    found = pq.ParquetFile(BytesIO(made))
    assert found.read().equals(pa.concat_tables([rows for rows, _, _ in chosen]))
    assert found.metadata.metadata[b"facts"] == b"of ours"
    assert found.metadata.num_rows == sum(len(rows) for rows, _, _ in chosen)


def test_files_that_differ_in_more_than_rows_are_told_apart() -> None:
    table = pa.table({"n": [1, 2]})
    footer = Footer.of(content(table, 2))
    assert footer.is_like(Footer.of(content(table.slice(1), 2)), but_for=b"facts")
    assert not footer.is_like(Footer.of(content(table.cast(pa.schema([("n", pa.int32())])), 2)), but_for=b"facts")
    assert not footer.is_like(Footer.of(content(table.rename_columns(["m"]), 2)), but_for=b"facts")


def test_a_group_with_indexes_apart_stays_where_it_is() -> None:
    table = pa.table({"n": [1, 2]})
    assert all(group.is_movable for group in Footer.of(content(table, 1)).groups)
    assert not any(group.is_movable for group in Footer.of(content(table, 1, write_page_index=True)).groups)
