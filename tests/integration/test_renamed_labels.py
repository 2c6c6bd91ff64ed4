"""A label of an enum that is renamed changes every row that has it, and no stream says a word of it."""

from pathlib import Path
from typing import LiteralString

import pytest

from cdc.source.connections import connect_sql
from shapes.definition import Definition, Table, TableColumn
from shapes.reconciliation import reconcile
from shapes.relevance import IRRELEVANT, Ends, Reason, relevance
from shapes.requests import Request, define
from shapes.tables import find_table
from storage.catalog_records import Life
from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually

TYPES: tuple[LiteralString, ...] = (
    "CREATE TYPE mood AS ENUM ('sad', 'well')",
    "CREATE DOMAIN some_mood AS mood",
    "CREATE TYPE pair AS (first mood, second text)",
)
RENAME: LiteralString = "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"


async def table_of(database: Database) -> Table:
    async with await connect_sql(database.conninfo(), "labels") as connection:
        return await find_table(connection, "t")


def shapes_of(table: Table) -> dict[str, Definition]:
    return {
        "all": define(Request(), table),
        "read": define(Request(where="m IS NOT NULL", columns="id"), table),
        "other": define(Request(columns="id"), table),
    }


@pytest.mark.parametrize("column", ["mood", "mood[]", "some_mood", "some_mood[]", "pair", "pair[]"])
async def test_whose_columns_have_the_enum_ends(database: Database, column: str) -> None:
    with database.connect() as connection:
        for statement in (*TYPES, f"CREATE TABLE t (id int PRIMARY KEY, m {column})"):
            connection.execute(statement.encode())
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")  # which a condition needs
    shapes = shapes_of(await table_of(database))
    assert Definition.from_json(shapes["all"].to_json()).enums == shapes["all"].enums
    database.execute("ALTER TYPE mood ADD VALUE 'better' BEFORE 'sad'")
    now = await table_of(database)
    assert {relevance(definition, now) for definition in shapes.values()} == {IRRELEVANT}
    database.execute(RENAME)
    verdicts = {name: relevance(definition, await table_of(database)) for name, definition in shapes.items()}
    reasons = {name: verdict.reason for name, verdict in verdicts.items() if isinstance(verdict, Ends)}
    assert reasons == dict.fromkeys(("all", "read"), Reason.LABEL_RENAMED)


def renamed(*labels: str) -> tuple[Definition, Table]:
    """A shape of an enum of three, and its table when the enum has these labels."""

    def table(labels: tuple[str, ...]) -> Table:
        columns = (TableColumn("id", 1, 23, "int4", pk_index=0), TableColumn("m", 2, 9, "mood", enums={"9": labels}))
        return Table(1, "public", "t", "r", "p", "d", columns)

    return define(Request(), table(("a", "b", "c"))), table(labels)


@pytest.mark.parametrize("labels", [("b", "a", "c"), ("x", "b", "c", "a"), ("a", "b"), ("b", "c", "a")])
def test_labels_that_changed_names_with_each_other_were_renamed(labels: tuple[str, ...]) -> None:
    verdict = relevance(*renamed(*labels))
    assert isinstance(verdict, Ends)
    assert verdict.reason is Reason.LABEL_RENAMED


@pytest.mark.parametrize("labels", [("a", "b", "c"), ("x", "a", "y", "b", "c"), ("a", "b", "c", "z")])
def test_labels_that_were_added_change_no_row(labels: tuple[str, ...]) -> None:
    assert relevance(*renamed(*labels)) is IRRELEVANT


def test_a_definition_from_before_labels_were_kept_says_nothing_of_them() -> None:
    definition, table = renamed("x", "y", "z")
    content = definition.to_json()
    del content["enums"]
    old = Definition.from_json(content)
    assert old == definition
    assert old.identity == definition.identity
    assert relevance(old, table) is IRRELEVANT


@pytest.mark.parametrize("is_running", [True, False], ids=["while it runs", "at the next start"])
async def test_the_rows_of_before_are_told_anew(newest_database: Database, tmp_path: Path, *, is_running: bool) -> None:
    newest_database.execute(*TYPES, "CREATE TABLE t (id int PRIMARY KEY, m mood)", "INSERT INTO t VALUES (1, 'sad')")
    async with looping(newest_database, tmp_path) as loop:
        first = await loop.add("t", "t")
        await loop.caught_up()
        if is_running:
            newest_database.execute(RENAME)
            async with loop.app.house.control() as connection:
                await reconcile(loop.app.house, connection)
    if not is_running:
        newest_database.execute(RENAME)
    async with looping(newest_database, tmp_path) as loop:

        def is_new() -> bool:
            entry = loop.app.house.registry.named("t")
            return entry is not None and entry.handle != first.handle and entry.shape.life is Life.READY

        await eventually(is_new, "a successor")
        newest_database.execute("INSERT INTO t VALUES (2, 'blue')")
        await loop.caught_up()
        assert loop.rows(loop.living("t")) == loop.table("SELECT id, m FROM t") == [("1", "blue"), ("2", "blue")]
