"""Bands: conditions that are asked together say what each of them says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes import index_bands
from shapes.index_conditions import Condition, Conditions
from shapes.index_questions import Questions
from shapes.limits import BAND_CONDITIONS_MIN
from shapes.routing import Router
from shapes.where.evaluate import Rows
from tests.unit.clauses import FAILED, ROWS, Row, clause, evaluate, row, struct_of

TABLE = 16_384

FORMS = st.sampled_from(
    [
        "a > {}",
        "a + 0 = {}",
        "b <= {} AND s LIKE 'x%'",
        "n >= {}",
        "n > {} AND n < {}",
        "n BETWEEN {} AND 2.0000001",
        "2 / b >= {}",
        "2 / b >= {} AND a <> 1",
        "a < {} AND 1 / b > 0",
        "v LIKE 'x{}%'",
        "v LIKE 'x%' OR a > {}",
        "a = {} OR b > 3",
        "d > '2024-02-{}' AND a >= {}",
        "a = 1 AND b > {}",
        "a = 1 AND 2 / b >= {}",
        "t @> '{{x}}' AND n < {}",
    ]
)
NUMBERS = st.sampled_from(["1", "2", "7", "12"])


def filled(form: str, number: str) -> str:
    return form.replace("{}", number).replace("{{", "{").replace("}}", "}")


@given(
    st.lists(FORMS, min_size=1, max_size=3),
    st.lists(NUMBERS, min_size=1, max_size=6),
    st.lists(st.integers(0, 30), max_size=8),
    ROWS,
    st.sampled_from([4, 1000]),
)
def test_many_say_what_each_says(
    forms: list[str], numbers: list[str], leaving: list[int], rows: list[Row], pairs_max: int
) -> None:
    shapes = dict(enumerate(filled(form, number) for form in forms for number in numbers))
    router = Router()
    for shape, where in shapes.items():
        router.add(shape, TABLE, clause(where))
    for shape in set(leaving) & set(shapes):
        router.remove(shape)
        del shapes[shape]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_bands, "BAND_PAIRS_MAX", pairs_max)
        found = router.match(TABLE, struct_of(rows * 3))
    answers = {
        (shape, number): evaluate(clause(where), one)
        for shape, where in shapes.items()
        for number, one in enumerate(rows * 3)
    }
    assert found.failed.keys() <= {shape for (shape, _), answer in answers.items() if answer == FAILED}
    assert list(zip(found.shapes.tolist(), found.rows.tolist(), strict=True)) == [
        pair for pair, answer in sorted(answers.items()) if answer is True and pair[0] not in found.failed
    ]


def test_conditions_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked one by one")

    router = Router()
    for shape in range(100):
        router.add(shape, TABLE, clause(f"b > {shape} AND s LIKE 'x%'"))
    monkeypatch.setattr(Questions, "ask", never)
    rows = [row(b=str(number), s="x") for number in range(50)] + [row(b="200"), row(b="200", s="y"), row(s="x")]
    found = router.match(TABLE, struct_of(rows))
    expected = [(shape, number) for shape in range(50) for number in range(shape + 1, 50)]
    assert list(zip(found.shapes.tolist(), found.rows.tolist(), strict=True)) == expected


def test_few_conditions_are_asked_one_by_one() -> None:
    router = Router()
    for shape in range(BAND_CONDITIONS_MIN - 1):
        router.add(shape, TABLE, clause(f"b > {shape}"))
    assert router.match(TABLE, struct_of([row(b="2")])).shapes.tolist() == [0, 1]


def test_only_conditions_that_fail_are_told_apart() -> None:
    router = Router()
    for shape in range(10):
        router.add(shape, TABLE, clause(f"2 / b >= {shape - 5} AND a > {shape}"))
    rows = [row(a="5", b="0"), row(a="20", b="1"), row(a="0", b="0")]
    found = router.match(TABLE, struct_of(rows))
    assert sorted(found.failed) == [0, 1, 2, 3, 4], "a = 5 rules the others out"
    assert found.shapes.tolist() == [5, 6, 7]
    assert set(found.failed.values()) == {"division by zero"}


def test_places_have_no_gaps() -> None:
    conditions = Conditions()
    taken: list[Condition] = []
    for number in range(10):
        condition = conditions.take(clause(f"a > {number}"))
        assert condition is not None
        taken.append(condition)
    first = taken[0].place
    assert first is not None
    band = first.band
    for number in (0, 8, 4, 4, 0):
        conditions.release(taken.pop(number))
        places = [condition.place.number for condition in taken if condition.place is not None]
        assert sorted(places) == list(range(len(taken)))
        asked = band.ask(Questions(Rows(struct_of([row(a=str(value)) for value in range(-1, 11)]))))
        for condition, place in zip(taken, places, strict=True):
            holds = asked.holds(np.full(12, place), np.arange(12))
            assert holds.tolist() == [evaluate(condition.expr, row(a=str(value))) for value in range(-1, 11)]
    for condition in taken:
        conditions.release(condition)
    assert not conditions._bands
    assert not conditions._sides
