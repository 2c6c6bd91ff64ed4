"""The servers and the proxy that other tests stand on do what they promise."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.postgres import Database, Server, server_user
from tests.proxy import Proxy


def test_a_server_speaks_logical(database: Database) -> None:
    assert database.value("SHOW wal_level") == "logical"
    assert str(database.value("SHOW server_version")).split(".")[0] == database.server.version


def test_a_server_does_not_run_as_root(newest_database: Database) -> None:
    assert newest_database.server.process is not None
    owner = Path(f"/proc/{newest_database.server.process.pid}").stat().st_uid
    assert owner != 0
    assert (server_user() is None) == (owner == os.geteuid())


def test_what_was_committed_outlives_a_crash(own_database: Database) -> None:
    own_database.execute("CREATE TABLE t (i int)", "INSERT INTO t VALUES (1)")
    own_database.server.stop("immediate")
    own_database.server.start()
    assert own_database.execute("SELECT i FROM t") == [(1,)]


def test_a_proxy_cuts_and_stops(database: Database, proxy: Proxy) -> None:
    through = {"host": "127.0.0.1", "port": proxy.port}
    first = database.connect(**through)
    assert first.execute("SELECT 1").fetchone() == (1,)
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        first.execute("SELECT 1")
    with database.connect(**through) as second:
        assert second.execute("SELECT 2").fetchone() == (2,)
    proxy.stop()
    with pytest.raises(psycopg.OperationalError):
        database.connect(**through, connect_timeout=2)
    proxy.start()
    with database.connect(**through) as third:
        assert third.execute("SELECT 3").fetchone() == (3,)


def test_a_frozen_proxy_delivers_later(database: Database, proxy: Proxy) -> None:
    answered = threading.Event()
    with database.connect(host="127.0.0.1", port=proxy.port) as connection:
        proxy.freeze()

        def ask() -> None:
            connection.execute("SELECT 1")
            answered.set()

        thread = threading.Thread(target=ask)
        thread.start()
        assert not answered.wait(0.2)
        proxy.thaw()
        assert answered.wait(10)
        thread.join()


def test_servers_have_settings_of_their_own(own_server: Callable[..., Server]) -> None:
    made: Server = own_server("18", wal_level="replica")
    with psycopg.connect(made.conninfo()) as connection:
        assert connection.execute("SHOW wal_level").fetchone() == ("replica",)
