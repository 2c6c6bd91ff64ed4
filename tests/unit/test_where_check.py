"""What a where clause may not be: the words, and the place, of each refusal; and what its types do to it."""

import pyarrow as pa
import pytest

from shapes.errors import InvalidWhere
from shapes.limits import WHERE_BYTES_MAX, WHERE_DEPTH_MAX
from shapes.where.clause import Clause
from shapes.where.tree import And, AnyAll, Call, Cast, Column, Constant, Expr, IsNull, IsTruth, Not, Or
from shapes.where.types import BOOL, INT4, TEXT, Collation, ColumnType, array_of
from shapes.where.values.arrays import one_dimension

COLUMNS = {
    "a": ColumnType(23),
    "b": ColumnType(25),
    "c": ColumnType(25, collation=Collation.C),
    "u8": ColumnType(25, collation=Collation.BYTES),
    "loose": ColumnType(25, collation=Collation.LOOSE),
    "n": ColumnType(1700),
    "f": ColumnType(701),
    "d": ColumnType(1082),
    "ts": ColumnType(1114),
    "bo": ColumnType(16),
    "arr": ColumnType(1007),
    "id": ColumnType(2950),
    "mood": ColumnType(90_001, type_name="public.mood", is_enum=True),
    "js": ColumnType(114, type_name="json"),
}

A = Column("a", INT4)


def tree_of(text: str, **parameters: str) -> object:
    return Clause.of(text, COLUMNS, {int(name[1:]): value for name, value in parameters.items()}).tree


def refusal(text: str, parameters: dict[int, str | None] | None = None) -> InvalidWhere:
    with pytest.raises(InvalidWhere) as caught:
        Clause.of(text, COLUMNS, parameters)
    return caught.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 x", 'At location 17: syntax error at or near "x"'),
        ("a = ", "At location 19: syntax error at end of input"),
        ("", "At location 15: syntax error at end of input"),
        ("b = 'é' x y", 'At location 23: syntax error at or near "x"'),
        ("'é' = b y z", 'At location 23: syntax error at or near "y"'),
        ("a = 1) OR (a = 2", 'At location 20: syntax error at or near ")"'),
        ("b = 'x", 'At location 19: unterminated quoted string at or near "\'x"'),
        ("x = 1", "At location 15: unknown reference x"),
        ("a = 1 AND t.a = 2", "At location 25: unknown reference t.a"),
        ("ctid IS NULL", "At location 15: unknown reference ctid"),
        ("a = $1", "At location 19: parameter $1 was not provided"),
        ("a = 'x'", 'At location 19: invalid input syntax for type integer: "x"'),
        ("b = 'é' AND a = 'x'", 'At location 31: invalid input syntax for type integer: "x"'),
        ("a = '3000000000'", 'At location 19: value "3000000000" is out of range for type integer'),
        ("a = b", "At location 17: operator does not exist: integer = text"),
        ("a LIKE 'x'", "At location 17: operator does not exist: integer ~~ unknown"),
        ("NOT a", "At location 19: argument of NOT must be type boolean, not type integer"),
        ("bo AND a", "At location 22: argument of AND must be type boolean, not type integer"),
        ("a", "WHERE clause must return a boolean"),
        ("a + 1", "WHERE clause must return a boolean"),
        ("1 / 0 = 1", "At location 17: division by zero"),
        ("a = ANY(1)", "At location 17: op ANY/ALL (array) requires array on right side"),
        ("a[1] = 1", "At location 15: cannot subscript type integer because it does not support subscripting"),
        ("(a, b) = (1, 'x', 2)", "At location 22: unequal number of entries in row expressions"),
        ("id::int4 = 1", "At location 17: cannot cast type uuid to integer"),
        ("a IN ('x', 1)", 'At location 21: invalid input syntax for type integer: "x"'),
        ("coalesce(a, b) = 1", "At location 15: COALESCE types integer and text cannot be matched"),
        ("lower(a) = 'x'", "At location 15: function lower(integer) does not exist"),
        ("b LIKE 'x\\'", "At location 17: LIKE pattern must not end with escape character"),
    ],
)
def test_refusals_have_the_words_of_postgres_and_the_place(text: str, message: str) -> None:
    error = refusal(text)
    assert error.message == message
    assert error.advice


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = 1; DROP TABLE x", "more than one statement"),
        ("a = 1; SELECT 1", "more than one statement"),
        ("a = 1 ORDER BY a", "ORDER BY"),
        ("a = 1 LIMIT 1", "LIMIT"),
        ("a = 1 FOR UPDATE", "FOR UPDATE"),
        ("a = 1 GROUP BY a", "GROUP BY"),
        ("a = 1 UNION SELECT 1", "UNION"),
        ("a IN (SELECT 1)", "subqueries are not supported"),
        ("EXISTS (SELECT 1)", "subqueries are not supported"),
        ("a = (SELECT 1)", "subqueries are not supported"),
        ("count(*) > 1", "aggregate functions are not allowed in WHERE"),
        ("sum(a) > 1", "aggregate functions are not allowed in WHERE"),
        ("count(a) OVER () > 1", "window functions are not allowed in WHERE"),
        ("ts < now()", "unknown or unsupported function now/0"),
        ("f < random()", "unknown or unsupported function random/0"),
        ("pg_sleep(1) IS NULL", "unknown or unsupported function pg_sleep/1"),
        ("evil.lower(b) = 'x'", "unknown or unsupported function evil.lower/1"),
        ("a OPERATOR(evil.=) 1", "operators of the schema evil are not supported"),
        ("d = current_date", "the current time, date or user is not supported"),
        ("CASE WHEN bo THEN true END", "CASE is not supported"),
        ("js = '{}'", "= is not supported for type json"),
        ("js ->> 'a' = 'b'", "->> is not supported for type json"),
        ("'{}' = ANY(js)", "ANY and ALL are not supported for type json"),
        ("b ~ 'x'", "the operator ~ is not supported"),
        ("b SIMILAR TO 'x'", "SIMILAR is not supported"),
        ("nullif(a, 1) = 1", "NULLIF is not supported"),
        ("a << 1 = 2", "the operator << is not supported"),
        ("mood < 'ok'", "< is not supported for the enum public.mood"),
        ("mood = a", "operator does not exist: public.mood = integer"),
        ("n ^ 2 = 4", "the power of numeric values is not supported"),
        ("ts AT TIME ZONE 'Europe/Vienna' > '2024-01-01'", 'time zone "Europe/Vienna" is not supported'),
        ("ts AT TIME ZONE b > '2024-01-01'", "a time zone must be a constant"),
        ("ts > 'yesterday'", "write it like 2024-01-31"),
        ("b COLLATE \"de_DE\" = 'x'", 'the collation "de_DE" is not supported'),
        ("b = 'x'::mood", 'type "mood" is not supported'),
        ("a = 1\0", "NUL"),
        ("b = '\ud800'", "not Unicode"),
        ("b = '" + " " * 60_000 + "' AND a = '{" + " " * 1000 + "'", "invalid input syntax"),
        ("a = " + "1" * WHERE_BYTES_MAX, "bigger than maximum size"),
        ("NOT " * (WHERE_DEPTH_MAX + 1) + "bo", "nested too deeply"),
        ("a" + " + 1" * 5000 + " = 1", "nested too deeply"),
        ("(" * 5000 + "a" + ")" * 5000, "WHERE clause must return a boolean"),
    ],
)
def test_nothing_but_one_expression_that_we_know_is_taken(text: str, reason: str) -> None:
    assert reason in refusal(text).message


