"""Makes a publication what the followed tables need, with locks that are asked for shortly, and waits for writers.

A transaction that wrote to a table before and after it was published is sent by halves. So a table counts as
published only when the transactions that might be such have ended.

Invariants:
    a lock that stops readers or writers is waited for at most LOCK_TIMEOUT_SECONDS at a time: they wait behind us
    `baseline` is the publication as we last left or saw it; what differed from it and was not our own statement was
        done by somebody else, is told once, and makes every table wait for its writers again
    no table leaves the publication from the moment at which `publish` is asked for it
    in manual mode no statement here alters anything

Servers before May 2025 (`STALE_PUBLICATION`) decode such a writer with what was published when it began, and remember
that of the table until something else is published: of later transactions too, nothing of the table is sent. There,
whenever a writer has ended, something is published that nobody sees (`_renew`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import psycopg
import tenacity

from cdc.source.alterations import Alterations
from cdc.source.catalog import find_tables, read_leaves, read_publication, read_tables
from cdc.source.connections import Connection, translate
from cdc.source.errors import AccessRefused, CannotPublish, NotPublished, TableBusy
from cdc.source.holder_queries import users_of, writers_of
from cdc.source.holders import Holder
from cdc.source.limits import (
    LOCK_RETRIES_SECONDS_MAX,
    LOCK_RETRY_SECONDS_MAX,
    LOCK_RETRY_SECONDS_MIN,
    LOCK_SHARED_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    POLL_SECONDS,
    PUBLICATION_GRACE_SECONDS,
    WRITERS_SECONDS_MAX,
)
from cdc.source.ownership import is_shared
from cdc.source.publication import (
    Mode,
    OldRow,
    Plan,
    PublicationChange,
    PublicationState,
    Step,
    TableState,
    changes_between,
    demanded,
    plan,
    quote,
)
from cdc.source.server_bugs import STALE_PUBLICATION

log = logging.getLogger(__name__)

RENEWED_PREFIX: Final = "shapelog.renewed"
"""Of the logical message that comes with what is published for nobody to see."""

_RENEWING: Final = quote("shapelog.renewing")
"""Made and dropped in one transaction, so that nobody ever sees it."""

Waiting = Callable[[str, tuple[Holder, ...]], None]
"""Told what is waited for and whom, whenever that changes."""


@dataclass(frozen=True, slots=True)
class Published:
    """Tables that are published, whose earlier writers have ended."""

    state: PublicationState
    tables: Mapping[str, TableState]
    leaves: Mapping[int, tuple[TableState, ...]]
    changes: tuple[PublicationChange, ...]
    """What somebody else had altered before, and nobody has taken: see `alterations`."""


class Publisher:
    """The one publication of a slot."""

    def __init__(
        self,
        name: str,
        mode: Mode,
        *,
        waiting: Waiting | None = None,
        lock_seconds_max: float = LOCK_RETRIES_SECONDS_MAX,
    ) -> None:
        self.name = name
        self.mode = mode
        self.baseline: PublicationState | None = None
        self._waiting = waiting or (lambda _what, _holders: None)
        self._lock_seconds_max = lock_seconds_max
        self._settled: set[int] = set()
        self._unused_since: dict[int, float] = {}
        self.alterations = Alterations()
        self._publishing = asyncio.Lock()
        # A look between our statement and the new baseline would take it for somebody else's. Held for one statement
        # only: whoever looks once a minute does not wait until a busy table can be had.
        self._turn = asyncio.Lock()

    async def connected(self, connection: Connection) -> PublicationState:
        """The publication as a connection finds it; what was altered before is not told: it is in the verdict."""
        async with self._turn:
            state = await self._look(connection)
            self.alterations.connected()
            return state

    async def publish(
        self, connection: Connection, names: Iterable[str], old_row: OldRow = OldRow.LONG_VALUES
    ) -> Published:
        """See to it that these tables are published from now on, whole, with so much of each row as it was."""
        old_row = demanded(old_row, self.mode)
        tables = await _tables_by_name(connection, names)
        leaves = {table.oid: await read_leaves(connection, table.oid) for table in tables.values()}
        parts = {part.oid for table in tables.values() for part in (table, *leaves[table.oid])}
        found_count: int | None = None
        while found_count != self.alterations.count:  # else somebody altered it while writers were waited for
            async with self._publishing:
                for oid in parts | {table.root for table in tables.values()}:  # it may be published through its root
                    self._unused_since.pop(oid, None)
                async with self._turn:
                    state = await self._look(connection)
                todo = plan(state, tables.values(), leaves, connection.info.server_version, old_row)
                self._refuse_what_cannot_be(todo)
                for step in todo.steps:
                    await self._run(connection, step)
            found_count = self.alterations.count
            await self._settle(connection, tables.values(), parts - self._settled)
        self._settled |= parts
        assert self.baseline is not None, "looked at above"
        return Published(self.baseline, tables, leaves, self.alterations.found)

    async def changes(self, connection: Connection) -> tuple[PublicationChange, ...]:
        """What somebody else altered, taken."""
        async with self._turn:
            await self._look(connection)
            return self.alterations.take()

    async def release(self, connection: Connection, oids: Iterable[int], now: float) -> tuple[int, ...]:
        """All tables that nobody follows by now: those that were so for the grace time leave the publication.

        Nothing does while another server uses the publication too, with a slot of its own: it follows other tables.

        Call it again and again: a table that is left out once has its whole grace anew.
        """
        self._unused_since = {oid: self._unused_since.get(oid, now) for oid in oids}
        if self.mode == "manual":
            return ()
        async with self._publishing:
            due = [oid for oid, since in self._unused_since.items() if now - since >= PUBLICATION_GRACE_SECONDS]
            if not due or await is_shared(connection, self.name):  # others may follow what we do not
                return ()
            state = await read_publication(connection, self.name)
            tables = await read_tables(connection, [oid for oid in due if oid in state.tables])
            self._settled.difference_update(due)  # first: what left has writers to wait for, whatever fails behind it
            for table in tables.values():
                statement = f"ALTER PUBLICATION {quote(self.name)} DROP TABLE ONLY {table.sql};"
                await self._run(connection, Step(statement, table.oid))
            for oid in due:
                self._unused_since.pop(oid, None)
        return tuple(due)

    async def wait_for_writers(
        self,
        connection: Connection,
        oids: Iterable[int],
        seconds_max: float = WRITERS_SECONDS_MAX,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Wait for the transactions that may have written to the tables by now; later ones do not count.

        `ended` is called whenever some of them have ended, and first for those that did so before anybody looked.
        """
        tables = list(oids)
        if not tables:
            return
        present = await writers_of(connection, tables)
        if ended is not None:
            await ended()
        shown: set[str] = set()
        end = asyncio.get_running_loop().time() + seconds_max
        while present:
            if present.keys() != shown:
                shown = set(present)
                self._waiting("writers of a table that is newly published", tuple(present.values()))
            if asyncio.get_running_loop().time() > end:
                raise TableBusy(
                    f"writers of the table did not end within {seconds_max:g} s: " + _list(present.values()),
                    hint=" ".join(holder.mend for holder in present.values()),
                )
            await asyncio.sleep(POLL_SECONDS)
            still = await writers_of(connection, tables)
            before, present = present, {number: still[number] for number in present if number in still}
            if ended is not None and len(present) < len(before):
                await ended()

    async def _settle(self, connection: Connection, tables: Iterable[TableState], parts: Iterable[int]) -> None:
        """Wait for whoever wrote to the tables before, so that the server sends all that comes after."""
        is_stale = self.mode == "managed" and STALE_PUBLICATION.is_in(connection.info.server_version)
        some = next(iter(tables), None)
        ended = partial(self._renew, connection, some) if is_stale and some is not None else None
        await self.wait_for_writers(connection, parts, ended=ended)

    async def _renew(self, connection: Connection, table: TableState) -> None:
        """Let the server forget what it has cached of publications: whatever is published makes it do so.

        What it sent of the table until now may be less than a new connection would send. So a commit follows that both
        send: histories are compared by their last one (see `identity`).
        """
        sql = (
            f"CREATE PUBLICATION {_RENEWING} FOR TABLE ONLY {table.sql}; DROP PUBLICATION {_RENEWING}; "
            f"SELECT pg_logical_emit_message(true, '{RENEWED_PREFIX}', '');"
        )
        try:
            await self._run(connection, Step(sql, table.oid))
        except AccessRefused as refused:
            log.warning("changes of %s may be missing until the next table is published: %s", table, refused)

    async def _look(self, connection: Connection, ours: Step | None = None) -> PublicationState:
        """Compare with the last look, in our turn: what is not `ours` was done by somebody else."""
        now = await read_publication(connection, self.name)
        if self.baseline is not None:
            altered = changes_between(self.baseline, now)
            found = [change for change in altered if ours is None or change.table != ours.table]
            if found:
                # A table that was away for a moment has writers again that it may send by halves.
                self._settled.clear()
                self.alterations.find(found)
        self.baseline = now
        return now

    def _refuse_what_cannot_be(self, todo: Plan) -> None:
        if todo.faults:
            raise CannotPublish("; ".join(f"{fault.table}: {fault.text}" for fault in todo.faults))
        if todo.steps and self.mode == "manual":
            raise NotPublished(
                f"the publication {self.name!r} is not ready, and in manual mode we alter nothing; run\n"
                + "\n".join(step.sql for step in todo.steps)
                + "\n"
            )

    async def _run(self, connection: Connection, step: Step) -> None:
        """Run a statement that may need a table's lock, again and again until it was to be had."""
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(psycopg.errors.LockNotAvailable),
            wait=tenacity.wait_random_exponential(LOCK_RETRY_SECONDS_MIN, LOCK_RETRY_SECONDS_MAX),
            stop=tenacity.stop_after_delay(self._lock_seconds_max),
        )
        holders: tuple[Holder, ...] = ()
        try:
            async for attempt in attempts:
                with attempt:
                    try:
                        async with self._turn:
                            await self._look(connection)
                            await _run_once(connection, step)
                            await self._look(connection, step if step.alters is None else None)
                    except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                        async with self._turn:  # whoever shares the publication was faster: it is somebody else's deed
                            await self._look(connection)
                    except psycopg.errors.LockNotAvailable:
                        if step.table is not None:
                            holders = await users_of(connection, step.table)
                        self._waiting(step.sql, holders)
                        raise
        except tenacity.RetryError:
            raise TableBusy(
                f"no lock within {self._lock_seconds_max:g} s for {step.sql} The table is used by "
                + (_list(holders) or "short transactions without a pause between them")
            ) from None
        except psycopg.Error as error:
            raise translate(error, statement=step.sql) from None


async def _run_once(connection: Connection, step: Step) -> None:
    async with connection.transaction():
        await _limit_waiting(connection, LOCK_SHARED_SECONDS)
        if step.alters is not None:
            # An autovacuum makes way only for one who waits longer than we may for the lock proper; so this one first.
            await connection.execute(f"LOCK TABLE ONLY {step.alters} IN SHARE UPDATE EXCLUSIVE MODE".encode())
            await _limit_waiting(connection, LOCK_TIMEOUT_SECONDS)
        await connection.execute(step.sql.encode())


async def _limit_waiting(connection: Connection, seconds: float) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = '{seconds * 1000:.0f}ms'".encode())


async def _tables_by_name(connection: Connection, names: Iterable[str]) -> dict[str, TableState]:
    found = await find_tables(connection, names)
    unknown = [name for name, table in found.items() if table is None]
    if unknown:
        raise CannotPublish(f"no such table: {', '.join(unknown)}", hint="Check the name, and quote it as in SQL.")
    return {name: table for name, table in found.items() if table is not None}


def _list(holders: Iterable[Holder]) -> str:
    return "; ".join(map(str, holders))
