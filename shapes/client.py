"""Following a shape from Python, as a stream of changes or as rows that are kept up to date; in both worlds.

    async for batch in ShapeStream(url, table="items"): ...
    for batch in ShapeStream(url, table="items"): ...

    shape = Shape(ShapeStream(url, table="items"))
    shape.catch_up()                      # or: await shape.catch_up_async()
    shape.rows, shape.to_arrow()

Invariants:
    a batch is handed out once; who stops between two and goes on from `position` misses none
    a `Shape` shows committed states only: what is torn waits until the server says `up-to-date`
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from typing import Any, Final

import httpx
import pyarrow as pa

from shapes.client_state import Batch, Change, Follower, Position
from shapes.client_values import PARSERS, Parser

__all__ = ["Batch", "Change", "Position", "Shape", "ShapeStream"]

REQUEST_SECONDS_MAX: Final = 45.0
"""For an answer to begin and to go on: twice as long as a server holds a live request."""


class ShapeStream:
    """Changes of a shape, for ever, over whatever breaks in between. To be iterated once, with or without `async`."""

    def __init__(  # noqa: PLR0913 - as many as a question has parts
        self,
        url: str,
        table: str | None = None,
        *,
        where: str | None = None,
        params: Mapping[int, str] | None = None,
        columns: str | None = None,
        position: Position | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        parsers: Mapping[str, Parser] | None = None,
        **more: str,
    ) -> None:
        """`url` ends in `/v1/shape`; `more` are other parameters of the protocol, such as `replica` and `log`.

        `position`: that of an earlier stream, to go on from. `token`: a shape token, or the server's secret.
        `parsers`: from text to values, by types' names, beside those that are there.
        """
        given = {"table": table, "where": where, "columns": columns, **more}
        asked = {name: value for name, value in given.items() if value is not None}
        asked |= {f"params[{number}]": value for number, value in (params or {}).items()}
        self._follower = Follower(asked, position or Position(), {**PARSERS, **(parsers or {})})
        self._url = url
        self._headers = {**(headers or {}), **({"authorization": f"Bearer {token}"} if token else {})}

    @property
    def position(self) -> Position:
        """Behind all batches that were handed out."""
        return self._follower.position

    @property
    def schema(self) -> Mapping[str, Mapping[str, Any]]:
        """The columns, once the first batch has come."""
        return self._follower.schema

    def __iter__(self) -> Iterator[Batch]:
        with httpx.Client(headers=self._headers, timeout=REQUEST_SECONDS_MAX) as client:
            while True:
                headers: Mapping[str, str] = {}
                try:
                    answer = client.get(self._url, params=self._follower.next_params())
                    headers = answer.headers
                    batch = self._follower.take(answer.status_code, headers, answer.content)
                except httpx.TransportError:
                    batch = self._lost()
                if self._follower.failures:
                    time.sleep(self._follower.pause_seconds(headers))
                else:
                    yield batch

    async def __aiter__(self) -> AsyncIterator[Batch]:
        async with httpx.AsyncClient(headers=self._headers, timeout=REQUEST_SECONDS_MAX) as client:
            while True:
                headers: Mapping[str, str] = {}
                try:
                    answer = await client.get(self._url, params=self._follower.next_params())
                    headers = answer.headers
                    batch = self._follower.take(answer.status_code, headers, answer.content)
                except httpx.TransportError:
                    batch = self._lost()
                if self._follower.failures:
                    await asyncio.sleep(self._follower.pause_seconds(headers))
                else:
                    yield batch

    def _lost(self) -> Batch:
        self._follower.lost()
        return Batch()


class Shape:
    """The rows of a shape, by key."""

    def __init__(self, stream: ShapeStream) -> None:
        self._stream = stream
        self._rows: dict[str, dict[str, Any]] = {}
        self._pending: list[Batch] = []
        self._subscribers: list[Callable[[Shape], None]] = []
        self._batches: Iterator[Batch] | None = None
        self._batches_async: AsyncIterator[Batch] | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """As of the last transaction that is known."""
        return list(self._rows.values())

    def get(self, key: str) -> dict[str, Any] | None:
        """One row, by the key of its changes."""
        return self._rows.get(key)

    def subscribe(self, callback: Callable[["Shape"], None]) -> Callable[[], None]:
        """Call back after each change of the rows; the result ends that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def catch_up(self) -> None:
        """Take changes until the rows are up to date; a second call waits for the next that come."""
        self._batches = self._batches or iter(self._stream)
        for batch in self._batches:
            if self._take(batch):
                return

    async def catch_up_async(self) -> None:
        """As `catch_up`, in an event loop."""
        self._batches_async = self._batches_async or aiter(self._stream)
        async for batch in self._batches_async:
            if self._take(batch):
                return

    def close(self) -> None:
        """Let go of the connection of `catch_up`."""
        if isinstance(self._batches, Generator):
            self._batches.close()

    async def aclose(self) -> None:
        """Let go of the connection of `catch_up_async`."""
        closing = getattr(self._batches_async, "aclose", None)
        if closing is not None:
            await closing()

    def to_arrow(self) -> pa.Table:
        """The rows as a table, from which data frames are made: `.to_pandas()`, `polars.from_arrow(..)`.

        Columns have Arrow's type for what is in them; where Arrow has none for a mixture, they are text.
        """
        columns = {name: [row.get(name) for row in self._rows.values()] for name in self._stream.schema}
        return pa.table({name: _array(values) for name, values in columns.items()})

    def _take(self, batch: Batch) -> bool:
        """Keep it until it is whole; whether it is now."""
        if batch.must_refetch:
            self._pending = []
        self._pending.append(batch)
        if not batch.is_up_to_date:
            return False
        is_news = False
        for one in self._pending:
            is_news |= bool(one.changes) or one.must_refetch
            if one.must_refetch:
                self._rows = {}
            for change in one.changes:
                self._apply(change)
        self._pending = []
        if is_news:
            for callback in list(self._subscribers):
                callback(self)
        return True

    def _apply(self, change: Change) -> None:
        if change.operation == "delete":
            self._rows.pop(change.key, None)
        else:
            self._rows[change.key] = {**self._rows.get(change.key, {}), **change.value}


def _array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array([None if value is None else str(value) for value in values])
