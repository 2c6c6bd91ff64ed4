"""What of a clause is looked up, and what is left to ask."""

import pytest

from shapes.index_branches import Branch, Elements, branches_of
from shapes.index_keys import KeyedColumn
from shapes.limits import BRANCH_KEYS_MAX, CLAUSE_BRANCHES_MAX
from shapes.where.clause import Clause
from shapes.where.types import ARRAYS, BOOL, INT8, NUMERIC, TEXT, Collation, ColumnType
from tests.unit.clauses import clause

A, B, N = KeyedColumn("a", INT8), KeyedColumn("b", INT8), KeyedColumn("n", NUMERIC)
F, S, V, M = KeyedColumn("f", BOOL), KeyedColumn("s", TEXT), KeyedColumn("v", TEXT), KeyedColumn("m", TEXT)
TAGS, NUMBERS = KeyedColumn("t", ARRAYS["text"]), KeyedColumn("i", ARRAYS["int4"])


def branches(sql: str) -> tuple[Branch, ...]:
    return branches_of(clause(sql))


def only(sql: str) -> Branch:
    (branch,) = branches(sql)
    return branch


def keys(*texts: str) -> frozenset[str]:
    return frozenset(texts)


def contains(column: KeyedColumn, *texts: str) -> Branch:
    return Branch({}, Elements(column, keys(*texts)))


@pytest.mark.parametrize(
    ("sql", "branch"),
    [
        ("a = 1", Branch({A: keys("1")})),
        ("1 = a", Branch({A: keys("1")})),
        ("a = 1::bigint", Branch({A: keys("1")})),
        ("a::bigint = 1", Branch({A: keys("1")})),
        ("n = 1.50", Branch({N: keys("1.5")})),
        ("b = 1.0", Branch({KeyedColumn("b", NUMERIC): keys("1")})),
        ("v = 'x'", Branch({V: keys("x")})),
        ("m = 'ok'", Branch({M: keys("ok")})),
        ("s COLLATE \"C\" = 'x'", Branch({S: keys("x")})),
        ("a IN (1, NULL, 2)", Branch({A: keys("1", "2")})),
        ("a = ANY ('{1,2}')", Branch({A: keys("1", "2")})),
        ("f", Branch({F: keys("t")})),
        ("f IS TRUE", Branch({F: keys("t")})),
        ("NOT f", Branch({F: keys("f")})),
        ("i = '{1,2}'", Branch({NUMBERS: keys("{1,2}")})),
        ("t @> '{x,y,x}'", contains(TAGS, "x", "y")),
        ("'{x}' <@ t", contains(TAGS, "x")),
        ("'x' = ANY (t)", contains(TAGS, "x")),
        ("b = 2 AND a IN (1, 2)", Branch({A: keys("1", "2"), B: keys("2")})),
        ("a IN (1, 2) AND a IN (2, 3)", Branch({A: keys("2")})),
        ("a = 1 OR a IN (2, 3)", Branch({A: keys("1", "2", "3")})),
    ],
)
def test_looked_up_as_a_whole(sql: str, branch: Branch) -> None:
    assert only(sql) == branch


@pytest.mark.parametrize(
    ("sql", "looked_up", "rest"),
    [
        ("b < 5 AND a = 1", "a = 1", "b < 5"),
        ("b < 5 AND a = 1 AND s IS NULL", "a = 1", "b < 5 AND s IS NULL"),
        ("t @> '{x}' AND a = 1", "a = 1", "t @> '{x}'"),
        ("b < 5 AND t @> '{x}' AND i @> '{1}'", "t @> '{x}'", "b < 5 AND i @> '{1}'"),
        ("a = 1 AND (b = 1 OR n = 1)", "a = 1", "b = 1 OR n = 1"),
    ],
)
def test_the_rest_of_an_and_is_asked(sql: str, looked_up: str, rest: str) -> None:
    branch = only(looked_up)
    assert only(sql) == Branch(branch.choices, branch.elements, clause(rest))


@pytest.mark.parametrize(
    "sql",
    [
        "a < 1",
        "a <> 1",
        "NOT a = 1",
        "a = 1 OR s IS NULL",
        "s IS NULL AND (a = 1 OR b < 5)",
        "a = b",
        "a + 1 = 2",
        "t @> '{}'",
        "t @> '{x,NULL}'",
        "'x' = ALL (t)",
        "a::float8 = 1",
        "c::text = 'x'",
        "n::int4 = 1",
        "v::varchar(2) = 'x'",
        "t[1] = 'x'",
        "d = '2024-01-01 00:00'::timestamp",
    ],
)
def test_asked_of_every_row(sql: str) -> None:
    assert only(sql) == Branch({}, rest=clause(sql))


def test_keys_do_not_tell_where_other_bytes_are_equal() -> None:
    loose = Clause.of("a = 1", {"a": ColumnType(23, collation=Collation.LOOSE)}).tree
    assert branches_of(loose) == (Branch({}, rest=loose),)


def test_no_clause_is_a_branch_with_nothing_to_ask() -> None:
    assert branches_of(None) == (Branch({}),)


@pytest.mark.parametrize("sql", ["a = 1 AND a = 2", "a IN (1, 2) AND a = 3 AND b < 5"])
def test_what_is_never_true_has_no_branch(sql: str) -> None:
    assert branches(sql) == ()


def test_sides_of_an_or_are_branches_of_their_own() -> None:
    assert branches("a = 1 OR (b = 2 AND n < 5) OR a = 3 OR t @> '{x}'") == (
        Branch({A: keys("1", "3")}),
        Branch({B: keys("2")}, rest=clause("n < 5")),
        contains(TAGS, "x"),
    )


def test_an_or_is_looked_up_in_part_if_the_rest_is_a_span() -> None:
    assert branches("a = 1 OR b < 5") == (Branch({A: keys("1")}), Branch({}, rest=clause("b < 5")))
    assert branches("n < 5 OR v LIKE 'x%'") == (
        Branch({}, rest=clause("n < 5")),
        Branch({}, rest=clause("v LIKE 'x%'")),
    )


def test_an_or_within_an_and_is_looked_up_if_nothing_better_is_there() -> None:
    assert branches("s IS NULL AND (a = 1 OR (b = 2 AND n < 5))") == (
        Branch({A: keys("1")}, rest=clause("s IS NULL")),
        Branch({B: keys("2")}, rest=clause("n < 5 AND s IS NULL")),
    )


def in_list(column: str, count: int) -> str:
    return f"{column} IN ({', '.join(map(str, range(count)))})"


def test_combinations_are_bounded() -> None:
    many = int(BRANCH_KEYS_MAX**0.5) + 1
    branch = only(f"{in_list('b', many + 1)} AND {in_list('a', many)}")
    assert (set(branch.choices), branch.rest) == ({A}, clause(in_list("b", many + 1)))
    alone = only(in_list("a", BRANCH_KEYS_MAX + 1))
    assert len(alone.choices[A]) == BRANCH_KEYS_MAX + 1


def test_branches_are_bounded() -> None:
    sides = " OR ".join(f"(a = {value} AND b < {value})" for value in range(CLAUSE_BRANCHES_MAX))
    assert len(branches(sides)) == CLAUSE_BRANCHES_MAX
    assert only(f"{sides} OR n = 1").rest == clause(f"{sides} OR n = 1")
