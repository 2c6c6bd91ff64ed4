"""A clause asked of rows: three values, rows that fail, and kernels that say what the plain evaluation says."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.limits import WHERE_SCALAR_ROWS_MAX
from shapes.where.clause import Clause
from shapes.where.evaluate import Outcome, Rows, compile_predicate
from shapes.where.types import Collation, ColumnType
from tests.where_clauses import DESCRIBED, quoted

COLUMNS = {
    "a": ColumnType(23),
    "b": ColumnType(25, collation=Collation.C),
    "n": ColumnType(1700),
    "f": ColumnType(701),
    "d": ColumnType(1082),
    "ts": ColumnType(1184),
    "bo": ColumnType(16),
    "v": ColumnType(1043, collation=Collation.C),
}


def rows_of(**columns: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(texts, pa.string()) for name, texts in columns.items()})


def both_ways(clause: str, rows: pa.RecordBatch | pa.StructArray) -> list[bool | str | None]:
    """The answers, "failed" among them: by rows and by columns, which must be the same."""
    answers = [shown(way(Rows(rows))) for way in compile_predicate(Clause.of(clause, COLUMNS).tree)]
    assert answers[0] == answers[1]
    return answers[0]


def shown(outcome: Outcome) -> list[bool | str | None]:
    failed = [False] * len(outcome.result) if outcome.failed is None else outcome.failed.tolist()
    assert outcome.failed is None or (outcome.why and outcome.failed.any())
    return ["failed" if bad else value for bad, value in zip(failed, outcome.result.to_pylist(), strict=True)]


# One value for each of the three, as a clause over `a`: NULL, 0, 1; and one that fails at 0.
@pytest.mark.parametrize(
    ("clause", "of_null", "of_zero", "of_one"),
    [
        ("a = 1", None, False, True),
        ("NOT a = 1", None, True, False),
        ("a IS NULL", True, False, False),
        ("a = 1 AND true", None, False, True),
        ("a = 1 OR a IS NULL", True, False, True),
        ("a IN (1, 2)", None, False, True),
        ("a IN (1, NULL)", None, None, True),
        ("a NOT IN (1, NULL)", None, None, False),
        ("a NOT IN (0, 2)", None, False, True),
        ("(a = 1) IS UNKNOWN", True, False, False),
        ("(a = 1) IS NOT TRUE", True, True, False),
        ("a IS DISTINCT FROM 1", True, True, False),
        ("a BETWEEN 1 AND NULL", None, False, None),
        ("1 / a = 1", None, "failed", True),
        ("a <> 0 AND 1 / a = 1", None, False, True),
        ("1 / a = 1 AND a <> 0", None, False, True),
        ("a = 0 OR 1 / a = 1", None, True, True),
        ("(1 / a = 1) IS NULL", True, "failed", False),
        ("NOT (1 / a = 1 OR a = 7)", None, "failed", False),
        ("coalesce(a, 1 / a) = 1", None, False, True),
    ],
)
def test_three_values_and_failures(
    clause: str, of_null: bool | None, of_zero: bool | str | None, of_one: bool | None
) -> None:
    assert both_ways(clause, rows_of(a=[None, "0", "1"])) == [of_null, of_zero, of_one]


def test_what_fails_says_why() -> None:
    outcome = Clause.of("1 / a = 1", COLUMNS).evaluate(rows_of(a=["1", "0"]))
    assert outcome.why == "division by zero"
    assert outcome.is_true.tolist() == [True, False]
    assert Clause.of("a = 2147483647 + a", COLUMNS).evaluate(rows_of(a=["1"])).why == "integer out of range"


def test_a_text_that_is_no_value_fails_its_row_only() -> None:
    assert both_ways("a = 1", rows_of(a=["1", "one", None])) == [True, "failed", None]
    assert both_ways("ts > '2024-01-01'", rows_of(ts=["2025-01-01 00:00:00+00", "01.02.2025"])) == [True, "failed"]
    assert both_ways("b::int4 = 1", rows_of(b=["1", "x", "99999999999"])) == [True, "failed", "failed"]


def test_odd_values_do_not_leave_the_kernels_wrong() -> None:
    floats: list[str | None] = ["NaN", "-0", "0", "Infinity", "-Infinity", "1.5", None]
    assert both_ways("f = 'NaN'", rows_of(f=floats)) == [True, *[False] * 5, None]
    assert both_ways("f > 'Infinity'", rows_of(f=floats)) == [True, *[False] * 5, None]
    assert both_ways("f = 0", rows_of(f=floats)) == [False, True, True, False, False, False, None]
    numbers: list[str | None] = ["NaN", "1.0", "1.00", "123456789012345678901234567890123456789012345.5", None]
    assert both_ways("n = 1", rows_of(n=numbers)) == [False, True, True, False, None]
    assert both_ways("n > 1", rows_of(n=numbers)) == [True, False, False, True, None]
    dates: list[str | None] = ["infinity", "0044-03-15 BC", "2024-01-31", "12000-01-01", None]
    assert both_ways("d > '2024-01-31'", rows_of(d=dates)) == [True, False, False, True, None]
    stamps: list[str | None] = ["infinity", "0044-03-15 10:00:00+00 BC", "2024-01-31 00:00:00.5+00", None]
    assert both_ways("ts > '2024-01-31 00:00:00'", rows_of(ts=stamps)) == [True, False, True, None]
    assert both_ways("bo", rows_of(bo=["t", "f", None])) == [True, False, None]
    assert both_ways("bo", rows_of(bo=["true", "false", None])) == [True, False, None]


def test_slices_and_structs_and_no_rows() -> None:
    batch = rows_of(a=[str(number) for number in range(100)], b=["x"] * 100)
    whole = Clause.of("a >= 50 AND b = 'x'", COLUMNS)
    assert whole.evaluate(batch.slice(45, 10)).is_true.tolist() == [False] * 5 + [True] * 5
    struct = batch.to_struct_array().slice(45, 60)
    assert whole.evaluate(struct).is_true.tolist() == [False] * 5 + [True] * 50
    for clause in ("a >= 50", "a + 1 > 2", "true", "a IN (1, 2)"):
        assert both_ways(clause, batch.slice(0, 0)) == []
    assert both_ways("true", batch.slice(0, 20)) == [True] * 20


@given(
    values=st.lists(st.one_of(st.none(), st.text("ab%_\\xé\n", max_size=8)), min_size=WHERE_SCALAR_ROWS_MAX + 1),
    pattern=st.text("ab%_xé\n", max_size=8),
    operator=st.sampled_from(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"]),
)
def test_like_matches_as_a_plain_search_does(values: list[str | None], pattern: str, operator: str) -> None:
    def matches(text: str, rest: str) -> bool:
        if not rest:
            return not text
        if rest[0] == "%":
            return any(matches(text[start:], rest[1:]) for start in range(len(text) + 1))
        return bool(text) and rest[0] in ("_", text[0]) and matches(text[1:], rest[1:])

    wanted: list[bool | str | None] = [
        None if text is None else matches(text, pattern) != operator.startswith("NOT") for text in values
    ]
    assert both_ways(f"b {operator} {quoted(pattern)}", rows_of(b=values)) == wanted


@given(st.integers(1, 40))
def test_a_hostile_pattern_takes_no_time(count: int) -> None:
    clause = f"b LIKE '{'a%' * count}b'"
    assert both_ways(clause, rows_of(b=["a" * 3000 + "c", "a" * 3000 + "b"])) == [False, True]


def test_members_of_lists_of_other_widths() -> None:
    columns = {"small": ColumnType(21), "big": ColumnType(20)}
    for name in columns:
        clause = Clause.of(f"{name} IN (1, 3)", columns)
        rows = Rows(rows_of(**{name: ["1", "2", None] * 10}))
        assert clause.evaluate(rows).result.to_pylist() == [True, False, None] * 10


def test_columns_are_read_once_for_all_clauses() -> None:
    rows = Rows(rows_of(a=[str(number) for number in range(100)]))
    first = rows.native("a", Clause.of("a = 1", COLUMNS).tree.args[0].type)  # type: ignore[union-attr]  # a Call
    assert rows.native("a", Clause.of("a = 2", COLUMNS).tree.args[0].type) is first  # type: ignore[union-attr]  # as above


def test_every_described_column_is_one_that_clauses_may_name() -> None:
    for name in DESCRIBED:
        inner = name.replace('"', '""')
        assert Clause.of(f'"{inner}" IS NULL', DESCRIBED).columns == (name,)
