"""What users' own tests get from us: a sandbox, as a fixture and as a context; the page about it is run."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cdc.testing import Sandbox, sandbox
from tests.examples import blocks
from tests.postgres import Database
from tests.tree import ROOT

pytest_plugins = ["cdc.testing.fixtures"]

THEIRS = "postgresql://postgres@127.0.0.1/postgres"
"""The server in the page's last example."""

IN_THEIRS = """
import os
from psycopg.conninfo import conninfo_to_dict

def test_it(shapelog):
    wanted = conninfo_to_dict(os.environ["DATABASE_URL"])
    assert conninfo_to_dict(shapelog.database_url)["port"] == wanted["port"]
"""

SLOTS = r"SELECT 1 FROM pg_replication_slots WHERE slot_name LIKE 'shapelog\_test\_%'"


def test_rows_come_to_a_client_and_a_killed_server_loses_none(shapelog: Sandbox) -> None:
    shapelog.execute("CREATE TABLE items (id int PRIMARY KEY, name text)", "INSERT INTO items VALUES (1, 'one')")
    items = shapelog.shape("items", where="id < $1", params={1: "100"})
    assert items.rows == [{"id": 1, "name": "one"}]
    shapelog.execute("INSERT INTO items SELECT n, 'many' FROM generate_series(2, 150) n")
    shapelog.kill()
    shapelog.caught_up()
    items.catch_up()
    assert len(items.rows) == 99
    status = shapelog.status()
    assert status is not None
    assert [shape["table"] for shape in status["shapes"]] == ["public.items"]


def test_nothing_is_left_of_a_sandbox_and_two_of_one_server_do_not_meet(newest_database: Database) -> None:
    where = newest_database.conninfo()
    with sandbox(where) as one, sandbox(where) as other:
        for number, box in enumerate((one, other)):
            box.execute("CREATE TABLE items (id int PRIMARY KEY)")
            box.execute("INSERT INTO items VALUES (%s)", values=[number])
            assert box.add("items")["table"].endswith("items")
        assert [box.shape("items").rows for box in (one, other)] == [[{"id": 0}], [{"id": 1}]]
        folder = one.folder
        assert len(newest_database.execute(SLOTS)) == 2
    assert not newest_database.execute(SLOTS)
    assert not folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(one.database_url)


def test_the_page_about_tests_is_right(tmp_path: Path, newest_database: Database) -> None:
    *files, override = [block.text for block in blocks("docs/testing.md", "python")]
    assert [text.split()[1] for text in files] == ["conftest.py", "test_orders.py", "test_without_pytest.py"]
    assert override.count(THEIRS) == 1
    where = newest_database.conninfo()
    conftest, *tests = files
    for folder, fixtures in (("ours", conftest), ("theirs", conftest + override.replace(THEIRS, where))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "conftest.py").write_text(fixtures)
    for text in tests:
        (tmp_path / "ours" / text.split()[1]).write_text(text)
    (tmp_path / "theirs/test_it.py").write_text(IN_THEIRS)
    for folder, passed in (("ours", "3 passed"), ("theirs", "1 passed")):
        given = {"DATABASE_URL": where, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        found = subprocess.run(
            command,
            cwd=tmp_path / folder,
            env=os.environ | given,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert found.returncode == 0, found.stdout + found.stderr
        assert passed in found.stdout
