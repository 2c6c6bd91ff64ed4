"""The way out of every refusal: each is brought about on a real server, met, explained, mended, and gone on from."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import psycopg
import pytest

from storage.layout import log_folder
from tests.postgres import Database, Server, new_database
from tests.served import SHAPELOG, refused, serving, shapelog, start
from tests.waiting import until

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO items SELECT g, 'v' || g FROM generate_series(1, 200) g"
CHANGE = "UPDATE items SET v = v || '!' WHERE id % 3 = 0"


def table(database: Database) -> dict[str, dict[str, str | None]]:
    return {row[0]: {"id": row[0], "v": row[1]} for row in database.execute("SELECT id::text, v FROM items")}


def prepared(database: Database, folder: Path) -> str:
    """A folder with one shape, stopped; the shape's handle."""
    database.execute(ITEMS, FILL)
    with serving(database, folder) as served:
        served.active()
        handle: str = served.add("items")["handle"]
        database.execute(CHANGE)
        served.caught_up()
        assert served.stop() == 0
    return handle


def recover(database: Database, folder: Path, *arguments: str) -> tuple[int, str, str]:
    answer = shapelog("recover", "--data-dir", folder, *arguments, DATABASE_URL=database.conninfo())
    return answer.returncode, answer.stdout, answer.stderr


def goes_on(database: Database, folder: Path, before: str) -> None:
    """The shape is back under another handle, with the table's rows, and follows it."""
    with serving(database, folder) as served:
        until(lambda: [one for one in served.status()["shapes"] if one["state"] == "ready"], "the successor")
        database.execute(CHANGE)
        served.caught_up()
        assert served.shape("items")["handle"] != before
        assert served.folded("items") == table(database)
        assert served.stop() == 0


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drop_slot(database: Database, _: Path) -> None:
    database.execute("SELECT pg_drop_replication_slot('shapelog')")


def advance_slot(database: Database, _: Path) -> None:
    database.execute(CHANGE, "SELECT pg_replication_slot_advance('shapelog', pg_current_wal_lsn())")


def drop_publication(database: Database, _: Path) -> None:
    database.execute("DROP PUBLICATION shapelog")


def damage_stream_record(_: Database, folder: Path) -> None:
    content = bytearray((folder / "stream.json").read_bytes())
    content[20] ^= 1
    (folder / "stream.json").write_bytes(content)


def damage_progress(_: Database, folder: Path) -> None:
    (path,) = folder.glob("progress.*")
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)


@dataclass(frozen=True)
class Refusal:
    """One way to be refused."""

    cause: Callable[[Database, Path], None]
    code: str


