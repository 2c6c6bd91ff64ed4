"""How a shape is born: drives `birth_steps` over the stream's owner (`Ground`) and the server.

Invariants:
    no row is appended, and no chunk written, before the *born* record is synced (A11): `Ground.born` sees to that
    the snapshot that is recorded is the one that is copied: its transaction stays open from the look to the last row
    all that the snapshot has is on the server's disk before it is recorded: a crash of the server undoes none of it
    the table is the one that was defined when its snapshot is taken, and stays so until all is copied: it is locked
    while the shape has joined, every wait ends when it must leave; what goes to disk is waited for to its end
    whoever cancels `run` finds no thread of it writing; `Ground.leave`, or the next start, removes what was begun
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

import psycopg

from cdc.source.connections import Connection, connect_sql, translate
from cdc.source.errors import AccessRefused, CannotPublish, ConnectionFault, NotPublished, SourceError
from cdc.source.holders import Holder
from cdc.source.numbers import Words
from cdc.source.publisher import Waiting
from shapes.birth_steps import ENDS, NEXT, Event, Patience, Step
from shapes.errors import BirthBlocked, MustLeave, ShapeError, SnapshotLost, SnapshotRefused, TableLocked
from shapes.snapshot_copy import CopyProgress, copy_snapshot
from shapes.snapshot_transaction import Selection, SnapshotTransaction, flush_wal, holders_of, look
from storage.bases import Base, BaseWriter
from storage.catalog_records import Snapshot
from storage.clocks import Clocks
from storage.errors import LogFault, SharedDiskFault, StorageError

log = logging.getLogger(__name__)

_LASTING: Final = (NotPublished, CannotPublish, AccessRefused, SnapshotRefused)
"""What stays as it is until a person acts: a right, a mode, a table. All else may have passed at the next request."""


@dataclass(frozen=True, slots=True)
class Born:
    """A shape has a handle and a log; where its base goes."""

    writer: BaseWriter
    chunk_bytes: int


class Ground(Protocol):
    """What a birth needs of those who own the stream, the catalog and the store.

    A disk that all share may fail in each of `leave`, `born`, `ready` and `failed` (`SharedDiskFault`); they are then
    called again, after `born` only following `leave`.
    """

    async def publish(self, waiting: Waiting) -> Selection:
        """Put the table into the publication, and wait for its writers of before; what is to be copied of it.

        It stays there until the birth has ended. `waiting` is told whom it waits for.
        """

    async def join(self) -> None:
        """Feed the shape from the end of a transaction on: its rows are held, and G stays where it is.

        Raises `MustLeave` if the table is not published any more as it was.
        """

    async def must_leave(self) -> str:
        """Return when a shape that has joined has to leave, and why; wait forever if that never comes."""

    async def look_again(self, connection: Connection) -> None:
        """See that the table is what was published, in the snapshot's transaction, which has its lock.

        Raises `TableChanged` if the shape was not defined for it, `MustLeave` if other partitions have to be published.
        """

    def unseen(self, snapshot: Snapshot) -> Words:
        """What the snapshot lacks of what was streamed before the last `join`, or ran when the process began to stream.

        See `streamed.Demand`.
        """

    async def born(self, snapshot: Snapshot) -> Born:
        """Sync the *born* record with a new handle, make the log, and let what is held go there through the filter.

        Raises `MustLeave` if the shape has left meanwhile; nothing was recorded then.
        """

    async def leave(self, reason: str) -> None:
        """Feed the shape no more and drop what it holds; if it was born, its handle ends and its log goes (A12).

        May be called at any time, and again.
        """

    async def ready(self, base: Base) -> None:
        """The base is complete and synced: record it."""

    async def failed(self, reason: str, hint: str) -> None:
        """As `leave`, and for good."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a birth is, for those who wait for it."""

    step: Step
    attempt: int = 1
    reason: str = ""
    """Why it is not further."""
    holders: tuple[Holder, ...] = ()
    """Whose transactions are waited for."""
    progress: CopyProgress | None = None


Watch = Callable[[Status], None]