def test_shorthands_that_multiply_are_bounded() -> None:
    text = "bo"
    for _ in range(WHERE_DEPTH_MAX - 2):
        text = f"({text}) BETWEEN bo AND bo"
    assert "bigger than maximum size" in refusal(text).message


@pytest.mark.parametrize(
    ("form", "innermost"),
    [
        ("NOT ({})", "bo"),
        ("{} + 1", "a"),
        ("({}) IS NOT DISTINCT FROM false", "bo"),
        ("(1, {}) < (1, true)", "bo"),
        ("({})::text::int4", "a"),
        ("({}) <> ANY(ARRAY[bo])", "bo"),
        ("ARRAY[({})[1]]", "arr"),
        ("bo = ({}) AND bo", "bo"),
        ("coalesce(a, {})", "a"),
    ],
)
def test_the_deepest_clause_that_is_taken_can_be_read_again_and_asked(form: str, innermost: str) -> None:
    deepest, nested = None, innermost
    for _ in range(WHERE_DEPTH_MAX):
        nested = form.format(nested)
        try:
            deepest = Clause.of(f"({nested}) IS NULL", COLUMNS)
        except InvalidWhere:
            break
    assert deepest is not None
    assert "nested too deeply" in refusal(f"({nested}) IS NULL").message
    assert Clause.stored(deepest.text, COLUMNS) == deepest
    row = pa.RecordBatch.from_pydict({"a": ["1"], "bo": ["t"], "arr": ["{1}"]})
    assert deepest.evaluate(row).result.to_pylist() == [False]


@pytest.mark.parametrize("column", ["b", "u8", "loose"])
@pytest.mark.parametrize(
    "form", ["{} < 'x'", "lower({}) = 'x'", "{} ILIKE 'x'", "greatest({}, 'x') = 'x'", "ARRAY[{}] > '{{x}}'"]
)
def test_order_and_case_need_a_collation_that_is_known(column: str, form: str) -> None:
    by_bytes_is_enough = "<" in form or ">" in form or "greatest" in form
    if not (column == "u8" and by_bytes_is_enough):
        error = refusal(form.format(column))
        assert "needs the rules of a language" in error.message
        assert 'COLLATE "C"' in error.advice
    tree_of(form.format(f'{column} COLLATE "C"'))
    tree_of(form.format("c"))


