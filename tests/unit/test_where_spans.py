"""Spans and keys: a row's key lies between the ends of a span exactly where the condition is true."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.where.clause import Clause
from shapes.where.evaluate import Rows
from shapes.where.scalar import compile_scalar
from shapes.where.span_keys import Keys, Ranks, distinct_values, grid_of
from shapes.where.spans import Span, spanned
from shapes.where.tree import Expr, columns_of
from shapes.where.types import Collation, ColumnType
from shapes.where.values.value import Invalid

COLUMNS = {
    "a": ColumnType(23),
    "b": ColumnType(20),
    "n": ColumnType(1700),
    "f": ColumnType(701),
    "g": ColumnType(700),
    "s": ColumnType(25, collation=Collation.C),
    "c": ColumnType(1042, typmod=7, collation=Collation.C),
    "d": ColumnType(1082),
    "at": ColumnType(1184),
    "u": ColumnType(2950),
    "p": ColumnType(1186),
}
TEXTS = {
    "a": ["0", "-1", "2147483647", "-2147483648"],
    "b": ["0", "9223372036854775807", "-9223372036854775808"],
    "n": ["0.00", "1.5", "-1.5", "1.000001", "12345678901234567890", "1.0000005", "NaN", "Infinity", "-Infinity"],
    "f": ["0", "-0", "1.5", "-1.5", "NaN", "Infinity", "-Infinity", "5e-324", "1e+308"],
    "g": ["0", "-0", "0.1", "NaN", "-Infinity"],
    "s": ["", "x", "xy", "xz", "é", "x\U0010ffff"],
    "c": ["x     ", "xy    ", "      "],
    "d": ["2024-02-29", "infinity", "-infinity", "0044-03-15 BC"],
    "at": ["2024-02-29 00:00:00+00", "infinity", "2024-02-29 00:00:00.000001+00"],
    "u": ["00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000001"],
    "p": ["P1D", "PT24H", "P1M"],
}
FEW_DIGITS = ["0.00", "1.5", "-1.5", "1.000001"]
"""Numerics that are on the grid."""


def tree(sql: str) -> Expr:
    return Clause.of(sql, COLUMNS).tree


def span_of(sql: str) -> tuple[Expr, Span]:
    spans, others = spanned(tree(sql))
    assert not others
    ((operand, span),) = spans.items()
    return operand, span


def answers(sql: str, rows: Rows) -> list[bool | str | None]:
    node = tree(sql)
    names = columns_of(node)
    function = compile_scalar(node, names)
    found: list[bool | str | None] = []
    for row in zip(*(rows.listed(name) for name in names), strict=True):
        try:
            found.append(function(row))
        except Invalid:
            found.append("failed")
    return found


def told(keys: Keys, low: int, high: int) -> list[bool | str | None]:
    found: list[bool | str | None] = ((keys.numbers >= low) & (keys.numbers <= high)).tolist()
    for number in [] if keys.is_known is None else np.flatnonzero(~keys.is_known).tolist():
        found[number] = None
    for number in [] if keys.is_odd is None else np.flatnonzero(keys.is_odd).tolist():
        found[number] = "failed"
    return found


@st.composite
def clauses(draw: st.DrawFn) -> tuple[str, str, list[str | None]]:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    constant = draw(st.sampled_from(TEXTS[name]))
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">="]))
    both = [f"{name} {operator} '{constant}'", f"'{constant}' {operator} {name}"]
    texts = FEW_DIGITS if name == "n" and draw(st.booleans()) else TEXTS[name]
    column = draw(st.lists(st.sampled_from([*texts, None]), min_size=1, max_size=8))
    return draw(st.sampled_from(both)), name, column


@given(clauses())
def test_keys_and_ends_say_what_the_condition_says(made: tuple[str, str, list[str | None]]) -> None:
    sql, name, column = made
    rows = Rows(pa.RecordBatch.from_pydict({name: pa.array(column, pa.string())}))
    operand, span = span_of(sql)
    expected = answers(sql, rows)
    ranks = Ranks([span])
    keys = ranks.keys(distinct_values(operand, rows))
    assert told(keys, int(ranks.lows[0]), int(ranks.highs[0])) == expected
    grid = grid_of(operand)
    on_grid = None if grid is None else grid.keys(rows)
    if grid is not None and on_grid is not None:
        assert told(on_grid, *grid.ends(span)) == expected


@pytest.mark.parametrize(("name", "has_grid"), [("a", True), ("n", True), ("f", True), ("d", True), ("s", False)])
def test_numbers_and_dates_are_on_a_grid(name: str, *, has_grid: bool) -> None:
    operand, _ = span_of(f"{name} = '{TEXTS[name][0]}'")
    assert (grid_of(operand) is not None) == has_grid


def test_numerics_beyond_millionths_are_not_on_the_grid() -> None:
    operand, _ = span_of("n > 1")
    grid = grid_of(operand)
    assert grid is not None
    for text, is_there in (("1.000001", True), ("1.0000001", False), ("NaN", False), ("1234567890123", False)):
        assert (grid.keys(Rows(pa.RecordBatch.from_pydict({"n": [text]}))) is not None) == is_there


@pytest.mark.parametrize("pattern", ["x%", "x\\%%", "é%"])
@given(texts=st.lists(st.text("x%yé\U0010ffff\x7f", max_size=4), min_size=1))
def test_a_prefix_is_a_span(pattern: str, texts: list[str]) -> None:
    sql = f"s LIKE '{pattern}'"
    operand, span = span_of(sql)
    rows = Rows(pa.RecordBatch.from_pydict({"s": pa.array(texts, pa.string())}))
    ranks = Ranks([span])
    keys = ranks.keys(distinct_values(operand, rows))
    assert told(keys, int(ranks.lows[0]), int(ranks.highs[0])) == answers(sql, rows)


@pytest.mark.parametrize("sql", ["a <> 1", "s LIKE '%x'", "s LIKE 'x'", "s LIKE 'x_%'", "s NOT LIKE 'x%'", "a IS NULL"])
def test_what_is_no_span(sql: str) -> None:
    assert spanned(tree(sql)).spans == {}


def test_ends_of_one_expression_meet() -> None:
    spans, others = spanned(tree("a + 1 > 3 AND a + 1 <= 9 AND a + 1 >= 3 AND s LIKE '%x' AND s LIKE 'x%'"))
    assert others == (tree("s LIKE '%x'"), tree("s LIKE 'x%'")), "a prefix counts where nothing else does"
    (span,) = spans.values()
    assert span.low is not None
    assert span.high is not None
    assert (span.low.key, span.low.is_open, span.high.key, span.high.is_open) == (3, True, 9, False)


def test_an_expression_that_fails_has_no_key() -> None:
    operand, span = span_of("1 / a > 0")
    rows = Rows(pa.RecordBatch.from_pydict({"a": ["0", "1", None, "2"]}))
    ranks = Ranks([span])
    keys = ranks.keys(distinct_values(operand, rows))
    assert told(keys, int(ranks.lows[0]), int(ranks.highs[0])) == ["failed", True, None, False]
