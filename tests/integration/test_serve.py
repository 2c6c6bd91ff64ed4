"""`shapelog serve` as a process: it captures, answers, stops in time, and loses nothing when it is killed."""

import asyncio
import random
import re
import signal
import socket
import sys
import time
from pathlib import Path

import httpx
import orjson
import pytest

from cdc.limits import PROGRAM_STOP_SECONDS_MAX
from cdc.serve import CUT_SHORT
from cdc.telemetry.metrics import ProgramMetric
from shapes.http.metrics import HttpMetric
from storage.metrics import Metric
from tests.postgres import Database
from tests.served import refused, serving, shapelog, tailing
from tests.waiting import until

EVERYWHERE = "0.0.0.0"  # noqa: S104 - that it must be meant is what is tested
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text, part int)"
FILL = "INSERT INTO items SELECT g, 'v' || g, g % 10 FROM generate_series(1, 200) g"


def table(database: Database) -> dict[str, dict[str, str | None]]:
    rows = database.execute("SELECT id::text, v, part::text FROM items")
    return {row[0]: dict(zip(("id", "v", "part"), row, strict=True)) for row in rows}


def test_it_captures_tells_its_status_and_stops_in_time(database: Database, tmp_path: Path) -> None:
    database.execute(ITEMS, FILL)
    with serving(database, tmp_path / "data") as served:
        served.active()
        shape = served.add("items")
        assert (shape["name"], shape["rows"], shape["state"]) == ("items", 200, "ready")
        served.add("items", "--name", "third", "--where", "part = $1", "--param", "3", "--columns", "id,part")
        database.execute("UPDATE items SET part = part + 1 WHERE id <= 50", "DELETE FROM items WHERE id = 7")
        served.caught_up()
        assert served.folded("items") == table(database)
        third = {key: row for key, row in table(database).items() if row["part"] == "3"}
        assert served.folded("third").keys() == third.keys()

        status = served.status()
        assert status["state"] == "active"
        assert status["held_by"] is None
        assert status["confirmed_flush_lsn"] == status["slot"]["confirmed_flush_lsn"]
        items = served.shape("items")
        assert items["visible"] == items["durable"] != "0_inf"
        assert items["rows"] == 200 + 50 + 1
        assert items["bytes"] > 0

        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < 5
    assert not served.told("Traceback")
    slot = database.slots()["shapelog"]
    assert slot["confirmed_flush_lsn"] is not None
    assert not slot["active"]


def test_what_was_killed_goes_on_and_loses_nothing(newest_database: Database, tmp_path: Path) -> None:
    """Kill -9 at random moments of a load, then fold."""
    database, chance = newest_database, random.Random(7)
    database.execute(ITEMS, FILL)
    number = 1000
    for life in range(5):
        with serving(database, tmp_path / "data") as served:
            served.active()
            if not life:
                served.add("items")
            for _ in range(chance.randrange(1, 30)):
                number += 1
                with database.connect() as connection:
                    size = chance.choice((9, 70_000))
                    connection.execute("INSERT INTO items VALUES (%s, repeat('x', %s), 3)", [number, size])
                    connection.execute("UPDATE items SET part = part + 1 WHERE id %% 20 = %s", [number % 20])
            served.process.kill()
            served.process.wait()
    with serving(database, tmp_path / "data") as served:
        served.caught_up()
        assert served.folded("items") == table(database)
        assert served.stop() == 0


