"""A server whose disk is set back to an earlier moment on the same timeline; one that forgot us lawfully in a crash."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.source.attempt import Connected
from cdc.source.errors import ServerUnfit
from cdc.source.handshake import open_attempt
from cdc.source.identity import Behind, Verdict
from cdc.source.limits import HISTORY_SECONDS_MAX
from cdc.source.slot_commands import last_commit_below
from cdc.status.change_rates import ChangeRates
from cdc.status.report import StatusDesk
from cdc.status.show import show_status
from cdc.status.slot_watch import SlotWatch
from cdc.telemetry.metrics import exposition
from shapes.capture import Capture
from shapes.endings import HISTORY_REPLACED
from shapes.http.app import ShapeApp
from shapes.http.settings import HttpSettings
from shapes.service import ShapeService
from storage.catalog_records import Life
from tests.loop import Loop, looping
from tests.postgres import WANTED, Database, Server, new_database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
ALL = "SELECT id, v FROM items"
FILL = "CREATE TABLE filling AS SELECT g FROM generate_series(1, 20000) g"
"""More WAL than the old history had."""

VERSIONS = pytest.mark.parametrize("version", WANTED)


class SetBack:
    """The server's data folder, kept as it is while the server is stopped, and brought back later."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._data, self._kept = server.folder / "data", server.folder / "kept"

    def keep(self) -> None:
        self._server.stop("fast")
        subprocess.run(["cp", "-a", self._data, self._kept], check=True)
        self._server.start()

    def bring_back(self) -> None:
        self._server.stop("fast")
        shutil.rmtree(self._data)
        self._kept.rename(self._data)
        self._server.start()


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """Those of all connections."""
    seen: list[Verdict] = []
    judged = Capture._connected

    async def seeing(capture: Capture, connected: Connected) -> None:
        seen.append(connected.verdict)
        await judged(capture, connected)

    monkeypatch.setattr(Capture, "_connected", seeing)
    return seen


async def has_successor(loop: Loop, name: str, old: str) -> None:
    def is_there() -> bool:
        entry = loop.app.house.registry.named(name)
        return entry is not None and entry.handle != old and entry.shape.life is Life.READY

    await eventually(is_there, "a successor", 60)


@VERSIONS
@pytest.mark.parametrize("old", [3, 0])
@pytest.mark.parametrize("new", [3, 0])
async def test_a_history_that_is_another_one_below_g_ends_all_shapes(
    own_server: Callable[..., Server], tmp_path: Path, version: str, old: int, new: int
) -> None:
    """Each commit of the old history between the copy and G is missing in the new one, and the other way round.

    Where nobody wrote there is one all the same: each start of ours commits a message.
    """
    server = own_server(version)
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        before = await loop.add("items", "items")
        await loop.caught_up()
    kept = SetBack(server)
    kept.keep()
    async with looping(database, tmp_path) as loop:
        write(database, old, "the old history")
        database.execute("CREATE TABLE others ()")  # nothing that is followed
        await loop.caught_up()
    kept.bring_back()
    write(database, new, "the new history")
    database.execute(FILL)
    write(database, new, "the new history, above G", first=60)
    async with looping(database, tmp_path) as loop:
        registry = loop.app.house.registry
        await has_successor(loop, "items", before.handle)
        ended = registry.find(before.handle)
        assert ended is not None
        assert (ended.shape.life, ended.shape.reason) == (Life.ENDED, HISTORY_REPLACED)
        await loop.caught_up(60)
        assert loop.rows(loop.living("items")) == loop.table(ALL)
        after = loop.living("items").handle
    async with looping(database, tmp_path) as loop:
        write(database, 1, "afterwards", first=90)
        await loop.caught_up(60)
        assert loop.living("items").handle == after, "once is enough"
        assert loop.rows(loop.living("items")) == loop.table(ALL)


