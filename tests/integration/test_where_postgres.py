"""What a where clause says of a row is what Postgres says, for clauses and rows that are made up.

The rows go into a real table, and come back as the texts that a stream would bring. Postgres then answers each clause as
it was written and as its canonical text, for each row; both answers and ours, by columns and row by row, must agree.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from psycopg import sql

from shapes.errors import InvalidWhere
from shapes.where.canonical import canonical
from shapes.where.clause import Clause
from shapes.where.evaluate import Outcome, Rows, compile_predicate
from shapes.where.types import type_of_column
from tests.postgres import Server, new_database
from tests.where_clauses import COLUMNS, DESCRIBED, ROWS, predicates

Connection = psycopg.Connection[tuple[Any, ...]]
ERROR = "error"
STOPS = (psycopg.DataError, psycopg.NotSupportedError)  # for a row; other errors are those of a clause

# As for the stream and for snapshots.
SESSION = (
    "SET DateStyle = 'ISO, DMY'; SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = 1; "
    "SET search_path = decoy, pg_catalog, public"
)
# In front of pg_catalog: a canonical text must not see it, and a clause as written must (so it is asked without).
DECOY = (
    "CREATE SCHEMA decoy; CREATE FUNCTION decoy.never(int4, int4) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT NULL::bool';"
    "CREATE OPERATOR decoy.= (FUNCTION = decoy.never, LEFTARG = int4, RIGHTARG = int4);"
    "CREATE FUNCTION decoy.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''decoy''::text'"
)
# What we refuse and Postgres takes; anything else that we refuse, it must refuse too.
REFUSALS = ("must not end with escape", "not supported", "write it like", "cannot subscript", "infinite intervals", "cannot be matched", "rules of a language")


@pytest.fixture(scope="module")
def connection(newest_server: Server) -> Iterator[Connection]:
    database = new_database(newest_server)
    columns = ", ".join(f"{name if name.isalnum() else quoted_name(name)} {kind}" for name, kind in COLUMNS.items())
    with database.connect() as made:
        made.execute(DECOY)  # type: ignore[arg-type]  # it is our own
        made.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s')")
        made.execute(f"CREATE TABLE t (row int4, {columns})")  # type: ignore[arg-type]  # it is our own
        made.execute(SESSION)
        yield made
    database.remove()


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def fill(connection: Connection, rows: list[tuple[str | None, ...]]) -> pa.RecordBatch:
    """The rows as Postgres sends them."""
    connection.execute("TRUNCATE t")
    marks = ", ".join(f"%s::{kind}" for kind in COLUMNS.values())
    with connection.cursor() as cursor:
        for number, row in enumerate(rows):
            cursor.execute(f"INSERT INTO t VALUES ({number}, {marks})", row)  # type: ignore[arg-type]  # it is our own
        cursor.execute("SELECT * FROM t ORDER BY row")
        result = cursor.pgresult
        assert result is not None
        texts = [[result.get_value(row, column) for row in range(len(rows))] for column in range(1, len(COLUMNS) + 1)]
    arrays = [pa.array([None if value is None else value.decode() for value in column], pa.string()) for column in texts]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def ask(connection: Connection, clause: str, count: int) -> list[bool | None | str]:
    """What Postgres says of each row; `ERROR` where it stops."""
    try:
        return [row[0] for row in connection.execute(f"SELECT ({clause}) FROM t ORDER BY row")]  # type: ignore[arg-type]  # the test's own
    except STOPS:
        if count == 1:
            return [ERROR]
    answers: list[bool | None | str] = []
    for row in range(count):
        try:
            found = connection.execute(f"SELECT ({clause}) FROM t WHERE row OPERATOR(pg_catalog.=) {row}").fetchall()  # type: ignore[arg-type]  # the test's own
            answers += [each[0] for each in found]
        except STOPS:
            answers.append(ERROR)
    return answers


def ours(outcome: Outcome) -> list[bool | None | str]:
    values = outcome.result.to_pylist()
    if outcome.failed is None:
        return values
    return [ERROR if failed else value for value, failed in zip(values, outcome.failed.tolist(), strict=True)]


def ask_all(connection: Connection, clauses: list[str], count: int) -> list[list[bool | None | str]]:
    """The same for several at once, where none stops."""
    listed = ", ".join(f"({clause})" for clause in clauses)
    try:
        rows = connection.execute(f"SELECT {listed} FROM t ORDER BY row").fetchall()  # type: ignore[arg-type]  # the test's own
        return [list(column) for column in zip(*rows, strict=True)]
    except STOPS:
        return [ask(connection, clause, count) for clause in clauses]


def agree(clause: Clause, batch: pa.RecordBatch, theirs: list[bool | None | str], mine: list[bool | None | str]) -> bool:
    """Postgres may stop where AND and OR can do without what is wrong; we may where its versions differ."""
    may_decide = " AND " in clause.text or " OR " in clause.text
    for row, (left, right) in enumerate(zip(theirs, mine, strict=True)):
        why = clause.evaluate(batch.slice(row, 1)).why if right == ERROR else ""
        if not (left == right or (left == ERROR and may_decide) or "infinite" in why):
            return False
    return True


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(rows=ROWS, clauses=st.lists(predicates(3), min_size=8, max_size=14))
def test_a_clause_means_what_postgres_says(
    connection: Connection, rows: list[tuple[str | None, ...]], clauses: list[str]
) -> None:
    batch = fill(connection, rows)
    accepted = []
    for clause in clauses:
        try:
            accepted.append((clause, Clause.of(clause, DESCRIBED)))
        except InvalidWhere as error:
            refused = error.message
            note(f"refused: {clause}: {refused}")
            if not any(reason in refused for reason in REFUSALS):
                with pytest.raises(psycopg.Error):
                    as_written(connection, [clause], len(rows), refuse=True)
    if not accepted:
        return
    written = as_written(connection, [clause for clause, _ in accepted], len(rows))
    canonical = ask_all(connection, [clause.text for _, clause in accepted], len(rows))
    for (text, clause), one, other in zip(accepted, written, canonical, strict=True):
        by_rows, by_columns = (ours(each(Rows(batch))) for each in compile_predicate(clause.tree))
        report = f"{text}\n{clause.text}\nas written {one}\ncanonical  {other}\nby rows    {by_rows}\nby columns {by_columns}"
        assert by_rows == by_columns, report
        assert agree(clause, batch, one, by_rows), report
        assert agree(clause, batch, other, by_rows), report
        again = Clause.stored(clause.text, DESCRIBED)
        assert (again.tree, again.text) == (clause.tree, clause.text)


def as_written(connection: Connection, clauses: list[str], count: int, *, refuse: bool = False) -> list[list[bool | None | str]]:
    connection.execute("SET search_path = public")
    try:
        if refuse:
            listed = ", ".join(f"({clause})" for clause in clauses)
            connection.execute(f"SELECT {listed} FROM t").fetchall()  # type: ignore[arg-type]  # the test's own
            return []
        return ask_all(connection, clauses, count)
    finally:
        connection.execute(SESSION)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(rows=ROWS)
def test_keys_are_equal_where_postgres_says_so(connection: Connection, rows: list[tuple[str | None, ...]]) -> None:
    batch = fill(connection, rows)
    for name, described in DESCRIBED.items():
        kind = type_of_column(described)
        if kind.category == "?":
            continue
        column = sql.Identifier(name)
        query = sql.SQL("SELECT a.{} = b.{} FROM t a, t b ORDER BY a.row, b.row").format(column, column)
        connection.execute("SET search_path = public")
        theirs = [row[0] for row in connection.execute(query)]
        connection.execute(SESSION)
        keys = canonical(kind, batch.column(name)).to_pylist()
        mine = [None if left is None or right is None else left == right for left in keys for right in keys]
        assert theirs == mine, (name, keys)
