"""What is wrong with a real server is read from it: each kind of fault is brought about, and the doctor finds it."""

import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import psycopg
import pytest

from cdc.source.checks import run_checks
from cdc.source.connections import connect_sql
from cdc.source.facts import Level
from cdc.source.server_facts import read_facts
from tests.postgres import Server, new_database

TABLES = (
    "CREATE TABLE sound (id int PRIMARY KEY)",
    "CREATE TABLE fleeting (id int PRIMARY KEY)",
    "ALTER TABLE fleeting SET UNLOGGED",
    "CREATE TABLE nameless (a int)",
    "CREATE TABLE sifted (id int PRIMARY KEY)",
    "CREATE TABLE made (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
    "CREATE PUBLICATION shapelog FOR TABLE nameless, sifted WHERE (id > 1), made",
    "SELECT pg_create_logical_replication_slot('somebody', 'pgoutput')",
    "SELECT pg_logical_emit_message(false, 'tests', repeat('x', 8000000))",
)
NAMES = ("sound", "fleeting", "nameless", "sifted", "made", "nowhere")

WRONG = {
    ("slots_left", Level.FAULT, "all 1 replication slots"),
    ("walsenders_left", Level.FAULT, "all 1 walsenders"),
    ("tables", Level.FAULT, "no table nowhere"),
    ("tables", Level.FAULT, "unlogged"),
    ("publication", Level.FAULT, "filters"),
    ("publication", Level.INFO, "will be run"),
    ("replica_identity", Level.FAULT, "nameless is published without an identity"),
    ("generated_columns", Level.WARNING, "twice not published"),
    ("wal_room", Level.WARNING, "would be lost"),
    ("wal_sender_timeout", Level.WARNING, "is 0"),
    ("transactions", Level.WARNING, "forgotten"),
    ("clock", Level.WARNING, "90 s apart"),
    ("slot", Level.INFO, "no slot 'shapelog'"),
}


async def test_each_fault_of_a_server_is_seen(
    own_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"max_replication_slots": "1", "max_wal_senders": "1", "max_slot_wal_keep_size": "1MB"}
    database = new_database(own_server("18", wal_sender_timeout="0", **settings))
    database.execute(*TABLES)
    with psycopg.connect(database.conninfo()) as writer:
        writer.execute("INSERT INTO sound VALUES (1)")
        writer.execute("PREPARE TRANSACTION 'forgotten'")
    ours = SimpleNamespace(time=lambda: time.time() + 90, monotonic=time.monotonic)
    monkeypatch.setattr("cdc.source.server_facts.time", ours)
    with closing(psycopg.connect(database.conninfo(replication="database"), autocommit=True)) as walsender:
        assert walsender.info.backend_pid
        connection = await connect_sql(database.conninfo(), "tests")
        try:
            facts = await read_facts(connection, "shapelog", "shapelog", NAMES, "managed", sample_seconds=0)
        finally:
            await connection.close()
    found = run_checks(facts)
    unseen = {
        (check, level.name, text)
        for check, level, text in WRONG
        if not any((one.check, one.level) == (check, level) and text in one.text for one in found)
    }
    assert not unseen, [(one.check, one.level.name, one.text) for one in found]