@VERSIONS
async def test_a_server_that_is_set_back_while_we_run_is_noticed(
    own_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """By the connection that comes when the new history is longer than the old one; before, it would be refused."""
    is_written = asyncio.Event()
    is_written.set()

    async def open_then(*settings: Any) -> Any:
        await is_written.wait()
        return await open_attempt(*settings)

    monkeypatch.setattr("cdc.source.session.open_attempt", open_then)
    server = own_server(version)
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    kept = SetBack(server)
    async with looping(database, tmp_path) as loop:
        before = await loop.add("items", "items")
        await loop.caught_up()
        await asyncio.to_thread(kept.keep)
        await loop.caught_up(60)
        write(database, 2, "the old history")
        await loop.caught_up(60)
        session = loop.app.house.session
        async with loop.app.house.turn:  # what comes meanwhile is the server's, not ours to hurry for

            def restore() -> None:
                kept.bring_back()
                write(database, 2, "the new history")
                database.execute(FILL)

            made = session.attempts_count
            is_written.clear()
            await asyncio.to_thread(restore)
            is_written.set()
        await eventually(lambda: session.attempts_count > made, "a new connection", 60)
        await has_successor(loop, "items", before.handle)
        await loop.caught_up(60)
        assert loop.rows(loop.living("items")) == loop.table(ALL)


@VERSIONS
async def test_a_crash_of_the_server_that_forgets_a_confirmation_ends_nothing(
    own_server: Callable[..., Server], tmp_path: Path, verdicts: list[Verdict], version: str
) -> None:
    """It writes slots at checkpoints, and there is none between the confirmation and the crash."""
    server = own_server(version, checkpoint_timeout="1h")
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        before = await loop.add("items", "items")
        await loop.caught_up()
        database.execute("CHECKPOINT")
        write(database, 3, "confirmed and forgotten")
        database.execute("CREATE TABLE others ()")
        await loop.caught_up()
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.to_thread(server.start)
        write(database, 1, "after the crash", first=60)
        await loop.caught_up(60)
        assert isinstance(verdicts[-1], Behind)
        assert loop.living("items").handle == before.handle
        assert loop.rows(loop.living("items")) == loop.table(ALL)
    server.stop("immediate")
    server.start()
    async with looping(database, tmp_path) as loop:
        await loop.caught_up(60)
        assert loop.living("items").handle == before.handle


async def test_a_history_that_is_looked_up_shows_until_it_is(
    own_server: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing moves meanwhile, which may be an hour: whoever asks is told what it is that he waits for."""
    found = asyncio.Event()

    async def found_then(*asked: Any) -> int | None:
        await found.wait()
        return await last_commit_below(*asked)

    monkeypatch.setattr("cdc.source.looking_back.last_commit_below", found_then)
    server = own_server(max(WANTED), checkpoint_timeout="1h")
    database = new_database(server)
    database.execute(ITEMS)
    async with looping(database, tmp_path) as loop:
        await loop.add("items", "items")
        database.execute("CHECKPOINT")
        write(database, 3, "confirmed, and maybe saved with the checkpoint")
        await loop.caught_up()
        database.execute("CREATE TABLE others ()")  # which is confirmed by itself, and forgotten for certain
        await loop.caught_up()
    server.stop("immediate")
    server.start()
    async with looping(database, tmp_path) as loop:
        app = loop.app
        watch = SlotWatch(database.conninfo(), "shapelog", "tests")
        service = ShapeService(app.house, app.nursery)
        desk = StatusDesk(app, service, watch, ChangeRates())
        async with watch.running():
            await eventually(lambda: app.house.session.look is not None, "the histories to be compared", 60)
            status = await desk.status()
            look = status["connection"]["look"]
            show_status(status)
            numbers = (await exposition(app, service, desk, ShapeApp(service, HttpSettings()))()).decode()
            [waited] = re.findall(r"^shapelog_source_look_seconds (\S+)$", numbers, re.MULTILINE)
            assert float(waited) > look["seconds"]
            assert status["state"] == "waiting"
            assert look["pid"] in [pid for (pid,) in database.execute("SELECT pid FROM pg_stat_activity")]
            assert look["to_lsn"] == status["global_flushed_lsn"]
            assert look["from_lsn"] == status["slot"]["restart_lsn"]
            assert 0 < look["seconds"] < look["seconds_max"] == HISTORY_SECONDS_MAX
            found.set()
            await loop.caught_up(60)
            assert (await desk.status())["connection"]["look"] is None
        assert loop.rows(loop.living("items")) == loop.table(ALL)
    said = capsys.readouterr().out
    assert "COMPARING  the slot is behind what was confirmed" in said
    assert f"its process {look['pid']} decodes the WAL" in said
    assert f"from {look['from_lsn']} to {look['to_lsn']}" in said
    assert f"since {look['since']}" in said
    assert "NOT CONNECTED" not in said


@VERSIONS
async def test_a_history_that_the_server_may_not_look_up_is_told_with_the_way_out(
    own_server: Callable[..., Server], tmp_path: Path, version: str
) -> None:
    """It keeps all that it decodes in a temporary file. Asking again and again would meet the same limit each time."""
    server = own_server(version, checkpoint_timeout="1h", temp_file_limit="1MB", work_mem="64kB")
    database = new_database(server)
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'before')")
    async with looping(database, tmp_path) as loop:
        before = await loop.add("items", "items")
        await loop.caught_up()
        database.execute("CHECKPOINT")
        database.execute("INSERT INTO items SELECT g, repeat(md5(g::text), 100) FROM generate_series(2, 3000) g")
        await loop.caught_up()
    server.stop("immediate")
    server.start()
    with pytest.raises(ServerUnfit, match="temporary file size") as refused:
        async with looping(database, tmp_path) as loop:
            await loop.caught_up(60)
    mend = 'ALTER ROLE "postgres" SET temp_file_limit = -1;'
    assert mend in refused.value.advice
    database.execute(mend)
    async with looping(database, tmp_path) as loop:
        await loop.caught_up(60)
        assert loop.living("items").handle == before.handle
        assert loop.rows(loop.living("items")) == loop.table(ALL)


def write(database: Database, count: int, v: str, first: int = 2) -> None:
    """A transaction for each row."""
    with database.connect() as connection:
        for number in range(first, first + count):
            connection.execute("INSERT INTO items VALUES (%s, %s)", (number, v))
