"""Statements that documents name in their sentences, and the rights that the doctor's page asks for, on a server."""

import re
from collections.abc import Callable

import orjson
import pglast
import psycopg
import pytest

from tests.examples import blocks
from tests.integration.test_commands import shapelog
from tests.postgres import Database, Server
from tests.tree import prose, sources

VERB = r"(?:ALTER|CREATE|DELETE|DROP|GRANT|INSERT|SELECT|UPDATE) "


def named() -> list[str]:
    """Whole statements; those with dots, or with words that stand for something, are outlines."""
    found = {
        statement
        for source in sources()
        if source.path.suffix == ".md"
        for statement in re.findall(rf"`({VERB}[^`]+)`", prose(source.text))
    }
    return sorted(statement for statement in found if ".." not in statement and is_sql(statement))


def is_sql(text: str) -> bool:
    try:
        pglast.parse_sql(text)
    except pglast.parser.ParseError:
        return False
    return True


@pytest.fixture
def shop(own_server: Callable[[], Server]) -> Database:
    """What the documents speak of, with what the doctor wants. Its roles and settings go with it."""
    server = own_server()
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
    made = Database(server, "shop")
    made.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE TABLE customers (id int PRIMARY KEY)")
    found = orjson.loads(shapelog("doctor", "--manual", "--json", "orders", "customers", database=made).stdout)
    with made.connect() as administrator:
        for finding in found["findings"]:
            for statement in finding["mend"] if finding["level"] == "fault" else []:
                administrator.execute(statement)
    return made


def test_statements_in_sentences_do_what_they_say(shop: Database) -> None:
    statements = named()
    assert len(statements) > 5, "is this still how documents name statements?"
    shop.execute("CREATE ROLE follower")
    for statement in statements:
        with shop.connect() as somebody:
            if "pg_drop_replication_slot" in statement:
                somebody.execute("SELECT pg_create_logical_replication_slot('shapelog', 'pgoutput')")
            somebody.execute(statement.encode())
    assert not shop.slots()
    assert not shop.execute("SELECT FROM pg_publication")


def test_the_rights_of_the_page_are_enough(shop: Database) -> None:
    """For a role that only follows; with less the doctor says what is missing."""
    [rights] = blocks("docs/doctor.md", "sql")
    create, grant = pglast.split(rights.text)
    shop.execute(create)
    asked = ("doctor", "--manual", "--database", shop.conninfo(user="follower"), "orders", "customers")
    less = shapelog(*asked, database=shop)
    assert less.returncode == 1, less.stdout
    assert "fault  role" in less.stdout
    shop.execute(grant)
    enough = shapelog(*asked, database=shop)
    assert enough.returncode == 0, enough.stdout + enough.stderr