def test_the_secret_is_asked_of_everybody(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS)
    with serving(newest_database, tmp_path / "data", "--secret", "s3crët") as served:
        assert httpx.get(f"{served.url}/v1/health").status_code in {200, 202}
        assert httpx.get(f"{served.url}/").status_code == 200
        guarded = ("/metrics", "/v1/admin/status", "/v1/%61dmin/status", "/v1//health", "/v1/health/", "/v1/nothing")
        for path in guarded:
            assert httpx.get(served.url + path).status_code == 401, path
        assert httpx.delete(f"{served.url}/v1/admin/shapes/items").status_code == 401
        assert httpx.post(f"{served.url}/v1/admin/shapes", json={"table": "items"}).status_code == 401
        assert httpx.get(f"{served.url}/metrics?secret=wrong").status_code == 401
        assert httpx.get(f"{served.url}/metrics", params={"secret": "s3crët"}).status_code == 200
        denied = served.run("shapes", "list")
        assert (denied.returncode, denied.stderr.startswith("shapelog: [secret_refused]")) == (2, True)
        assert served.run("shapes", "list", "--secret", "s3crët").returncode == 0
        assert not served.told("s3cr")


def test_a_host_that_strangers_reach_needs_a_secret(newest_database: Database, tmp_path: Path) -> None:
    assert refused(newest_database, tmp_path / "data", "--host", EVERYWHERE).startswith("shapelog: [address_open]")
    with serving(newest_database, tmp_path / "data", "--host", EVERYWHERE, "--insecure") as served:
        assert served.url


