"""One connection's life after its stream has started: reads for the consumer, and three tasks of its own.

    replies   status to the server, in time and not too often          (cores: replies.py)
    watch     a look over the second connection; heartbeat; the publication, when it changed and once a minute
    shutdown  from the first sign of it: tell the consumer, then let the server go

Invariants:
    a fault met by any task ends the attempt, and is raised by the next `deliveries()`
    once a shutdown is seen, the stream's connection is closed within `shutdown_seconds`, whatever the consumer does
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from cdc.source.catalog import read_mark
from cdc.source.connections import fetch
from cdc.source.errors import ConnectionFault, Refusal, ServerStopping, SourceError, StreamEnded
from cdc.source.fragments import Event, KeepAlive
from cdc.source.handshake import Opened, Settings
from cdc.source.identity import Identity, Proceed
from cdc.source.limits import (
    CONNECT_SECONDS_MAX,
    GOODBYE_SECONDS_MAX,
    POLL_SECONDS,
    PUBLICATION_CHECK_SECONDS,
    SILENT_WORK_SECONDS_MAX,
    WATCH_SECONDS,
)
from cdc.source.lsn import Lsn
from cdc.source.pgoutput import Decoder
from cdc.source.publication import PublicationChange
from cdc.source.publisher import Publisher
from cdc.source.refusals import stream_refusal
from cdc.source.relations import Relations
from cdc.source.replies import Replies
from cdc.source.silence import read_work
from cdc.source.slot import SlotState
from cdc.source.slot_commands import read_slot
from cdc.source.walsender import CopyBatch

log = logging.getLogger(__name__)

HEARTBEAT_PREFIX = "shapelog.heartbeat"
"""Of the logical messages that we write ourselves."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection begins: what was open is open no more, the slot sends it again from its BEGIN (A3)."""

    attempt: int
    identity: Identity
    verdict: Proceed
    start: Lsn
    wal_end: Lsn
    """Where the server's WAL ended at connecting: having passed it, the stream has caught up."""
    slot: SlotState | None


@dataclass(frozen=True, slots=True)
class Arrived:
    """Something the slot delivered, in order."""

    attempt: int
    event: Event


@dataclass(frozen=True, slots=True)
class Stopping:
    """The server shuts down and waits for us: flush at once and confirm. Then the connection is closed."""

    attempt: int
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PublicationAltered:
    """Somebody else altered the publication: what is followed in these tables ends."""

    attempt: int
    changes: tuple[PublicationChange, ...]
    """Taken: whoever gets them says when they are handled."""


Delivery = Connected | Arrived | Stopping | PublicationAltered


