"""Types that are made of others: specifications, and texts of composites and ranges against their writing."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.type_specs import type_spec
from storage.errors import UnknownFormat
from storage.lake.casts import cast
from storage.lake.record_text import parse_record, split_records
from storage.lake.table_schema import TableSchema
from storage.lake.types import TEXT, Reading, lake_type, list_of, specified_type

INT, TEXTS = [23, -1], [25, -1]
PAIR = {"kind": "composite", "fields": [["a", INT], ["b", TEXTS]]}

FIELDS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4)


def written(fields: list[str | None], brackets: str = "()") -> str:
    """As Postgres writes a record."""
    return brackets[0] + ",".join(map(quoted, fields)) + brackets[1]


def quoted(field: str | None) -> str:
    if field is None:
        return ""
    if field and not set(field) & set('"\\(), \t\n\v\f\r'):
        return field
    return '"' + field.replace("\\", "\\\\").replace('"', '""') + '"'


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.none() | st.lists(FIELDS, min_size=n, max_size=n), min_size=1)))
def test_records_are_split_into_their_fields(rows: list[list[str | None] | None]) -> None:
    count = next((len(row) for row in rows if row is not None), 1)
    texts = pa.array([None if row is None else written(row)[1:-1] for row in rows], pa.large_string())
    columns, is_bad = split_records(texts, count)
    assert not is_bad.any()
    for place, column in enumerate(columns):
        assert column.to_pylist() == [None if row is None else row[place] for row in rows]


@given(st.text('",\\ab', max_size=8), st.integers(1, 3))
def test_what_is_no_record_is_refused_and_nothing_else_changes(text: str, count: int) -> None:
    """Whatever the text: all at once says what one by one does."""
    columns, is_bad = split_records(pa.array(["x" + ",x" * (count - 1), text], pa.large_string()), count)
    parsed = parse_record(text, count)
    assert is_bad.tolist() == [False, parsed is None]
    assert [column.to_pylist() for column in columns] == [
        ["x", None if parsed is None else parsed[place]] for place in range(count)
    ]


@given(st.lists(st.none() | st.tuples(st.none() | st.integers(-(2**31), 2**31 - 1), FIELDS), min_size=1, max_size=5))
def test_composites_become_structs(rows: list[tuple[int | None, str | None] | None]) -> None:
    texts = [None if row is None else written([None if row[0] is None else str(row[0]), row[1]]) for row in rows]
    done = cast(pa.array(texts, pa.large_string()), specified_type(PAIR))
    assert not done.count
    assert done.values.to_pylist() == [None if row is None else {"a": row[0], "b": row[1]} for row in rows]


@pytest.mark.parametrize("text", ["", "1,2", "(1)", "(1,2,3)", "(x,y)", "(1,2", '(1,")', "(99999999999,y)"])
def test_a_composite_that_does_not_fit_is_quarantined_whole(text: str) -> None:
    done = cast(pa.array([text, "(1,y)", None], pa.large_string()), specified_type(PAIR))
    assert done.quarantined.tolist() == [True, False, False]
    assert done.values.to_pylist() == [None, {"a": 1, "b": "y"}, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("empty", (None, None, "empty")),
        ("[1,5)", (1, 5, "[)")),
        ("(,)", (None, None, "()")),
        ("(-3,]", (-3, None, "(]")),
        ("1,5", None),
        ("[x,5)", None),
        ("[1,2,3)", None),
        ("", None),
    ],
)
def test_ranges(text: str, value: tuple[Any, ...] | None) -> None:
    done = cast(pa.array([text], pa.large_string()), specified_type({"kind": "range", "of": INT}))
    found = done.values.to_pylist()[0]
    assert found == (None if value is None else dict(zip(("lower", "upper", "bounds"), value, strict=True)))
    assert done.quarantined.tolist() == [value is None]


def test_types_that_are_made_of_others() -> None:
    assert specified_type({"kind": "enum"}) == TEXT
    assert specified_type({"kind": "array", "of": PAIR}).arrow == list_of(specified_type(PAIR).arrow)
    assert specified_type({"kind": "composite", "fields": []}) == TEXT
    assert specified_type([1043, 9]) == TEXT
    names = {"kind": "composite", "fields": [["a b", INT], ["A_B", INT]]}
    assert [field.name for field in specified_type(names).arrow] == ["a_b", "A_B_2"]
    for wrong in ({"kind": "new"}, [1, 2, 3], None, {"kind": "composite", "fields": 7}, {"kind": "array"}):
        with pytest.raises(UnknownFormat):
            specified_type(wrong)


def test_a_definition_says_what_its_columns_are_made_of() -> None:
    columns = [["id", 1, 20000, -1], ["p", 2, 20001, -1], ["q", 3, 20002, -1]]
    definition = {"version": 1, "columns": columns, "key": ["id"], "log": "full"}
    old = TableSchema.of_definition(definition)
    assert [column.type for column in old.columns] == [TEXT] * 3, "as it was before there were specifications"
    new = TableSchema.of_definition(definition | {"types": {"id": INT, "p": PAIR}})
    assert [column.type for column in new.columns] == [lake_type(23), specified_type(PAIR), TEXT]
    assert not new.stores_key


FACTS: dict[str, dict[str, Any]] = {
    "20000": {"kind": "d", "base": 20001, "typmod": -1},
    "20001": {"kind": "d", "base": 1700, "typmod": 524294},
    "20002": {"kind": "e"},
    "20003": {"kind": "b", "element": 20002},
    "20004": {"kind": "c", "fields": [["a", 23, -1], ["w", 20000, -1], ["l", 1007, -1]]},
    "20005": {"kind": "b", "element": 20004},
    "3904": {"kind": "r", "bounds": 23},
    "1007": {"kind": "b", "element": 23},
    "20006": {"kind": "r", "bounds": None},
    "20007": {"kind": "d", "base": 20007, "typmod": -1},
    "20008": {"kind": "b", "element": 603, "delimiter": ";"},
    "20009": {"kind": "c", "fields": [["frames", 20008, -1]]},
}


@pytest.mark.parametrize(
    ("oid", "spec"),
    [
        (23, None),
        (1007, None),
        (20000, [1700, 524294]),
        (20003, {"kind": "array", "of": {"kind": "enum"}}),
        (3904, {"kind": "range", "of": INT}),
        (
            20005,
            {
                "kind": "array",
                "of": {
                    "kind": "composite",
                    "fields": [["a", INT], ["w", [1700, 524294]], ["l", {"kind": "array", "of": INT}]],
                },
            },
        ),
        (20007, None),
        (20008, None),
        (20009, {"kind": "composite", "fields": [["frames", [20008, -1]]]}),
    ],
)
def test_a_specification_goes_down_to_what_every_database_has(oid: int, spec: object) -> None:
    assert type_spec(oid, -1, FACTS) == spec
    assert specified_type([oid, -1] if spec is None else spec).reading in Reading