REFUSALS = {
    "slot dropped": Refusal(drop_slot, "slot_lost"),
    "slot advanced": Refusal(advance_slot, "slot_ahead"),
    "publication dropped": Refusal(drop_publication, "not_published"),
    "stream record damaged": Refusal(damage_stream_record, "stream_record_damaged"),
    "G log damaged": Refusal(damage_progress, "corrupt_record"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_line_and_has_a_way_out(newest_database: Database, tmp_path: Path, name: str) -> None:
    database, folder, refusal = newest_database, tmp_path / "data", REFUSALS[name]
    before = prepared(database, folder)
    refusal.cause(database, folder)

    line = refused(database, folder)
    assert line.startswith(f"shapelog: [{refusal.code}]")
    assert "shapelog recover" in line

    files = contents(folder)
    status, out, _ = recover(database, folder)
    assert (status, "--resnapshot" in out) == (1, True)
    assert contents(folder) == files, "an explanation changes nothing"

    status, _, err = recover(database, folder, "--resnapshot")
    assert (status, "say --yes" in err) == (2, True)
    status, out, err = recover(database, folder, "--resnapshot", "--yes")
    assert status == 0, err
    goes_on(database, folder, before)


def test_it_works_on_each_version(database: Database, tmp_path: Path) -> None:
    before = prepared(database, tmp_path / "data")
    advance_slot(database, tmp_path)
    assert refused(database, tmp_path / "data").startswith("shapelog: [slot_ahead]")
    assert recover(database, tmp_path / "data", "--resnapshot", "--yes")[0] == 0
    goes_on(database, tmp_path / "data", before)


def test_another_database(newest_server: Server, newest_database: Database, tmp_path: Path) -> None:
    before = prepared(newest_database, tmp_path / "data")
    other = new_database(newest_server)
    try:
        other.execute(ITEMS, "INSERT INTO items VALUES (1, 'other')")
        assert refused(other, tmp_path / "data").startswith("shapelog: [other_server]")
        status, _, err = recover(other, tmp_path / "data", "--resnapshot", "--yes")
        assert (status, "--drop-slot" in err) == (2, True), "the slot belongs to the first database"
        newest_database.execute("SELECT pg_drop_replication_slot('shapelog')")
        assert recover(other, tmp_path / "data", "--resnapshot", "--yes")[0] == 0
        goes_on(other, tmp_path / "data", before)
    finally:
        other.remove()


def test_a_slot_that_nobody_knows_is_dropped_only_when_a_person_says_so(
    newest_database: Database, tmp_path: Path
) -> None:
    database, folder = newest_database, tmp_path / "data"
    database.execute(ITEMS, FILL, "SELECT pg_create_logical_replication_slot('shapelog', 'pgoutput')")
    (folder / "logs").mkdir(parents=True)
    for _ in range(2):  # a start that is refused claims nothing: the next one does not take the slot for ours
        assert refused(database, folder).startswith("shapelog: [slot_exists]")
    status, out, _ = recover(database, folder)
    assert (status, "--drop-slot" in out) == (1, True)
    assert recover(database, folder, "--resnapshot", "--yes")[0] == 2
    assert "shapelog" in database.slots()
    assert recover(database, folder, "--resnapshot", "--yes", "--drop-slot")[0] == 0
    with serving(database, folder) as served:
        served.active()
        assert served.add("items")["rows"] == 200


def test_a_damaged_catalog_is_set_aside(newest_database: Database, tmp_path: Path) -> None:
    database, folder = newest_database, tmp_path / "data"
    prepared(database, folder)
    (path,) = folder.glob("catalog.*")
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    assert refused(database, folder).startswith("shapelog: [corrupt_record]")
    status, out, _ = recover(database, folder)
    assert (status, "added again" in out) == (1, True)
    status, out, err = recover(database, folder, "--resnapshot", "--yes")
    assert (status, "set-aside" in out, "materialize --adopt" in out) == (0, True, True), err
    with serving(database, folder) as served:
        served.active()
        assert served.status()["shapes"] == []
        served.add("items")
        served.caught_up()
        assert served.folded("items") == table(database)


def test_a_damaged_log_concerns_its_shape_only(newest_database: Database, tmp_path: Path) -> None:
    database, folder = newest_database, tmp_path / "data"
    database.execute(ITEMS, FILL)
    with serving(database, folder) as served:
        served.active()
        before, other = served.add("items"), served.add("items", "--name", "keys", "--columns", "id")
        database.execute("UPDATE items SET v = repeat('x', 3000)")
        served.caught_up()
        assert served.stop() == 0
    (base,) = (folder / log_folder(before["log"])).glob("*.base")
    content = bytearray(base.read_bytes())
    content[8] ^= 0xFF
    base.write_bytes(content)
    status, out, _ = recover(database, folder, "--json")
    assert status == 1
    (trouble,) = orjson.loads(out)["troubles"]
    assert "items" in trouble["text"]
    status, _, err = recover(database, folder, "--resnapshot", "nobody")
    assert (status, "keys" in err) == (2, True), "it is told before anybody is asked whether he is sure"
    assert recover(database, folder, "--resnapshot", "items", "--yes")[0] == 0
    goes_on(database, folder, before["handle"])
    with serving(database, folder) as served:
        assert served.shape("keys")["handle"] == other["handle"]


def test_a_running_server_is_not_recovered_under_its_feet(newest_database: Database, tmp_path: Path) -> None:
    newest_database.execute(ITEMS)
    with serving(newest_database, tmp_path / "data") as served:
        served.active()
        assert recover(newest_database, tmp_path / "data")[0] == 0
        status, _, err = recover(newest_database, tmp_path / "data", "--resnapshot", "--yes")
        assert (status, err.startswith("shapelog: [folder_in_use]")) == (2, True)


def test_a_recovery_that_is_cut_short_is_run_again(newest_database: Database, tmp_path: Path) -> None:
    """The shapes have ended, the slot is gone, the stream is not forgotten: as a crash between the steps leaves it."""
    database, folder = newest_database, tmp_path / "data"
    before = prepared(database, folder)
    assert recover(database, folder, "--resnapshot", "--yes")[0] == 0  # the stream is sound: the shapes end only
    drop_slot(database, folder)
    assert refused(database, folder).startswith("shapelog: [slot_lost]")
    assert recover(database, folder, "--resnapshot", "--yes")[0] == 0
    goes_on(database, folder, before)


def test_a_slot_that_is_lost_while_the_server_runs(newest_database: Database, tmp_path: Path) -> None:
    database, folder = newest_database, tmp_path / "data"
    before = prepared(database, folder)
    with serving(database, folder) as served:
        served.active()
        with psycopg.connect(database.server.conninfo(), autocommit=True) as admin:

            def is_dropped() -> bool:
                pid = database.slots().get("shapelog", {}).get("active_pid")
                if pid is not None:
                    admin.execute("SELECT pg_terminate_backend(%s)", [pid])
                try:
                    database.execute("SELECT pg_drop_replication_slot('shapelog')")
                except psycopg.Error:
                    return False
                return True

            until(is_dropped, "the slot to be dropped")
        assert served.process.wait(40) == 2
        until(lambda: served.told("shapelog: [slot_lost]"), "its last line")
        assert any(f"--data-dir {folder} --resnapshot" in line for line in served.lines)
    assert recover(database, folder, "--resnapshot", "--yes")[0] == 0
    goes_on(database, folder, before)


def catalogs_in(folder: Path) -> list[bytes]:
    """What the folder's catalogs say: while one takes the place of another there are two, and one listed may go."""
    found = []
    for path in folder.glob("catalog.*"):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.read_bytes())
    return sorted(found)


def test_a_kill_in_a_recovery_leaves_it_to_the_next(newest_database: Database, tmp_path: Path) -> None:
    database, folder = newest_database, tmp_path / "data"
    before = prepared(database, folder)
    drop_slot(database, folder)
    command = [*SHAPELOG, "recover", "--data-dir", str(folder), "--resnapshot", "--yes"]
    for step in ("its lock", "the end of the shapes"):
        before_it = catalogs_in(folder)
        with subprocess.Popen(command, env=os.environ | {"DATABASE_URL": database.conninfo()}) as process:
            while process.poll() is None and not (folder / "LOCK").read_bytes():
                pass
            while step != "its lock" and process.poll() is None:
                if catalogs_in(folder) != before_it:
                    break
            process.send_signal(signal.SIGKILL)
    assert recover(database, folder, "--resnapshot", "--yes")[0] == 0
    goes_on(database, folder, before)


def statements_in(text: str) -> list[str]:
    """What a person is told to run."""
    return re.findall(r"(?:CREATE|ALTER) [^;]*;", text)


def test_in_manual_mode_each_statement_that_is_told_leads_on(newest_database: Database, tmp_path: Path) -> None:
    database, folder = newest_database, tmp_path / "data"
    database.execute(ITEMS, FILL)
    served = start(database, folder, "--manual")
    with served.process:
        assert served.process.wait(40) == 2
    assert served.told("shapelog: [not_published]"), served.lines
    (made,) = statements_in("\n".join(served.lines))
    database.execute(made)
    with serving(database, folder, "--manual") as served:
        served.active()
        for options, wanted in (
            ((), "ADD TABLE ONLY"),
            (("--name", "some", "--where", "id < 9"), "REPLICA IDENTITY FULL"),
        ):
            answer = served.run("shapes", "add", "items", *options)
            assert answer.returncode != 0
            (statement,) = statements_in(answer.stderr)
            assert wanted in statement, "this, and nothing that such a shape does not need"
            database.execute(statement)
            served.add("items", *options)
        database.execute(CHANGE, "DELETE FROM items WHERE id = 3")
        served.caught_up()
        assert served.folded("items") == table(database)
        assert served.folded("some") == {key: row for key, row in table(database).items() if int(key) < 9}


def test_a_setting_that_is_told_makes_the_server_fit(own_server: Callable[..., Server], tmp_path: Path) -> None:
    server = own_server(wal_level="replica")
    database, folder = new_database(server), tmp_path / "data"
    database.execute(ITEMS, FILL)
    line = refused(database, folder)
    assert line.startswith("shapelog: [server_unfit]")
    assert "ALTER SYSTEM SET wal_level = 'logical';" in line
    database.execute("ALTER SYSTEM SET wal_level = 'logical'")
    server.stop("fast")
    server.start()
    with serving(database, folder) as served:
        served.active()
        served.add("items")
        assert served.folded("items") == table(database)


def copy_files(here: Path, there: Path) -> None:
    """With their owners: a server does not run on files of somebody else."""
    subprocess.run(["cp", "-a", here, there], check=True)


def test_a_server_that_was_set_back(own_server: Callable[..., Server], tmp_path: Path) -> None:
    """Its files are a copy from before what the folder has: what was read is no part of its history any more."""
    server = own_server()
    database, folder = new_database(server), tmp_path / "data"
    before = prepared(database, folder)
    server.stop("fast")
    copy_files(server.folder, tmp_path / "copy")
    server.start()
    with serving(database, folder) as served:
        database.execute(CHANGE)
        served.caught_up()
        assert served.stop() == 0
    server.stop("fast")
    shutil.rmtree(server.folder)
    copy_files(tmp_path / "copy", server.folder)
    server.start()
    assert refused(database, folder).startswith("shapelog: [other_server]")
    assert recover(database, folder)[0] == 1
    assert recover(database, folder, "--resnapshot", "--yes")[0] == 0
    goes_on(database, folder, before)
