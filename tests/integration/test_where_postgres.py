"""What a where clause says of a row is what Postgres says, for clauses and rows that are made up.

The rows go into a real table, and come back as the texts that a stream would bring. Postgres answers each clause as it
was written and as its canonical text, for each row; both answers and ours, by columns and row by row, must agree.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from shapes.errors import InvalidWhere
from shapes.limits import WHERE_SCALAR_ROWS_MAX
from shapes.where.canonical import canonical
from shapes.where.clause import Clause
from shapes.where.evaluate import Outcome, Rows, compile_predicate
from shapes.where.sql import quoted_name
from shapes.where.tree import Constant
from shapes.where.types import type_of_column
from tests.postgres import Server, new_database
from tests.where_clauses import COLUMNS, DESCRIBED, ROWS, Row, predicates

Answers = list[bool | str | None]
Connection = psycopg.Connection[tuple[Any, ...]]
ERROR = "error"
MANY = WHERE_SCALAR_ROWS_MAX + 1
STOPS = (psycopg.DataError, psycopg.NotSupportedError)  # for a row; other errors are those of a clause

# As for the stream and for snapshots.
SESSION = (
    "SET DateStyle = 'ISO, DMY'; SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = 1",
)
# In front of pg_catalog: a canonical text must not see it, and a clause as it was written is asked without it.
DECOY = (
    "CREATE SCHEMA decoy",
    "CREATE FUNCTION decoy.never(int4, int4) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT NULL::bool'",
    "CREATE OPERATOR decoy.= (FUNCTION = decoy.never, LEFTARG = int4, RIGHTARG = int4)",
    "CREATE FUNCTION decoy.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''decoy''::text'",
)
PATH_OF_WRITTEN, PATH_OF_CANONICAL = "SET search_path = public", "SET search_path = decoy, pg_catalog, public"

# Where we stop and Postgres may go on: its versions differ, or it stops only at a row that gets so far.
CAUTION = ("infinite", "must not end with escape", "write it like")
# What we refuse and Postgres takes; anything else that we refuse, it must refuse too.
CONSTANTS, LAZY = (
    ("out of range", "division by zero", "invalid input"),
    (" AND ", " OR ", "COALESCE", "coalesce", "NULL"),
)
REFUSALS = (*CAUTION, "not supported", "cannot subscript", "cannot be matched", "rules of a language")


@pytest.fixture(scope="module")
def connection(newest_server: Server) -> Iterator[Connection]:
    database = new_database(newest_server)
    columns = ", ".join(f"{quoted_name(name)} {kind}" for name, kind in COLUMNS.items())
    with database.connect() as made:
        statements = ("CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s')", f"CREATE TABLE t (row int4, {columns})")
        for statement in (*DECOY, *statements, *SESSION):
            made.execute(statement.encode())
        yield made
    database.remove()


def select(connection: Connection, clauses: list[str], row: int | None = None) -> list[Answers]:
    """A list of answers for each clause: of all rows, or of one."""
    which = "" if row is None else f"WHERE row OPERATOR(pg_catalog.=) {row} "
    listed = ", ".join(f"({clause})" for clause in clauses)
    rows = connection.execute(f"SELECT {listed} FROM t {which}ORDER BY row".encode()).fetchall()  # noqa: S608 - our own
    return [list(column) for column in zip(*rows, strict=True)]


def fill(connection: Connection, rows: list[Row]) -> pa.RecordBatch:
    """The rows as Postgres sends them."""
    connection.execute("TRUNCATE public.t")
    marks = ", ".join(f"%s::public.{kind}" if kind == "mood" else f"%s::{kind}" for kind in COLUMNS.values())
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO public.t VALUES (%s, {marks})".encode(),  # noqa: S608 - our own
            [(number, *row) for number, row in enumerate(rows)],
        )
        cursor.execute("SELECT * FROM public.t ORDER BY row")
        result = cursor.pgresult
        assert result is not None
        columns = [[result.get_value(row, place + 1) for row in range(len(rows))] for place in range(len(COLUMNS))]
    arrays = [
        pa.array([None if value is None else value.decode() for value in values], pa.string()) for values in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def ask(connection: Connection, clauses: list[str], count: int) -> list[Answers]:
    """What Postgres says: of all at once if it does not stop, else of each row alone."""
    try:
        return select(connection, clauses)
    except STOPS:
        if len(clauses) > 1:
            return [ask(connection, [clause], count)[0] for clause in clauses]
    return [[answer_for_row(connection, clauses[0], row) for row in range(count)]]


def answer_for_row(connection: Connection, clause: str, row: int) -> bool | str | None:
    try:
        return select(connection, [clause], row)[0][0]
    except STOPS:
        return ERROR


def ours(outcome: Outcome) -> Answers:
    values: Answers = outcome.result.to_pylist()
    if outcome.failed is None:
        return values
    return [ERROR if failed else value for value, failed in zip(values, outcome.failed.tolist(), strict=True)]


def agree(clause: Clause, batch: pa.RecordBatch, theirs: Answers, mine: Answers) -> bool:
    """Postgres may stop where AND and OR can do without what is wrong; we may where it is careful to."""
    may_decide = any(word in clause.text for word in LAZY) or isinstance(clause.tree, Constant)
    for row, (left, right) in enumerate(zip(theirs, mine, strict=True)):
        why = clause.evaluate(batch.slice(row, 1)).why if right == ERROR else ""
        if not (left == right or (left == ERROR and may_decide) or any(reason in why for reason in CAUTION)):
            return False
    return True


def read(connection: Connection, text: str) -> Clause | None:
    """The clause; None for what we refuse, which Postgres must refuse too, or we have our reasons."""
    try:
        return Clause.of(text, DESCRIBED)
    except InvalidWhere as error:
        refusal = error.message
    note(f"refused: {text}: {refusal}")
    if not any(reason in refusal for reason in REFUSALS) and not refuses(connection, text):
        # Postgres leaves a constant that cannot be alone where AND, OR or COALESCE do not need it.
        assert any(reason in refusal for reason in CONSTANTS), text
        assert any(word in text for word in LAZY), text
    return None


def refuses(connection: Connection, text: str) -> bool:
    try:
        select(connection, [text])
    except psycopg.Error:
        return True
    return False


many_cases = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # the report names the clause; making it small takes minutes
)


@many_cases
@given(rows=ROWS, texts=st.lists(predicates(3), min_size=8, max_size=14))
def test_a_clause_means_what_postgres_says(connection: Connection, rows: list[Row], texts: list[str]) -> None:
    batch = fill(connection, rows)
    connection.execute(PATH_OF_WRITTEN)
    accepted = [(text, clause) for text in texts if (clause := read(connection, text)) is not None]
    if not accepted:
        return
    repeated = pa.concat_batches([batch] * MANY)
    written = ask(connection, [text for text, _ in accepted], len(rows))
    connection.execute(PATH_OF_CANONICAL)
    bound = ask(connection, [clause.text for _, clause in accepted], len(rows))
    for (text, clause), of_written, of_canonical in zip(accepted, written, bound, strict=True):
        row_by_row, whole = compile_predicate(clause.tree)
        by_rows, by_columns = ours(row_by_row(Rows(batch))), ours(whole(Rows(batch)))
        report = f"{text}\n{clause.text}\nPostgres {of_written}\nand {of_canonical}\nours {by_rows}\nand {by_columns}"
        assert by_rows == by_columns, report
        assert ours(whole(Rows(repeated))) == by_columns * MANY, report
        # Comparisons of rows stop at a NULL, which AND and OR in their place do not: then an error is what both say.
        pairs = zip(of_written, of_canonical, strict=True)
        careful = [ERROR if right == ERROR else left for left, right in pairs]
        assert agree(clause, batch, careful, by_rows), report
        assert agree(clause, batch, of_canonical, by_rows), report
        again = Clause.stored(clause.text, DESCRIBED)
        assert (again.tree, again.text) == (clause.tree, clause.text)


@many_cases
@given(rows=ROWS)
def test_keys_are_equal_where_postgres_says_so(connection: Connection, rows: list[Row]) -> None:
    batch = fill(connection, rows)
    connection.execute(PATH_OF_WRITTEN)
    for name, described in DESCRIBED.items():
        kind = type_of_column(described)
        if kind.category != "?":
            column = quoted_name(name)
            query = f"SELECT a.{column} = b.{column} FROM t a, t b ORDER BY a.row, b.row"  # noqa: S608 - our own
            theirs = [row[0] for row in connection.execute(query.encode())]
            keys = canonical(kind, batch.column(name)).to_pylist()
            mine = [None if left is None or right is None else left == right for left in keys for right in keys]
            assert theirs == mine, (name, keys)