def test_a_taken_port_and_a_taken_folder_are_clear(newest_database: Database, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused(newest_database, tmp_path / "data", "--port", port).startswith("shapelog: [address_taken]")
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        assert refused(newest_database, tmp_path / "data").startswith("shapelog: [folder_in_use]")
        assert served.stop() == 0
    line = refused(newest_database, tmp_path / "data", "--slot", "another")
    assert line.startswith("shapelog: [slot_differs]")
    assert "'shapelog'" in line


def test_a_database_that_makes_no_sense_is_refused_before_anything_begins(
    newest_database: Database, tmp_path: Path
) -> None:
    line = refused(newest_database, tmp_path / "data", "--database-url", "postgresql://%zz")
    assert line.startswith("shapelog: [refused]")
    assert not (tmp_path / "data").exists()


def test_it_waits_for_a_server_that_is_away_and_says_so(newest_database: Database, tmp_path: Path) -> None:
    url = newest_database.conninfo(host="127.0.0.1", port=1)
    with serving(newest_database, tmp_path / "data", DATABASE_URL=url) as served:
        until(lambda: served.status()["connection"]["fault"], "a fault of the connection")
        answer = served.get("/v1/health")
        assert (answer.status_code, answer.json()) == (202, {"status": "waiting"})
        added = served.run("shapes", "add", "items")
        assert (added.returncode, "connection_fault" in added.stderr) == (2, True)
        assert "NOT CONNECTED" in served.run("status").stdout
        assert served.stop(signal.SIGINT) == 0


def test_events_are_one_json_object_a_line(newest_database: Database, tmp_path: Path) -> None:
    with serving(newest_database, tmp_path / "data", "--log-format", "json") as served:
        served.active()
        assert served.stop() == 0
    events = [orjson.loads(line) for line in served.lines]
    assert {"time", "level", "logger", "message"} <= events[0].keys()
    assert any("stopped" in event["message"] for event in events)


def test_metrics_have_every_name_once(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, FILL)
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        served.add("items")
        newest_database.execute("UPDATE items SET v = 'w' WHERE id = 1")
        served.caught_up()
        until(lambda: "shapelog_slot_retained_wal_bytes" in served.get("/metrics").text, "a look at the slot")
        text = served.get("/metrics").text
    samples = [re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")]
    seldom = {
        ProgramMetric.ENDED,
        ProgramMetric.BIRTHS,
        ProgramMetric.FOLDS_FAILED,
        ProgramMetric.SLOT_SAFE_BYTES,
        ProgramMetric.SLOT_SECONDS_LEFT,
        ProgramMetric.WAL_RATE,
        ProgramMetric.BUDGET_BYTES,
        ProgramMetric.BUDGET_USED,
        Metric.READS,
        Metric.READ_ROWS,
        Metric.FLUSH_FAILURES,
    }
    assert {one.value for one in (*ProgramMetric, *Metric, *HttpMetric) if one not in seldom} <= set(samples)
    lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_a_birth_can_be_followed_and_removed_while_it_waits(newest_database: Database, tmp_path: Path) -> None:
    """Somebody writes to the table, uncommitted: publishing waits for him, and says whom it waits for."""
    newest_database.execute(ITEMS, FILL)
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        with newest_database.connect() as writer:
            writer.execute("BEGIN")
            writer.execute("INSERT INTO items VALUES (1000, 'open', 1)")
            answer = served.run("shapes", "add", "items", "--no-wait")
            assert answer.returncode == 0, answer.stderr
            until(lambda: served.status()["births"][0]["step"], "the birth")
            assert served.run("shapes", "remove", "items").returncode == 0
            assert served.status()["births"] == []
            writer.execute("ROLLBACK")
        assert served.add("items")["rows"] == 200


def test_a_shape_can_be_removed_while_it_is_copied(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS, "INSERT INTO items SELECT g, repeat('v', 500), 1 FROM generate_series(1, 150000) g")
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        assert served.run("shapes", "add", "items", "--no-wait").returncode == 0
        until(lambda: [one for one in served.status()["shapes"] if one["state"] == "copying"], "the copy")
        assert served.run("shapes", "remove", "items").returncode == 0
        assert served.status()["shapes"] == []
        newest_database.execute("DELETE FROM items WHERE id > 100")
        assert served.add("items")["rows"] == 100
        assert served.process.poll() is None


def test_every_field_at_fault_is_named(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS)
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        answer = served.run("shapes", "add", "items", "--where", "nothing = 1", "--columns", "v", "--replica", "half")
        assert answer.returncode == 2
        assert [line.partition(":")[0] for line in answer.stderr.splitlines()][:3] == ["columns", "where", "replica"]
        missing = served.run("shapes", "add", "nowhere")
        assert missing.stderr.startswith("table: ")
        page = httpx.post(f"{served.url}/v1/admin/shapes", content=b'{"table": "items"}')
        assert (page.status_code, page.json()["error"]["fields"].keys()) == (400, {"body"})
        served.add("items")
        taken = served.run("shapes", "add", "items", "--columns", "id")
        assert "items_2" in taken.stderr
        assert served.add("items")["handle"] == served.shape("items")["handle"]
        for arguments in (["show", "nobody"], ["remove", "nobody"]):
            assert "[unknown_shape]" in served.run("shapes", *arguments).stderr
    silent = shapelog("shapes", "list", "--url", "http://127.0.0.1:1")
    assert (silent.returncode, silent.stderr.startswith("shapelog: [server_silent]")) == (2, True)


def test_status_tells_the_same_of_a_server_and_of_its_folder(newest_database: Database, tmp_path: Path) -> None:
    database = newest_database
    database.execute(ITEMS, FILL)
    with serving(database, tmp_path / "data") as served:
        served.active()
        served.add("items")
        database.execute("INSERT INTO items SELECT g, repeat('x', 1000), 1 FROM generate_series(1000, 9000) g")
        served.caught_up()
        shown, (running,) = served.run("status"), served.status()["shapes"]
        assert (shown.returncode, "nothing holds G" in shown.stdout) == (0, True)
        assert served.stop() == 0
    offline = shapelog("status", "--data-dir", tmp_path / "data", "--json", DATABASE_URL=database.conninfo())
    facts = orjson.loads(offline.stdout)
    assert facts["global_flushed_lsn"] is not None
    assert facts["slot"]["exists"]
    (shape,) = facts["shapes"]
    told = ("handle", "name", "table", "where", "state", "visible", "durable", "rows")
    assert [shape[fact] for fact in told] == [running[fact] for fact in told]
    assert (shape["rows"], shape["visible"]) == (200 + 8001, shape["durable"])


@pytest.mark.parametrize("source", ["server", "folder"])
def test_tail_follows_a_shape_over_its_successor(newest_database: Database, tmp_path: Path, source: str) -> None:
    database = newest_database
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'a', 1)")
    with serving(database, tmp_path / "data") as served:
        served.active()
        served.add("items")
        where = ["--data-dir", str(tmp_path / "data")] if source == "folder" else ["--url", served.url]
        with tailing("items", "--after", "-1", *where) as (lines, notes):  # each grows as the process writes
            until(lambda: len(lines) == 1, "the base")
            database.execute("UPDATE items SET v = 'b c' WHERE id = 1")
            until(lambda: len(lines) == 2, f"the update: {lines}")
            database.execute("ALTER TABLE items ADD COLUMN more int DEFAULT 5", "UPDATE items SET part = 2")
            until(lambda: len(lines) >= 3, f"the successor's base: {lines} {notes}")
        assert lines[0].endswith("insert id=1 v=a part=1")
        assert re.fullmatch(r'\S+ update xid:\d+ id=1 v="b c"', lines[1])
        assert lines[2].endswith('insert id=1 v="b c" part=2 more=5')
        assert any("begins anew" in note for note in notes)


def test_a_stop_beside_a_held_request_does_not_wait_for_it(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS)
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        served.add("items")

        async def hold() -> float:
            async with httpx.AsyncClient(base_url=served.url, timeout=30) as client:
                asked = asyncio.create_task(client.get("/v1/admin/shapes/items/rows?wait=20&after=0_inf"))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await asyncio.shield(asked)
                began = time.monotonic()
                served.process.send_signal(signal.SIGTERM)
                await asyncio.gather(asked, return_exceptions=True)
                return time.monotonic() - began

        assert asyncio.run(hold()) < 4
        assert served.process.wait(5) == 0


HANGING = """
import os, threading
from storage import limits
limits.BUFFER_BYTES_MAX = 2_000_000
from storage.disk import LocalDisk
sync = LocalDisk.sync
def sync_or_hang(disk, path):
    while os.path.exists(os.environ["HANGS"]):
        threading.Event().wait(0.05)
    sync(disk, path)
LocalDisk.sync = sync_or_hang
from cdc.cli import main
main()
"""
"""The program on a disk whose syncs do not return while a file is there, and with little memory for rows."""


def test_a_stop_of_the_process_beside_a_silent_disk_ends_in_time(newest_database: Database, tmp_path: Path) -> None:
    """As a crash would: what was not confirmed is sent again."""
    database, hangs = newest_database, tmp_path / "hangs"
    database.execute(ITEMS, FILL)
    program = (sys.executable, "-c", HANGING)
    with serving(database, tmp_path / "data", program=program, HANGS=str(hangs)) as served:
        served.active()
        served.add("items")
        served.caught_up()
        hangs.touch()
        database.execute("INSERT INTO items SELECT g, repeat('x', 300), 1 FROM generate_series(1001, 31000) g")

        def is_waiting() -> bool:
            found = re.search(rf"^{Metric.BUFFERED_BYTES.value} (\S+)", served.get("/metrics").text, re.MULTILINE)
            return found is not None and float(found[1]) > 0  # how many, depends: what follows has no room

        until(is_waiting, "rows that wait for a sync", 60)
        began = time.monotonic()
        assert served.stop() == CUT_SHORT
        assert time.monotonic() - began < PROGRAM_STOP_SECONDS_MAX + 2
        assert served.told("the stop was cut short")
    hangs.unlink()
    with serving(database, tmp_path / "data") as served:
        served.active()
        served.caught_up()
        assert served.folded("items") == table(database)


def test_a_start_that_cannot_be_is_one_line(tmp_path: Path, newest_database: Database) -> None:
    line = refused(newest_database, tmp_path / "data", DATABASE_URL="this is no url")
    assert line.startswith("shapelog: [refused]")
    (tmp_path / "file").write_text("")
    assert refused(newest_database, tmp_path / "file").startswith("shapelog: [shared_disk_fault]")