class Birth:
    """One shape's birth."""

    def __init__(
        self,
        ground: Ground,
        conninfo: str,
        application: str,
        clocks: Clocks,
        watch: Watch = lambda _: None,
        patience: Patience = Patience(),  # noqa: B008 - frozen
    ) -> None:
        self.step = Step.PUBLISHING
        self.attempt = 1
        self.is_refused = False
        """What went wrong last stays until a person acts; whoever asks again before that is refused again."""
        self._ground = ground
        self._conninfo = conninfo
        self._application = application
        self._clocks = clocks
        self._watch = watch
        self._patience = patience
        self._reason = ""
        self._hint = ""
        self._holders: tuple[Holder, ...] = ()
        self._is_shared_fault = False
        self._faults = 0
        """In a row, of this step."""
        self._joined_until = 0.0
        self._stalled_since: float | None = None
        self._selection: Selection | None = None
        self._transaction: SnapshotTransaction | None = None
        self._born: Born | None = None
        self._base: Base | None = None
        self._actions: Final[dict[Step, Callable[[], Awaitable[Event]]]] = {
            Step.PUBLISHING: self._publish,
            Step.JOINING: self._join,
            Step.LOOKING: self._look,
            Step.LEAVING: self._leave,
            Step.OUTSIDE: self._wait_outside,
            Step.RECORDING: self._record,
            Step.COPYING: self._copy,
            Step.FINISHING: self._finish,
            Step.RETREATING: self._retreat,
            Step.FAILING: self._fail,
        }

    async def run(self) -> bool:
        """Be born; whether that worked. The reason, if not, was given to `Ground.failed`."""
        try:
            while self.step not in ENDS:
                self._tell()
                event = await self._pause(self._bounded(await self._try()))
                if event is not Event.DONE:
                    log.info("birth of %s: %s %s: %s", self._selection, self.step, event, self._reason)
                following = NEXT[self.step, event]
                self._faults = self._faults + 1 if following is self.step else 0
                self.step = following
            self._tell()
        finally:
            await self._roll_back()
        return self.step is Step.READY

    async def _try(self) -> Event:
        """One step, with the errors that any may raise."""
        try:
            return await self._actions[self.step]()
        except MustLeave as fault:
            self._blame(fault)
            return Event.OVERDUE
        except TableLocked as fault:
            self._blame(fault)
            return Event.UNSEEN
        except (ConnectionFault, SnapshotLost, SharedDiskFault, LogFault) as fault:
            self._blame(fault)
            return Event.LOST
        except (ShapeError, SourceError, StorageError) as fault:
            if (self.step, Event.REFUSED) not in NEXT:
                raise
            self._blame(fault)
            return Event.REFUSED

    def _bounded(self, event: Event) -> Event:
        """What a shape waits for before it is born takes an hour at most."""
        if self.step is Step.RECORDING and event is Event.DONE:
            self._stalled_since = None
        if event not in {Event.UNSEEN, Event.OVERDUE}:
            return event
        now = self._clocks.monotonic()
        self._stalled_since = self._stalled_since if self._stalled_since is not None else now
        if now - self._stalled_since <= self._patience.unseen_seconds or (self.step, Event.REFUSED) not in NEXT:
            return event
        mends = " ".join(holder.mend for holder in self._holders)
        self._blame(BirthBlocked(f"gave up: {self._reason}", hint=mends or None))
        return Event.REFUSED

    async def _pause(self, event: Event) -> Event:
        """Wait before what comes next, as long as the shape may."""
        times = self.attempt - 1 if self.step is Step.RETREATING else self._faults + 1
        seconds = self._patience.pause(self.step, event, times)
        if seconds and self.step is Step.LOOKING:
            try:
                await self._while_joined(asyncio.sleep(seconds))
            except MustLeave as fault:
                self._blame(fault)
                return Event.OVERDUE
        elif seconds:
            await asyncio.sleep(seconds)
        return event

    # The steps

    async def _publish(self) -> Event:
        self._selection = await self._ground.publish(self._show_waiting)
        self._holders, self._reason = (), ""
        return Event.DONE

    async def _join(self) -> Event:
        await self._ground.join()
        self._joined_until = self._clocks.monotonic() + self._patience.joined_seconds
        return Event.DONE

    async def _look(self) -> Event:
        await self._roll_back()
        await self._while_joined(self._take_snapshot())
        assert self._transaction is not None, "it was taken"
        unseen = self._ground.unseen(self._transaction.snapshot)
        if not len(unseen):
            self._holders = ()
            birth = self._transaction.snapshot.birth
            await self._while_joined(flush_wal(self._conninfo, self._application, birth))
            return Event.DONE
        await self._while_joined(self._show_holders(self._transaction.connection, unseen))
        await self._roll_back()  # an open snapshot would not see more, however long
        return Event.UNSEEN

    async def _leave(self) -> Event:
        await self._roll_back()
        await self._ground.leave(self._reason)
        return Event.DONE

    async def _wait_outside(self) -> Event:
        """Until what the last snapshot missed is visible: a join would only hold G for it."""
        connection = await connect_sql(self._conninfo, self._application)
        try:
            unseen = self._ground.unseen(await look(connection))
            if len(unseen):
                await self._show_holders(connection, unseen)
        except psycopg.Error as error:
            raise translate(error) from None
        finally:
            await connection.close()
        return Event.UNSEEN if len(unseen) else Event.DONE

    async def _record(self) -> Event:
        assert self._transaction is not None, "looking ended with it"
        self._born = await self._ground.born(self._transaction.snapshot)
        return Event.DONE

    async def _copy(self) -> Event:
        assert self._transaction is not None, "looking ended with it"
        assert self._born is not None, "recording ended with it"
        self._base = await copy_snapshot(
            self._transaction, self._born.writer, self._born.chunk_bytes, self._clocks, self._tell
        )
        await self._roll_back()
        return Event.DONE

    async def _finish(self) -> Event:
        assert self._base is not None, "copying ended with it"
        await self._ground.ready(self._base)
        return Event.DONE

    async def _retreat(self) -> Event:
        await self._roll_back()
        await self._ground.leave(self._reason)
        if not self._is_shared_fault:  # that is not the shape's, and no shape ends for it (A9)
            self.attempt += 1
        if self.attempt > self._patience.retakes + 1:
            self._reason = f"{self._reason} (given up after {self.attempt - 1} attempts)"
            return Event.REFUSED
        return Event.DONE

    async def _fail(self) -> Event:
        await self._roll_back()
        await self._ground.failed(self._reason, self._hint)
        return Event.DONE

    # What they are made of

    async def _take_snapshot(self) -> None:
        assert self._selection is not None, "publishing ended with it"
        self._transaction = await SnapshotTransaction.open(self._conninfo, self._application, self._selection)
        # It may have been altered since it was published; a stream that has described it already does not do so again.
        await self._ground.look_again(self._transaction.connection)

    async def _roll_back(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.close()

    def _show_waiting(self, what: str, holders: tuple[Holder, ...]) -> None:
        self._holders = holders
        self._reason = f"waiting for {what}: {'; '.join(map(str, holders)) or 'nobody that can be named'}"
        self._tell()

    async def _show_holders(self, connection: Connection, unseen: Words) -> None:
        with contextlib.suppress(psycopg.Error, SourceError):  # who it is helps a person only
            self._holders = await holders_of(connection, unseen)
        named = "; ".join(map(str, self._holders)) or "nobody that can be named"
        self._reason = f"commits that were streamed are not visible yet; they belong to {named}"
        self._tell()

    async def _while_joined(self, action: Coroutine[Any, Any, None]) -> None:
        """Do something that ends early, with `MustLeave`, if the shape has to leave the stream."""
        doing = asyncio.ensure_future(action)
        leaving = asyncio.ensure_future(self._ground.must_leave())
        try:
            seconds = max(self._joined_until - self._clocks.monotonic(), 0)
            await asyncio.wait({doing, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                raise MustLeave(leaving.result())
            if not doing.done():
                raise MustLeave(f"no snapshot that will do in {self._patience.joined_seconds:g} s; {self._reason}")
            doing.result()
        finally:
            for task in (doing, leaving):
                task.cancel()
            await asyncio.wait({doing, leaving})
            if not doing.cancelled():
                doing.exception()  # known or outdone by now: nobody else will ask for it

    def _blame(self, fault: ShapeError | SourceError | StorageError) -> None:
        self._reason = fault.message
        self._hint = fault.hint if isinstance(fault, StorageError) else fault.advice
        self._is_shared_fault = isinstance(fault, SharedDiskFault)
        self.is_refused = isinstance(fault, _LASTING)

    def _tell(self, progress: CopyProgress | None = None) -> None:
        self._watch(Status(self.step, self.attempt, self._reason, self._holders, progress))