class Attempt:
    """A started stream, and what must go on beside it."""

    def __init__(
        self, number: int, opened: Opened, settings: Settings, relations: Relations, publisher: Publisher
    ) -> None:
        self.number = number
        self.opened = opened
        self.started = time.monotonic()
        self.replies = Replies(opened.start, opened.flushed, opened.sender_timeout_seconds, self.started)
        self._settings = settings
        self._publisher = publisher
        self._decoder = Decoder(relations)
        self._reading: asyncio.Task[CopyBatch] | None = None
        self._reading_since: float | None = None
        self._notices: list[Delivery] = [self._connected()]
        self._noticed = asyncio.Event()
        self._poked = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stop_reason = ""
        self._publication_mark: tuple[object, ...] | None = None
        self._publication_due = self.started + PUBLICATION_CHECK_SECONDS
        self._fault: Exception | None = None
        self._tasks = [self._spawn(task) for task in (self._reply, self._watch, self._shut_down)]

    async def deliveries(self) -> list[Delivery]:
        """What comes next, at least one; may be cancelled at any time."""
        self._reading_since = time.monotonic()
        try:
            while not self._notices:
                if self._fault is not None:
                    raise self._fault
                if arrived := await self._read():
                    return arrived
        finally:
            self._reading_since = None
        notices, self._notices = self._notices, []
        return notices

    @property
    def was_good(self) -> bool:
        """Whether it got something done: the server may forget more than it could at its start."""
        return self.replies.flushed > self.opened.flushed

    @property
    def is_receiving(self) -> bool:
        """Whether something has come that was not handed on yet."""
        return self.opened.stream.is_receiving

    def confirm(self, lsn: Lsn) -> None:
        """All before `lsn` is durable; the server will hear it with the next reply."""
        self.replies.flushed_to(lsn)
        self._poked.set()

    async def close(self, *, goodbye: bool = False) -> None:
        """End the connection. With `goodbye` the server hears the last confirmation first, if that is possible."""
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            if goodbye and self._fault is None:
                with contextlib.suppress(SourceError, TimeoutError):
                    await self._say_goodbye()
        finally:  # whoever is cancelled once more on the way leaves no connection and no thread behind either
            await self.opened.control.close()
            await self._hang_up()

    def _connected(self) -> Connected:
        opened = self.opened
        return Connected(
            self.number, opened.state.identity, opened.verdict, opened.start, opened.state.wal_end, opened.state.slot
        )

    async def _read(self) -> list[Delivery]:
        """The events of one batch; none if a notice came first."""
        if self._reading is None:
            self._reading = asyncio.create_task(self.opened.stream.batch())
        self._noticed.clear()
        noticed = asyncio.ensure_future(self._noticed.wait())
        try:
            # A wait that is cancelled leaves the reading as it is: the next call takes what it brings.
            await asyncio.wait({self._reading, noticed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            noticed.cancel()
        if not self._reading.done() or self._fault is not None:
            return []
        reading, self._reading = self._reading, None
        try:
            batch = reading.result()
        except StreamEnded as ended:
            raise stream_refusal(ended) from None
        events = self._decoder.feed(batch)
        last = events[-1] if events else None
        keepalive = last if isinstance(last, KeepAlive) else None
        self.replies.heard(self._decoder.received, keepalive, time.monotonic())
        if keepalive is not None and keepalive.wants_reply:
            self._poked.set()
        return [Arrived(self.number, event) for event in events]

    async def _reply(self) -> None:
        while True:
            now = time.monotonic()
            status = self.replies.take(now)
            if status is not None:
                self.opened.stream.send(status.encode(time.time_ns() // 1000))
            if self.replies.shutdown_seen:
                self._server_stops("it asks for replies at one place of its WAL, again and again")
            self._poked.clear()
            with contextlib.suppress(TimeoutError):
                # Not wait_for, which in Python 3.11 loses a cancel that comes together with the event.
                async with asyncio.timeout(max(0.0, self.replies.due - now)):
                    await self._poked.wait()

    async def _watch(self) -> None:
        heartbeat_seconds = self._settings.heartbeat_seconds
        heartbeat_due = self.started
        while True:
            work = None
            try:
                async with asyncio.timeout(CONNECT_SECONDS_MAX):
                    await fetch(self.opened.control, "SELECT 1")
                    now = time.monotonic()
                    # A message of 100 MB may take minutes: whoever sends parts of it is not silent.
                    listening_since = max(self._reading_since or now, self.opened.stream.heard_at)
                    is_silent = self.replies.is_silent(listening_since, now)
                    if is_silent:
                        work = await read_work(self.opened.control, self.opened.replication.info.backend_pid)
                    if heartbeat_seconds is not None and now >= heartbeat_due:
                        heartbeat_due = now + heartbeat_seconds
                        await self._beat()
                await self._look_at_publication(now)
            except ConnectionFault as fault:
                return self._server_stops(fault.message)
            except TimeoutError:
                return self._server_stops("the second connection does not answer")
            if is_silent:
                self._bear_silence(work, now)
            await asyncio.sleep(WATCH_SECONDS)

    async def _look_at_publication(self, now: float) -> None:
        """When it was altered, and from time to time. Who keeps the catalog locked keeps us from that, and no more."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                mark = await read_mark(self.opened.control, self._publisher.name)
                if mark != self._publication_mark or now >= self._publication_due:
                    await self.check_publication()
        except TimeoutError:
            log.warning("the publication cannot be looked at: somebody keeps the server's catalog locked")

    def _bear_silence(self, work: str | None, now: float) -> None:
        """Give the connection up, unless its walsender was seen at work."""
        seconds = self.replies.silent_seconds(now)
        if work is None or seconds > SILENT_WORK_SECONDS_MAX:
            raise ConnectionFault(
                f"the server has been silent for {seconds:.0f} s, although it was asked",
                walsender=work or "not at work",
            )
        log.warning("nothing came from the server for %.0f s, but its walsender is at work: %s", seconds, work)
        self.replies.bear(now)

    async def check_publication(self) -> None:
        """Notice what somebody else altered."""
        mark = await read_mark(self.opened.control, self._publisher.name)  # first: what comes behind it is seen again
        if changes := await self._publisher.changes(self.opened.control):
            self._notice(PublicationAltered(self.number, changes))
        self._publication_mark = mark
        self._publication_due = time.monotonic() + PUBLICATION_CHECK_SECONDS

    async def _beat(self) -> None:
        """A commit in this database, so that the slot can pass the WAL of others."""
        try:
            await fetch(
                self.opened.control,
                "SELECT pg_logical_emit_message(true, %s, %s)",
                HEARTBEAT_PREFIX,
                self._settings.slot,
            )
        except Refusal as refused:
            log.warning("no heartbeat: %s", refused)  # on a standby, or without the right: the stream needs none

    async def _shut_down(self) -> None:
        await self._stopping.wait()
        log.warning("the server stops, or is lost: %s", self._stop_reason)
        self._notice(Stopping(self.number, self._stop_reason, self._settings.shutdown_seconds))
        await asyncio.sleep(self._settings.shutdown_seconds)
        self._fail(ServerStopping("the connection was closed to let the server stop", reason=self._stop_reason))
        await self._hang_up()

    async def _say_goodbye(self) -> None:
        """Send the last confirmation, and see it arrive: the next start then has nothing to replay."""
        self.opened.stream.send(self.replies.last(time.monotonic()).encode(time.time_ns() // 1000))
        async with asyncio.timeout(GOODBYE_SECONDS_MAX):
            while slot := await read_slot(self.opened.control, self._settings.slot):
                if (slot.confirmed_flush_lsn or 0) >= self.replies.flushed:
                    break
                await asyncio.sleep(POLL_SECONDS / 10)

    async def _hang_up(self) -> None:
        # First what does not wait: nothing here is left undone when the wait at the end is cancelled.
        self.opened.stream.close()
        await self.opened.replication.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _server_stops(self, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason
        self._stopping.set()

    def _notice(self, notice: Delivery) -> None:
        self._notices.append(notice)
        self._noticed.set()

    def _fail(self, fault: Exception) -> None:
        self._fault = self._fault or fault
        self._noticed.set()

    def _spawn(self, task: Callable[[], Coroutine[None, None, None]]) -> "asyncio.Task[None]":
        return asyncio.create_task(self._guard(task))

    async def _guard(self, task: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await task()
        except StreamEnded as ended:
            self._fail(stream_refusal(ended))
        except Exception as fault:  # noqa: BLE001  # not lost: `deliveries` raises it
            self._fail(fault)