def test_equality_needs_a_collation_where_equal_means_equal_bytes() -> None:
    for form in ("{} = 'x'", "{} IN ('x', 'y')", "{} LIKE 'x%'", "{} = ANY('{{x}}')", "ARRAY[{}] @> '{{x}}'"):
        tree_of(form.format("b"))
        assert "needs the rules of a language" in refusal(form.format("loose")).message


def test_a_parameter_has_one_type() -> None:
    assert tree_of("a = $1", _1="5") == Call("=", (A, Constant(5, INT4)), BOOL)
    assert tree_of("a = $1 OR a > $1", _1="5") == tree_of("a = 5 OR a > 5")
    error = refusal("a = $1 OR b = $1", {1: "5"})
    assert error.message == "At location 29: parameter $1 cannot be both integer and text"
    assert tree_of("a = $1::int4 OR b = $1::int4::text", _1="5") == tree_of("a = 5 OR b = '5'")
    assert refusal("a = $2", {1: "5"}).message == "At location 19: parameter $2 was not provided"
    assert refusal("a = $1", {1: "x"}).message == 'At location 19: invalid input syntax for type integer: "x"'


def test_the_forms_of_sql_become_few() -> None:
    five, six = Constant(5, INT4), Constant(6, INT4)
    equal = Call("=", (A, five), BOOL)
    both = array_of(INT4)
    assert tree_of("a = 5") == equal
    assert tree_of("a IN (5)") == equal
    assert tree_of("a IN (5, 6)") == AnyAll("=", A, Constant(one_dimension((5, 6)), both), all_=False)
    assert tree_of("a NOT IN (5, 6)") == AnyAll("<>", A, Constant(one_dimension((5, 6)), both), all_=True)
    assert tree_of("a BETWEEN 5 AND 6") == And((Call(">=", (A, five), BOOL), Call("<=", (A, six), BOOL)))
    assert tree_of("a IS NOT DISTINCT FROM NULL") == IsNull(A)
    assert tree_of("a IS DISTINCT FROM 5") == Not(IsTruth(equal, truth=True))
    assert tree_of("(a, b) = (5, 'x')") == And((equal, Call("=", (Column("b", TEXT), Constant("x", TEXT)), BOOL)))
    assert tree_of("mood = 'ok'") == Call("=", (Cast(mood(), TEXT), Constant("ok", TEXT)), BOOL)
    assert tree_of("a = 5 AND (bo AND bo)") == And((equal, Column("bo", BOOL), Column("bo", BOOL)))
    assert tree_of("a = 5 OR (bo OR bo)") == Or((equal, Column("bo", BOOL), Column("bo", BOOL)))


def mood() -> Expr:
    test = Clause.of("mood IS NULL", COLUMNS).tree
    assert isinstance(test, IsNull)
    return test.arg


def test_what_is_constant_is_folded() -> None:
    assert tree_of("a = 2 + 3") == tree_of("a = 5")
    assert tree_of("a = 5 AND 1 < 2") == tree_of("a = 5")
    assert tree_of("a = 5 AND false") == Constant(False, BOOL)
    assert tree_of("a = 5 OR 1 < 2") == Constant(True, BOOL)
    assert tree_of("a = NULL") == Constant(None, BOOL)
    assert tree_of("d = '2024-01-30'::date + 1") == tree_of("d = '2024-01-31'")


def test_one_identity_one_text() -> None:
    def text(clause: str, **parameters: str) -> str:
        return Clause.of(clause, COLUMNS, {int(name[1:]): value for name, value in parameters.items()}).text

    assert text("a=5") == text("(A) = 5 -- five") == text("a = '5'") == text("a = $1", _1="5")
    assert text("n = 1.0") != text("n = 1.00")
    assert text("b = '5'") != text("a = 5")


@pytest.mark.parametrize("value", ["it's", "back\\slash", "\\'; DROP TABLE x; --", "$1", "", "é€😀", "\n\t"])
def test_a_constant_stays_inside_its_quotes(value: str) -> None:
    clause = Clause.of("b = $1", COLUMNS, {1: value})
    again = Clause.stored(clause.text, COLUMNS)
    assert again == clause
    assert again.tree == Call("=", (Column("b", TEXT), Constant(value, TEXT)), BOOL)


def test_columns_of_a_clause() -> None:
    assert Clause.of("b = 'x' AND (a > 1 OR arr[a] = 2) AND b IS NOT NULL", COLUMNS).columns == ("a", "arr", "b")
    assert Clause.of("true", COLUMNS).columns == ()


def test_an_error_crosses_to_other_processes() -> None:
    import pickle  # noqa: PLC0415 - of this test only

    error = refusal("x = 1")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.message, again.position, again.advice) == (error.message, error.position, error.advice)
    assert error.position == 0
