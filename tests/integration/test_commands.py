"""The commands, as a person starts them: against real servers, with their exit status."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from tests.postgres import Database
from tests.waiting import until

SECONDS = 40


def shapelog(*arguments: str, database: Database, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"DATABASE_URL": database.conninfo(), "COLUMNS": "200"} | more
    command = [sys.executable, "-c", "from cdc.cli import main; main()", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


@contextmanager
def watching(database: Database, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A watch that has begun; its first lines are read."""
    environment = os.environ | {"DATABASE_URL": database.conninfo()}
    process = subprocess.Popen(
        [sys.executable, "-c", "from cdc.cli import main; main()", "watch", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("watching from"):
                    break
                assert not line.startswith("shapelog:"), line
            yield process
        finally:
            process.kill()


def left_behind(database: Database) -> list[str]:
    return [*database.slots(), *(row[0] for row in database.execute("SELECT pubname::text FROM pg_publication"))]


def test_watch_prints_changes_and_leaves_nothing(database: Database) -> None:
    database.execute("CREATE TABLE t (i int PRIMARY KEY, text text)")
    with watching(database, "t", "--count", "4") as process:
        database.execute(
            "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
            "UPDATE t SET text = 'two' WHERE i = 2",
            "DELETE FROM t WHERE i = 1",
        )
        out, _ = process.communicate(timeout=SECONDS)
    rows = [line.split("  ", 2)[2] for line in out.splitlines()]
    assert [row.split() for row in rows] == [
        ["insert", "public.t", "i='1'", "text='one'"],
        ["insert", "public.t", "i='2'", "text=NULL"],
        ["update", "public.t", "i='2'", "text='two'"],
        ["delete", "public.t", "i='1'"],
    ]
    assert process.returncode == 0
    until(lambda: not left_behind(database), "slot and publication to be gone")


def test_watch_prints_json_lines_until_it_is_interrupted(database: Database) -> None:
    database.execute("CREATE TABLE t (i int PRIMARY KEY, big text)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    with watching(database, "--json") as process:
        database.execute("INSERT INTO t VALUES (1, repeat('x', 10000))", "UPDATE t SET i = 2", "TRUNCATE t")
        assert process.stdout is not None
        insert, update, truncate = (orjson.loads(process.stdout.readline()) for _ in range(3))
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert insert["new"] == {"i": "1", "big": "x" * 10000}
    assert (update["new"], update["old"]["i"], update["not_sent"]) == ({"i": "2"}, "1", ["big"])
    assert (truncate["kind"], truncate["new"], truncate["table"]) == ("truncate", None, "public.t")
    assert insert["tx"] < update["tx"] < truncate["tx"]
    until(lambda: not left_behind(database), "slot and publication to be gone")


def test_a_named_slot_goes_on_where_the_last_watch_ended(database: Database) -> None:
    database.execute("CREATE TABLE t (i int PRIMARY KEY)")
    with watching(database, "--slot", "kept", "--count", "1") as process:
        database.execute("INSERT INTO t VALUES (1)")
        first, _ = process.communicate(timeout=SECONDS)
    database.execute("INSERT INTO t VALUES (2)")
    until(lambda: not database.slots()["kept"]["active"], "the first watch to have left")
    with watching(database, "--slot", "kept", "--count", "3", "--json") as process:
        database.execute("INSERT INTO t VALUES (3)")
        second, _ = process.communicate(timeout=SECONDS)
    assert "i='1'" in first
    assert [orjson.loads(line)["new"]["i"] for line in second.splitlines()] == ["1", "2", "3"]
    assert left_behind(database) == ["kept", "kept"], "the slot and its publication"


def test_a_watch_that_is_told_to_end_leaves_nothing(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY)")
    for number in (signal.SIGTERM, signal.SIGHUP):
        with watching(newest_database) as process:
            process.send_signal(number)
            assert process.wait(SECONDS) == 128 + number
        until(lambda: not left_behind(newest_database), "slot and publication to be gone")


def test_watch_sweeps_up_after_one_that_was_killed(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY)")
    with watching(newest_database) as process:
        process.kill()
        process.wait(SECONDS)
    until(lambda: not newest_database.slots(), "the temporary slot to end with its connection")
    assert left_behind(newest_database), "the publication of the killed one"
    with watching(newest_database, "--count", "1") as process:
        newest_database.execute("INSERT INTO t VALUES (1)")
        process.communicate(timeout=SECONDS)
    until(lambda: not left_behind(newest_database), "both publications to be gone")


def test_watch_alters_no_table(newest_database: Database) -> None:
    newest_database.execute(
        "CREATE TABLE keyless (i int)",
        "CREATE TABLE keyed (i int PRIMARY KEY)",
        "CREATE TABLE root (i int) PARTITION BY RANGE (i)",
        "CREATE TABLE leaf PARTITION OF root DEFAULT",
    )
    refused = shapelog("watch", "keyless", database=newest_database)
    assert refused.returncode == 2
    assert 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL;' in refused.stderr
    with watching(newest_database):
        newest_database.execute("INSERT INTO keyless VALUES (1)", "UPDATE keyless SET i = 2", "DELETE FROM keyless")
        newest_database.execute("INSERT INTO root VALUES (1)", "UPDATE root SET i = 2")


def test_a_mistake_is_a_message_and_no_traceback(newest_database: Database) -> None:
    for arguments in (["watch", "nowhere"], ["watch", "--publication", "none"]):
        failed = shapelog(*arguments, database=newest_database)
        assert failed.returncode == 2
        assert failed.stderr.startswith("shapelog: [")
        assert failed.stderr.count("\n") == 1
    unreachable, unreadable = "postgresql://nobody:s3cret@127.0.0.1:1/db", "postgresql://nobody:s3cret%zz@host/db"
    for url, code in ((unreachable, "unreachable"), (unreadable, "refused"), ("this is no url", "refused")):
        for command in ("doctor", "watch"):
            failed = shapelog(command, "--database", url, database=newest_database)
            assert (failed.returncode, failed.stdout) == (2, "")
            assert failed.stderr.startswith(f"shapelog: [{code}] ")
            assert failed.stderr.count("\n") == 1
            assert "s3cret" not in failed.stderr


def test_a_reader_who_has_seen_enough_is_no_error(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int PRIMARY KEY)")
    with watching(newest_database) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        newest_database.execute("INSERT INTO t VALUES (1)")
        assert process.wait(SECONDS) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""
    until(lambda: not left_behind(newest_database), "slot and publication to be gone")


def test_plain_text_where_nobody_sees_colours(newest_database: Database) -> None:
    seen = shapelog("doctor", database=newest_database)
    assert "\x1b" not in seen.stdout
    assert "fit to be followed" in seen.stdout


def test_the_doctor_is_content_with_a_fit_server(database: Database) -> None:
    database.execute("CREATE TABLE t (i int PRIMARY KEY)")
    seen = shapelog("doctor", "t", "--json", database=database)
    report = orjson.loads(seen.stdout)
    assert report["fit"], report
    assert seen.returncode == 0
    assert left_behind(database) == [], "it changes nothing"


def test_what_the_doctor_prints_for_a_poor_role_mends_it(database: Database) -> None:
    """Its statements are run as they are printed, until it finds nothing more."""
    role = f"poor_{database.name}"
    with database.connect() as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            admin.execute("CREATE TABLE t (i int)")
            arguments = ["doctor", "t", "--json", "--manual"]
            before = shapelog(*arguments, database=database, DATABASE_URL=database.conninfo(user=role))
            assert before.returncode == 1
            statements = [line for found in orjson.loads(before.stdout)["findings"] for line in found["mend"]]
            assert any("REPLICATION" in statement for statement in statements)
            for statement in statements:
                admin.execute(statement.encode())
            after = shapelog(*arguments, database=database, DATABASE_URL=database.conninfo(user=role))
            assert orjson.loads(after.stdout)["fit"], after.stdout
            assert after.returncode == 0
        finally:
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


def test_the_doctor_speaks_to_people_too(newest_database: Database) -> None:
    newest_database.execute("CREATE TABLE t (i int)")
    seen = shapelog("doctor", "t", "--manual", database=newest_database)
    assert seen.returncode == 1
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL;' in seen.stdout
    assert "not fit to be followed yet" in seen.stdout
