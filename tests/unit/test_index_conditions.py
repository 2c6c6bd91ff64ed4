"""Conditions are shared, and asked of some rows as of all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.index_conditions import Condition, Conditions
from shapes.index_questions import Questions, SomeRows
from shapes.limits import WHERE_SCALAR_ROWS_MAX
from shapes.where.evaluate import Outcome, Rows
from shapes.where.types import INT4
from tests.unit.clauses import CLAUSES, FAILED, ROWS, Row, clause, evaluate, row, struct_of


def condition(sql: str, conditions: Conditions | None = None) -> Condition:
    found = (Conditions() if conditions is None else conditions).take(clause(sql))
    assert found is not None
    return found


@given(CLAUSES, ROWS, st.data())
def test_any_rows_in_any_order(sql: str, rows: list[Row], data: st.DataObject) -> None:
    numbers = data.draw(st.permutations(range(len(rows))))[: data.draw(st.integers(0, len(rows)))]
    questions = Questions(Rows(struct_of(rows)))
    verdict = questions.ask(condition(sql).sides, np.array(numbers, np.int64))
    answers = [evaluate(clause(sql), rows[number]) for number in numbers]
    assert verdict.is_true.tolist() == [answer is True for answer in answers]
    if verdict.is_failed is not None:
        assert {answers[place] for place in np.flatnonzero(verdict.is_failed)} == {FAILED}


@pytest.mark.parametrize("copies", [1, WHERE_SCALAR_ROWS_MAX])
def test_a_failure_is_told_for_the_row_that_has_it(copies: int) -> None:
    rows = [row(a="1", b="0"), row(a="2", b="0"), row(a="1", b="1"), row(b="0")] * copies
    questions = Questions(Rows(struct_of(rows)))
    for numbers in (np.arange(len(rows)), np.arange(len(rows))[::-1], np.arange(len(rows) - 1)):
        verdict = questions.ask(condition("a = 1 AND 1 / b > 0").sides, numbers)
        assert verdict.is_failed is not None
        assert verdict.is_failed.tolist() == (numbers % 4 == 0).tolist()
        assert verdict.is_true.tolist() == (numbers % 4 == 2).tolist()
        assert verdict.why == "division by zero"


def test_equal_conditions_and_equal_sides_are_one() -> None:
    conditions = Conditions()
    first = condition("a < 1 AND b < 2", conditions)
    assert condition("a < 1 AND b < 2", conditions) is first
    other = condition("b < 2 AND n < 3", conditions)
    assert first.sides[1] is other.sides[0]
    assert len(conditions) == 2
    for one in (first, other, first):
        conditions.release(one)
    assert len(conditions) == len(conditions._sides) == 0


def test_a_shared_side_is_asked_once_a_batch() -> None:
    conditions = Conditions()
    both = [condition(sql, conditions) for sql in ("a < 1 AND s LIKE 'x%'", "b < 2 AND s LIKE 'x%'")]
    shared = both[0].sides[1]
    assert shared is both[1].sides[1]
    count = 0
    by_columns = shared.by_columns

    def counted(rows: Rows) -> Outcome:
        nonlocal count
        count += 1
        return by_columns(rows)

    shared.by_columns = counted
    rows = [row(a="0", b="0", s="x")] * (WHERE_SCALAR_ROWS_MAX + 1)
    questions = Questions(Rows(struct_of(rows)))
    for one in both:
        assert questions.ask(one.sides, np.arange(len(rows))).is_true.all()
    assert count == 1


def test_some_rows_are_read_as_all_are() -> None:
    whole = Rows(struct_of([row(a=str(number % 3), s=f"x{number}") for number in range(5)]))
    some = SomeRows(whole, np.array([4, 0, 2]))
    assert len(some) == 3
    assert some.texts("s").to_pylist() == some.listed("s") == ["x4", "x0", "x2"]
    assert some.native("a", INT4).to_pylist() == [1, 0, 2]
