"""Routing says what asking each clause of each row says, whatever shapes came and went."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.index_numbers import Integers
from shapes.index_questions import Questions, Side, Verdict
from shapes.routing import Matches, Router
from tests.unit.calls import calls_of
from tests.unit.clauses import CLAUSES, FAILED, ROWS, Row, clause, evaluate, row, struct_of

TABLE, OTHER_TABLE = 16_384, 16_385


def pairs(matches: Matches) -> list[tuple[int, int]]:
    return list(zip(matches.shapes.tolist(), matches.rows.tolist(), strict=True))


Answers = dict[tuple[int, int], bool | str | None]


def asked(shapes: dict[int, str | None], rows: list[Row]) -> Answers:
    """Each clause of each row."""
    return {
        (shape, number): True if where is None else evaluate(clause(where), one)
        for shape, where in sorted(shapes.items())
        for number, one in enumerate(rows)
    }


def those_that_match(answers: Answers) -> list[tuple[int, int]]:
    return [pair for pair, answer in answers.items() if answer is True]


def add(router: Router, shape: int, where: str | None, table: int = TABLE) -> None:
    router.add(shape, table, None if where is None else clause(where))


def with_shapes(*wheres: str | None) -> Router:
    router = Router()
    for shape, where in enumerate(wheres):
        add(router, shape, where)
    return router


def match(router: Router, *rows: Row) -> list[tuple[int, int]]:
    return pairs(router.match(TABLE, struct_of(rows)))


STEPS = st.lists(
    st.one_of(
        st.none(),  # a shape without a clause joins
        CLAUSES,  # one with a clause joins
        st.integers(0, 20),  # one leaves
        ROWS,  # a batch comes
    ),
    max_size=25,
)


@given(STEPS, ROWS)
def test_matches_are_those_of_each_clause_for_each_row(
    steps: list[str | int | list[Row] | None], rows: list[Row]
) -> None:
    router = Router()
    shapes: dict[int, str | None] = {}
    for number, argument in enumerate([*steps, rows]):
        if isinstance(argument, list):
            found = router.match(TABLE, struct_of(argument))
            answers = asked(shapes, argument)
            assert found.failed.keys() <= {shape for (shape, _), answer in answers.items() if answer == FAILED}
            assert pairs(found) == [pair for pair in those_that_match(answers) if pair[0] not in found.failed]
        elif not isinstance(argument, int):
            add(router, number, argument)
            shapes[number] = argument
        elif shapes:
            shape = sorted(shapes)[argument % len(shapes)]
            router.remove(shape)
            del shapes[shape]
    assert router.shapes_of(TABLE).tolist() == sorted(shapes)
    assert router.conditional(TABLE).tolist() == sorted(shape for shape in shapes if shapes[shape] is not None)
    assert router.has_table(TABLE) == bool(shapes)
    assert router.needs_old(TABLE) == any(where is not None for where in shapes.values())


@given(st.lists(CLAUSES, min_size=1, max_size=8))
def test_nothing_is_left_of_shapes_that_left(wheres: list[str]) -> None:
    router = with_shapes(None, *wheres)
    index = router._tables[TABLE]
    for shape in range(1, len(wheres) + 1):
        router.remove(shape)
    assert len(index._indexes) == 1, "that of every row, for the shape without a clause"
    assert len(index._conditions) == len(index._conditions._sides) == 0
    router.remove(0)
    assert not router.has_table(TABLE)
    assert len(index._indexes) == 0


def test_a_shape_without_a_clause_wants_every_row() -> None:
    router = with_shapes(None, "a = 1", None)
    assert match(router, row(a="1"), row()) == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]


def test_tables_have_nothing_to_do_with_each_other() -> None:
    router = with_shapes("a = 1")
    add(router, 9, None, OTHER_TABLE)
    rows = struct_of([row(a="1")])
    assert pairs(router.match(TABLE, rows)) == [(0, 0)]
    assert pairs(router.match(OTHER_TABLE, rows)) == [(9, 0)]
    assert not router.needs_old(OTHER_TABLE)
    assert pairs(router.match(1, rows)) == []
    assert router.shapes_of(1).tolist() == router.conditional(1).tolist() == []


def test_a_shape_joins_once_and_leaves_once() -> None:
    router = with_shapes(None)
    with pytest.raises(ValueError, match="shape 0 is in the router already"):
        add(router, 0, None, OTHER_TABLE)
    router.remove(0)
    with pytest.raises(KeyError):
        router.remove(0)


def test_null_matches_nothing() -> None:
    router = with_shapes("a = NULL", "a IN (NULL, 1)", "s = ''", "i @> NULL")
    assert match(router, row(), row(a="1", s="", i="{NULL}")) == [(1, 1), (2, 1)]


def test_texts_that_are_one_value_meet() -> None:
    router = with_shapes("n = 1.50", "c = 'x'", "n IN (0.000)", "f")
    rows = [row(n="1.5", c="x   "), row(n="1.50", c="x", f="t"), row(n="0.00", f="f")]
    assert match(router, *rows) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize(
    "where", ["a = 1 OR b = 1", "(a = 1 AND f) OR (a IN (1, 2) AND f)", "t @> '{x}' OR t @> '{x}'"]
)
def test_two_branches_that_reach_a_row_are_one_match(where: str) -> None:
    router = with_shapes(where)
    assert match(router, row(a="1", b="1", f="t", t="{x,x}"), row()) == [(0, 0)]
    router.remove(0)
    assert not router.has_table(TABLE)


def test_a_part_of_a_batch_is_read_from_where_it_begins() -> None:
    router = with_shapes("a = 1", "a = 2 AND b >= 1")
    rows = [row(a="1", b="0"), row(a="0"), row(a="1"), row(a="2", b="1"), row(a="2", b="0")]
    assert pairs(router.match(TABLE, struct_of(rows)[1:])) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("copies", [1, 100])
def test_a_clause_that_fails_disturbs_no_other(copies: int) -> None:
    router = with_shapes("1 / b > 0", "a = 1 AND 1 / b > 0", "a = 2 AND 1 / b > 0", "a = 1", None)
    batch = [row(a="1", b="0"), row(a="2", b="1"), row(a="1", b="1")] * copies
    found = router.match(TABLE, struct_of(batch))
    assert sorted(found.failed) == [0, 1]
    assert all("division by zero" in why for why in found.failed.values())
    kept: dict[int, str | None] = {2: "a = 2 AND 1 / b > 0", 3: "a = 1", 4: None}
    assert pairs(found) == those_that_match(asked(kept, batch))
    assert router.match(TABLE, struct_of([row(a="1", b="1")])).failed == {}, "a failure is one of its batch"


def test_a_clause_is_not_asked_of_rows_that_it_rules_out() -> None:
    router = with_shapes("a = 1 AND 1 / b > 0", "a <> 2 AND 1 / b > 0")
    found = router.match(TABLE, struct_of([row(a="2", b="0"), row(a="1", b="1")]))
    assert (found.failed, pairs(found)) == ({}, [(0, 1), (1, 1)])


def test_a_side_that_fails_does_not_matter_where_another_lets_the_row_in() -> None:
    router = with_shapes("(a = 1 AND 1 / b > 0) OR n = 5")
    assert match(router, row(a="1", b="0", n="5"), row(n="5")) == [(0, 0), (0, 1)]
    found = router.match(TABLE, struct_of([row(a="1", b="0", n="5"), row(a="1", b="0")]))
    assert (pairs(found), dict(found.failed)) == ([], {0: "division by zero"})


def test_a_condition_is_asked_once_for_all_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    router = with_shapes(*(f"n = {value} AND b <> 7" for value in range(100)), "b <> 7")
    asked_for = count_questions(monkeypatch)
    rows = [row(n=str(value), b="1") for value in range(100)]
    assert match(router, *rows) == [(number, number) for number in range(100)] + [
        (100, number) for number in range(100)
    ]
    assert asked_for == [100, 100], "of 100 rows at 100 leaves, and of all 100 rows"


def test_rows_that_nobody_reaches_are_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    router = with_shapes(*(f"n = {value} AND b <> 7" for value in range(100)))
    asked_for = count_questions(monkeypatch)
    assert match(router, row(n="7", b="1"), row(n="200", b="1")) == [(7, 0)]
    assert asked_for == [1]


@pytest.mark.parametrize(
    "clauses",
    [
        "b = {}",
        "b IN ({}, -{})",
        "b = {} AND a > 0",
        "b = {} OR b = -{}",
        "i @> ARRAY[{}]",
    ],
)
def test_a_batch_costs_no_step_for_shapes_that_it_does_not_reach(clauses: str) -> None:
    """The promise of an index: ten times the shapes, and not one call more."""

    def cost(shapes_count: int) -> int:
        router = with_shapes(*(clauses.replace("{}", str(value)) for value in range(shapes_count)))
        rows = struct_of([row(a="1", b="7", i="{7}"), row(a="1", b="99999", i="{99999}")])
        router.match(TABLE, rows)  # what is made ready once
        found: list[Matches] = []
        calls = calls_of(lambda: found.append(router.match(TABLE, rows)))
        assert pairs(found[0]) == [(7, 0)]
        return calls

    assert cost(1_000) == cost(100)


def test_no_number_is_too_large() -> None:
    router = Router()
    for shape in (2**40, 2**40 + 1):
        add(router, shape, None)
    found = router.match(TABLE, struct_of([row()] * 3))
    assert found.shapes.tolist() == [2**40] * 3 + [2**40 + 1] * 3
    assert found.rows.tolist() == [0, 1, 2] * 2
    assert found.shapes.dtype == found.rows.dtype == np.int64


def count_questions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each question is about."""
    counts: list[int] = []
    ask = Questions.ask

    def counted(self: Questions, sides: tuple[Side, ...], rows: Integers) -> Verdict:
        counts.append(len(rows))
        return ask(self, sides, rows)

    monkeypatch.setattr(Questions, "ask", counted)
    return counts
