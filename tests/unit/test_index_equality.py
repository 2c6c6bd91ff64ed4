"""Values of several columns, looked up together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shapes.index_branches import Branch
from shapes.index_columns import BatchColumns
from shapes.index_equality import EqualityIndex
from shapes.index_keys import KeyedColumn
from shapes.where.types import INT8, TEXT
from tests.unit.clauses import Row, row, struct_of

COLUMNS = (KeyedColumn("a", INT8), KeyedColumn("b", INT8), KeyedColumn("s", TEXT))

VALUES = st.sampled_from(["0", "1", "2", None])
ROWS = st.lists(st.builds(lambda a, b, s: {**row(), "a": a, "b": b, "s": s}, VALUES, VALUES, VALUES), max_size=20)
KEYS = st.tuples(*[st.frozensets(st.sampled_from("012"), min_size=1)] * len(COLUMNS))


@given(st.lists(KEYS, max_size=5), ROWS)
def test_rows_reach_what_names_all_their_values(wanted: list[tuple[frozenset[str], ...]], rows: list[Row]) -> None:
    index = EqualityIndex(COLUMNS)
    for shape, keys in enumerate(wanted):
        index.add(Branch(dict(zip(COLUMNS, keys, strict=True))), None, shape)
    found = index.reach(BatchColumns(struct_of(rows)))
    pairs = [] if found is None else [
        (shape, number)
        for leaf, numbers in zip(found.leaves, np.split(found.rows, found.counts.cumsum()[:-1]), strict=True)
        for shape in leaf[None]
        for number in numbers.tolist()
    ]  # fmt: skip
    assert sorted(pairs) == [
        (shape, number)
        for shape, keys in enumerate(wanted)
        for number, one in enumerate(rows)
        if all(one[column.name] in some for column, some in zip(COLUMNS, keys, strict=True))
    ]


def test_many_columns_of_many_values_do_not_overflow() -> None:
    names = ("a", "b", "n", "s", "v", "d")  # 2,000 to the sixth power is beyond 64 bits
    columns = tuple(KeyedColumn(name, TEXT) for name in names)
    index = EqualityIndex(columns)
    index.add(Branch({column: frozenset(["1999"]) for column in columns}), None, 1)
    found = index.reach(BatchColumns(struct_of([row(**dict.fromkeys(names, str(number))) for number in range(2_000)])))
    assert found is not None
    assert found.rows.tolist() == [1_999]
