"""Following a shape from Python, as a stream of changes or as rows that are kept up to date; in both worlds.

    async for batch in ShapeStream(url, table="items"): ...
    for batch in ShapeStream(url, table="items"): ...

    shape = Shape(ShapeStream(url, table="items"))
    shape.catch_up()                      # or: await shape.catch_up_async()
    shape.rows, shape.to_arrow()

Invariant: a `Shape` shows committed states only; what is torn waits until the server says `up-to-date`.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pyarrow as pa

from shapes.client_arrow import to_arrow
from shapes.client_state import Batch, Change, Position
from shapes.client_stream import ShapeStream

__all__ = ["Batch", "Change", "Position", "Shape", "ShapeStream"]


class Shape:
    """The rows of a shape, by key."""

    def __init__(self, stream: ShapeStream) -> None:
        """`stream`: a new one. Raises `ValueError` for one that goes on from within a shape."""
        if stream.position.handle is not None:
            raise ValueError(
                "a Shape has to see all rows: give it a ShapeStream without `position`, or keep them yourself"
            )
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

        Columns have the types of the shape's schema, or that of what is in them where it does not fit those.
        """
        return to_arrow(self._stream.schema, list(self._rows.values()))

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
