"""A thread that reads a connection, so that its socket empties while the batch before is decoded.

Without it the walsender stands still for as long as we decode: its socket holds half a millisecond of small messages.
The pauses that let the socket fill also belong here, where they hold up nobody. The thread holds the interpreter for
some microseconds at a time; the kernel's copying, the better part of its work, runs beside the decoder's.

Invariants:
    only the thread reads the connection; whoever else may send
    at most READY_BATCHES_MAX batches wait to be taken; then nobody reads, and TCP tells the server
    the end comes behind every batch
"""

import asyncio
import contextlib
import os
import select
import threading
import time
from collections import deque
from typing import Protocol

from cdc.source.errors import StreamEnded
from cdc.source.limits import BACKLOG_NAP_SECONDS, READER_NICENESS, READY_BATCHES_MAX
from cdc.source.pace import Pace
from cdc.source.walsender import CopyBatch


class Source(Protocol):
    """Where the frames come from. Only the reader's thread calls this, but for `give_back`."""

    @property
    def descriptor(self) -> int:
        """The socket, to wait for."""
        ...

    @property
    def piece(self) -> int:
        """A read of so many bytes may have left some in the socket."""
        ...

    @property
    def size(self) -> int:
        """Bytes received and not taken yet."""
        ...

    @property
    def ended(self) -> StreamEnded | None:
        """Why there will be no more, once all whole frames are taken."""
        ...

    def receive(self) -> int:
        """Read without waiting; how many bytes there were."""
        ...

    def take(self) -> CopyBatch:
        """The whole frames, if any."""
        ...

    def give_back(self, batch: CopyBatch) -> None:
        """Nobody uses the batch any more."""
        ...


class StreamReader:
    """Batches of frames from a source; `take` and `stop` belong to the event loop that made it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pace = Pace()
        self._loop = asyncio.get_running_loop()
        self._available = asyncio.Event()
        self._stop = os.eventfd(0)
        # What both threads touch, under the lock of the condition:
        self._changed = threading.Condition()
        self._ready: deque[CopyBatch] = deque()
        self._lent: CopyBatch | None = None
        self._ended: Exception | None = None
        self._is_stopped = False
        self.heard_at = time.monotonic()
        """When bytes came last: of a large message long before it is whole. The thread alone sets it."""
        self._is_waiting = False
        """The thread waits for bytes, and has none. It alone sets this; whoever reads it may be late by a moment."""
        self._thread = threading.Thread(target=self._run, name="shapelog-reader", daemon=True)
        self._thread.start()

    async def batch(self) -> CopyBatch:
        """The next batch, valid until the next call; raises the reason once the stream has ended. May be cancelled."""
        await asyncio.sleep(0)  # whoever drains a backlog never waits; the others shall run too
        while True:
            self._available.clear()
            batch = self._take()
            if batch is not None:
                return batch
            await self._available.wait()

    @property
    def is_receiving(self) -> bool:
        """Whether something has come that was not handed out yet."""
        return bool(self._ready) or not self._is_waiting

    def check(self) -> None:
        """Raise the reason if the stream has ended, be there batches to take or not."""
        if self._ended is not None:
            raise self._ended

    def stop(self) -> None:
        """End the thread, wherever it is; at once, since it waits for nothing else."""
        with self._changed:
            if self._is_stopped:
                return
            self._is_stopped = True
            self._changed.notify()
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)

    def _take(self) -> CopyBatch | None:
        with self._changed:
            if self._lent is not None:
                self._source.give_back(self._lent)
            self._lent = self._ready.popleft() if self._ready else None
            self._changed.notify()
            if self._lent is None:
                self.check()
            return self._lent

    def _run(self) -> None:
        _come_first()
        try:
            while self._read_batch():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the batches are taken
            with self._changed:
                self._ended = error
            self._notify()

    def _read_batch(self) -> bool:
        """Read until there is a batch, and hand it over; False if the reader was stopped meanwhile."""
        source = self._source
        self._pace.begin(time.monotonic())
        while True:
            size = source.receive()
            while self._pace.goes_on(time.monotonic(), size, source.size, is_awaited=not self._ready):
                if size < source.piece:
                    time.sleep(BACKLOG_NAP_SECONDS)
                size = source.receive()
            batch = source.take()
            if len(batch):
                return self._hand_over(batch)
            if source.ended is not None:
                raise source.ended
            since = time.monotonic()
            if not self._wait():
                return False
            self._pace.waited(since, time.monotonic())

    def _wait(self) -> bool:
        """Wait for bytes; False if the reader was stopped."""
        poll = select.poll()
        poll.register(self._source.descriptor, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        self._is_waiting = True
        poll.poll()
        self._is_waiting = False
        self.heard_at = time.monotonic()
        return not self._is_stopped

    def _hand_over(self, batch: CopyBatch) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or len(self._ready) < READY_BATCHES_MAX)
            self._ready.append(batch)
        self._notify()
        return not self._is_stopped

    def _notify(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._available.set)


def _come_first() -> None:
    """Let this thread run as soon as there is something to read. Few users may choose that; the others wait longer."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, min(READER_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
