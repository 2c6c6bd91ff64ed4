"""A database and a server of shapelog beside it, for a test; all of it is real, and gone when the test ends.

A loop in a thread of its own runs the processes, so a test may be written with or without `async`.
"""

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from anyio.from_thread import BlockingPortal, start_blocking_portal
from psycopg.conninfo import conninfo_to_dict

from cdc.embedded.server import Server
from cdc.source.lsn import parse_lsn
from cdc.testing.databases import new_database, running_postgres
from cdc.testing.patience import until
from shapes.client import Shape, ShapeStream

T = TypeVar("T")

CAUGHT_UP_SECONDS_MAX: Final = 30.0
"""Until what was committed is served and on disk; a tenth of a second on an idle machine."""


class Sandbox:
    """What a test holds in its hands. Made by `sandbox`."""

    def __init__(self, database_url: str, server: Server, portal: BlockingPortal) -> None:
        self.database_url = database_url
        """Of a database with nothing in it; the role may do everything."""
        self._server = server
        self._portal = portal
        self._connection = psycopg.connect(database_url, autocommit=True)
        self._shapes: list[Shape] = []

    @property
    def url(self) -> str:
        """Of the server; shapes are at `/v1/shape` there."""
        return self._server.url

    @property
    def folder(self) -> Path:
        """The server's data folder, for `materialize` and the commands that look at logs."""
        return self._server.folder

    def execute(self, *statements: LiteralString, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own; the rows of the last one."""
        for statement in statements[:-1]:
            self._connection.execute(statement)
        found = self._connection.execute(statements[-1], values)
        return found.fetchall() if found.description else []

    def add(self, table: str, **asked: Any) -> dict[str, Any]:
        """Add a shape that is kept, as `shapelog shapes add` does; `asked`: `name`, `where`, `columns`, .."""
        return self._run(lambda: self._server.add(table=table, **asked))

    def shape(self, table: str, *, where: str | None = None, params: Mapping[int, str] | None = None) -> Shape:
        """A client's shape with the rows that are there; `catch_up()` brings it up to date again."""
        shape = Shape(ShapeStream(f"{self.url}/v1/shape", table, where=where, params=params))
        self._shapes.append(shape)
        self.caught_up()
        shape.catch_up()
        return shape

    def caught_up(self) -> None:
        """Return when all that is committed now can be read, and is on disk."""
        [(end,)] = self._connection.execute("SELECT pg_current_wal_lsn()::text").fetchall()

        def is_flushed() -> bool:
            status = self.status()
            return status is not None and parse_lsn(status["global_flushed_lsn"]) >= parse_lsn(end)

        until(is_flushed, f"{end} to be flushed", CAUGHT_UP_SECONDS_MAX)

    def status(self) -> dict[str, Any] | None:
        """What `shapelog status --json` says; None while the server does not answer."""
        return self._run(self._server.status)

    def kill(self) -> None:
        """SIGKILL, and a new start: what your code does meanwhile is what you want to see."""
        self._run(self._server.kill)
        self._run(self._server.start)
        self._run(self._server.active)

    def close(self) -> None:
        """Let connections go."""
        for shape in self._shapes:
            shape.close()
        self._connection.close()

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._portal.call(work)


@contextmanager
def sandbox(postgres_url: str | None = None, options: Sequence[str] = ()) -> Iterator[Sandbox]:
    """A database, and a server that follows it. `options` are further ones of `shapelog serve`.

    `postgres_url` leads to a Postgres that is there already: several sandboxes may share one. It must have
    `wal_level = logical`, and the role be a superuser. Without it one is started.
    """
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        where = postgres_url or stack.enter_context(portal.wrap_async_context_manager(running_postgres()))
        database_url = stack.enter_context(new_database(where))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shapelog-sandbox-"))
        # Names of slots are of the whole Postgres: two sandboxes of one must not meet.
        slot = str(conninfo_to_dict(database_url)["dbname"])
        server = Server(database_url, Path(folder) / "data", ("--slot", slot, *options))
        stack.callback(portal.call, server.close)
        portal.call(server.start)
        portal.call(server.active)
        box = Sandbox(database_url, server, portal)
        stack.callback(box.close)
        yield box
