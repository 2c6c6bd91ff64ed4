"""A preflight on real servers: what it measures is what was written, its SQL is all that is needed, nothing stays."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from tests.postgres import Database
from tests.served import SECONDS, SHAPELOG, shapelog
from tests.waiting import until

TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, state text, note text)",
    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
    "CREATE TABLE audit (line text)",
    "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100)",
)


@contextmanager
def started(database: Database, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A preflight that runs; killed at the end if it still does."""
    process = subprocess.Popen(
        [*SHAPELOG, "preflight", "-d", database.conninfo(), *arguments],
        env=os.environ | {"DATABASE_URL": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def publications(database: Database) -> list[str]:
    return [row[0] for row in database.execute("SELECT pubname::text FROM pg_publication")]


def watching(database: Database, process: "subprocess.Popen[str]") -> None:
    """Wait until its slot streams."""

    def is_read() -> bool:
        assert process.poll() is None, process.communicate()
        return any(slot["active_pid"] and slot["temporary"] for slot in database.slots().values())

    until(is_read, "the temporary slot", SECONDS)
    until(lambda: database.value("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"), "its stream")


def nothing_stays(database: Database) -> None:
    assert publications(database) == []
    until(lambda: not database.slots(), "the temporary slot to be gone")


def reported(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, err = process.communicate(timeout=2 * SECONDS)
    assert process.returncode in (0, 1), err
    facts: dict[str, Any] = orjson.loads(out)
    return facts


def test_what_is_written_is_what_is_measured(database: Database) -> None:
    database.execute(*TABLES)
    with started(database, "--observe", "5", "--json") as process:
        watching(database, process)
        assert "CREATE PUBLICATION" not in str(publications(database))
        database.execute(
            "INSERT INTO orders SELECT g, 'new', repeat('x', 3000) FROM generate_series(1, 20) g",
            "UPDATE orders SET state = 'paid' WHERE id <= 5",
            "DELETE FROM orders WHERE id > 18",
            "INSERT INTO parts SELECT g FROM generate_series(1, 7) g",
            "INSERT INTO audit SELECT 'line' FROM generate_series(1, 30)",
            "UPDATE audit SET line = 'other'",
        )
        facts = reported(process)
    assert facts["streamed"], facts["why_not_streamed"]
    tables = {one["table"]: one for one in facts["tables"]}
    assert sorted(tables) == ["public.audit", "public.orders", "public.parts_low"]
    orders, audit, low = tables["public.orders"], tables["public.audit"], tables["public.parts_low"]
    assert [orders[name] for name in ("inserts", "updates", "deletes", "updates_unsent")] == [20, 5, 2, 5]
    assert orders["large_share"] == pytest.approx(20 * 3000 / (20 * 3000 + 27 * 100 + 200), abs=0.02)
    assert orders["toast_share"] > 0.5
    assert (low["inserts"], low["streamed"], low["replica_identity"]) == (7, True, "key")
    assert (audit["streamed"], audit["replica_identity"]) == (False, "nothing")
    assert (audit["inserts"], audit["writes_without_identity"]) == (30, 30)
    sizes = facts["transactions"]
    assert (sizes["count"], sizes["largest_changes"]) == (4, 20)
    assert 60_000 < sizes["largest_bytes"] < 65_000
    predicted = facts["predicted"]
    rate = sum(one["bytes_per_second"] for one in facts["tables"])
    assert predicted["log_bytes_per_day"] == pytest.approx(rate * 86400, rel=0.01)
    assert predicted["wal_kept_after_an_hour_bytes"] > 0
    nothing_stays(database)


def test_its_statements_are_all_that_is_missing(newest_database: Database) -> None:
    """Run as they stand, they leave nothing to say; and they were needed."""
    newest_database.execute(*TABLES)
    names = ("--observe", "1", "-d", newest_database.conninfo(), "--json", "--slot", "other")
    assert shapelog("preflight", *names).returncode == 0, "in managed mode all that is missing is ours to do"
    first = shapelog("preflight", *names, "--manual")
    assert first.returncode == 1
    statements = orjson.loads(first.stdout)["sql"]
    assert any(one.startswith("CREATE PUBLICATION") for one in statements)
    assert any("max_slot_wal_keep_size" in one for one in statements)
    ours = [one for one in statements if "ROLE" not in one and "GRANT" not in one and "SYSTEM" not in one]
    with newest_database.connect() as admin:
        for statement in ours:
            if not statement.startswith("--"):
                admin.execute(statement)
    second = shapelog("preflight", *names, "--manual")
    assert second.returncode == 0, second.stdout
    assert not any("PUBLICATION" in one or "IDENTITY" in one for one in orjson.loads(second.stdout)["sql"])


def test_a_role_that_owns_nothing_measures_by_the_servers_counts(newest_database: Database) -> None:
    newest_database.execute(*TABLES, "DROP ROLE IF EXISTS reader_of_preflight", "CREATE ROLE reader_of_preflight LOGIN")
    try:
        conninfo = newest_database.conninfo(user="reader_of_preflight")
        answer = shapelog("preflight", "--observe", "1", "-d", conninfo, "--json", "orders")
        facts = orjson.loads(answer.stdout)
        assert (answer.returncode, facts["streamed"], facts["transactions"]) == (1, False, None)
        assert "published by this role" in facts["why_not_streamed"]
        grants = [one for one in facts["sql"] if "reader_of_preflight" in one]
        assert any("REPLICATION" in one for one in grants)
        assert any("GRANT SELECT" in one for one in grants)
    finally:
        newest_database.execute("DROP ROLE reader_of_preflight")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(newest_database: Database, number: signal.Signals) -> None:
    newest_database.execute(*TABLES)
    with started(newest_database, "--observe", "600") as process:
        watching(newest_database, process)
        assert len(publications(newest_database)) == 1
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + number
        assert "Traceback" not in err
    nothing_stays(newest_database)


def test_what_a_killed_one_left_the_next_one_drops(newest_database: Database) -> None:
    newest_database.execute(*TABLES)
    with started(newest_database, "--observe", "600") as process:
        watching(newest_database, process)
        process.kill()
        process.wait(SECONDS)
    until(lambda: not newest_database.slots(), "the temporary slot to be gone")
    assert len(publications(newest_database)) == 1
    assert shapelog("preflight", "--observe", "1", "-d", newest_database.conninfo()).returncode == 0
    nothing_stays(newest_database)


def test_mistakes(newest_database: Database) -> None:
    newest_database.execute(*TABLES, "CREATE VIEW seen AS SELECT 1 AS one")
    for table, message in (("nowhere", "no such table: nowhere"), ("seen", "public.seen: it is a view")):
        answer = shapelog("preflight", "--observe", "1", "-d", newest_database.conninfo(), table)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert message in answer.stderr
