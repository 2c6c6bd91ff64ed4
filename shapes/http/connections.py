"""All connections of a server: what they share, their time limits, and their end.

Invariants:
    one timer looks at all connections, some at a time
    strangers leave descriptors for the disk: whoever is one connection too many is told so, and it ends
    after `end` there is none, and no task that answers one
"""

import asyncio
import contextlib
import logging
import time
from email.utils import formatdate

from starlette.types import ASGIApp

from shapes.http.connection import Connection
from shapes.http.connection_counts import ConnectionCounts, Cut, TurnedAway
from shapes.http.exchange import Exchange
from shapes.http.limits import (
    CONNECTIONS_LOOK_SECONDS,
    CONNECTIONS_MAX,
    CONNECTIONS_SLICE,
)
from shapes.http.taking import TakingLimits

logger = logging.getLogger(__name__)


class Connections:
    """Made in a running event loop; each new connection is a `connect()`."""

    def __init__(
        self,
        app: ASGIApp,
        address: tuple[str, int] | None = None,
        taking: TakingLimits = TakingLimits(),  # noqa: B008 - frozen
        connections_max: int = CONNECTIONS_MAX,
        counts: ConnectionCounts | None = None,
    ) -> None:
        self.address = address
        """Where the server listens."""
        self.is_stopping = False
        self.now = 0.0
        """Of the event loop, as of the last look: exact enough for limits of many seconds."""
        self.date_line = b""
        self.counts = counts or ConnectionCounts()
        self._app = app
        self._taking = taking
        self._connections_max = connections_max
        self._is_full = False
        self._loop = asyncio.get_running_loop()
        self._all: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._none_left = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        """While there are connections."""

    def __len__(self) -> int:
        return len(self._all)

    def connect(self) -> Connection:
        """A connection for a new socket."""
        return Connection(self)

    async def end(self, seconds: float) -> None:
        """Let answers under way come to their end, for so long; then close."""
        self.is_stopping = True
        for connection in list(self._all):
            connection.stop()
        if self._all:
            self._none_left.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._none_left.wait()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._all):
            connection.cut(Cut.STOP)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What connections ask

    def enter(self, connection: Connection) -> TurnedAway | None:
        """One that was made; why it may not stay, if so."""
        self._all.add(connection)
        self.counts.open += 1
        if self._timer is None:
            self._tell_time()
            self._timer = self._loop.call_later(CONNECTIONS_LOOK_SECONDS, self._look)
        refusal = self._refusal()
        if refusal is None:
            self.counts.accepted += 1
        else:
            self.counts.turned_away[refusal] += 1
        return refusal

    def leave(self, connection: Connection) -> None:
        """One that was lost."""
        self._all.discard(connection)
        self.counts.open -= 1
        if len(self._all) < self._connections_max / 2:
            self._is_full = False  # to be told of again
        if not self._all:
            self._none_left.set()

    def start(self, exchange: Exchange) -> None:
        """Have a request answered."""
        task = self._loop.create_task(exchange.run(self._app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refusal(self) -> TurnedAway | None:
        if len(self._all) <= self._connections_max:
            return TurnedAway.STOPPING if self.is_stopping else None
        if not self._is_full:
            logger.warning("all %s connections are taken, and more are turned away", self._connections_max)
            self._is_full = True
        return TurnedAway.FULL

    def _look(self) -> None:
        self._tell_time()
        self._look_at(list(self._all))

    def _look_at(self, connections: list[Connection]) -> None:
        for connection in connections[-CONNECTIONS_SLICE:]:
            connection.look(self.now, self._taking)
        del connections[-CONNECTIONS_SLICE:]
        if connections:
            self._timer = self._loop.call_later(0, self._look_at, connections)
        else:
            self._timer = self._loop.call_later(CONNECTIONS_LOOK_SECONDS, self._look) if self._all else None

    def _tell_time(self) -> None:
        self.now = self._loop.time()
        self.date_line = f"date: {formatdate(time.time(), usegmt=True)}\r\n".encode()
