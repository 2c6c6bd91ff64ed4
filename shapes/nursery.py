"""All births: who is being born, who waits for it, and the shapes with a name whose place must be taken.

Invariants:
    one birth for each identity or name at a time; whoever asks again waits for the same one
    a successor is tried again, with growing pauses, until the name has a shape or nobody wants one any more
    no more than BIRTHS_AT_ONCE copy at a time: each has a connection, and a snapshot that holds back vacuum
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Final

from cdc.source.errors import ConnectionFault, SourceError
from cdc.source.publication import quote
from shapes.birth import Birth, Status
from shapes.birth_steps import Step
from shapes.definition import Definition, LogMode, Table
from shapes.errors import BirthFailed, BirthRefused, ShapeError
from shapes.ground import ShapeGround
from shapes.household import Household
from shapes.limits import BIRTHS_AT_ONCE, RETAKE_SECONDS_MIN, SUCCESSOR_SECONDS_MAX, SUCCESSOR_SECONDS_MIN
from shapes.registry import Entry
from shapes.requests import Request, define
from shapes.tables import find_tables
from storage.errors import SharedDiskFault, StorageError
from storage.limits import FAULT_RETRY_SECONDS

logger = logging.getLogger(__name__)

_MICROSECONDS: Final = 1_000_000
_DOUBLINGS_MAX: Final = 30


@dataclass(slots=True)
class Order:
    """A birth that was asked for."""

    definition: Definition
    name: str | None
    succeeds: str | None
    told_at: int
    """When the status became what it is, in microseconds since 1970."""
    status: Status = field(default_factory=lambda: Status(Step.PUBLISHING))
    born: "asyncio.Future[Entry]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The first handle, once its identity is on disk; its base is still being copied."""
    entry: Entry | None = None
    """The present handle: a copy that is taken again has a new one."""
    failure: BirthFailed | None = None
    """Why it was not born, once that is certain."""
    task: "asyncio.Task[None] | None" = None
    is_withdrawn: bool = False
    done: "asyncio.Future[bool]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Whether it became ready."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A name whose successor could not be born yet."""

    name: str
    definition: Definition
    """Of the shape that ended."""
    reason: str
    attempts: int
    since: int
    """Microseconds since 1970, when the last attempt failed ..."""
    again_at: int
    """... and when the next one is made."""


class Nursery:
    """Brings shapes into the world."""

    def __init__(self, house: Household, tasks: asyncio.TaskGroup) -> None:
        self._house = house
        self._group = tasks
        self.tasks: set[asyncio.Task[None]] = set()
        self._orders: dict[tuple[str, str | None], Order] = {}
        self._awaited: dict[str, Awaited] = {}
        self._places = asyncio.Semaphore(BIRTHS_AT_ONCE)
        self._questions = asyncio.Semaphore(BIRTHS_AT_ONCE)
        self._open = asyncio.Event()
        self._open.set()
        self._why_closed = ""

    @property
    def orders(self) -> list[Order]:
        """Births that have not ended."""
        return list(self._orders.values())

    @property
    def awaited(self) -> list[Awaited]:
        """Names that wait for the next attempt at a successor."""
        return [one for one in self._awaited.values() if self._house.registry.awaited(one.name) is not None]

    def order(self, definition: Definition, name: str | None = None, succeeds: str | None = None) -> Order:
        """Ask for a shape; the same one as others did, if it is on its way."""
        key = (definition.identity, name)
        order = self._orders.get(key)
        if order is None:
            order = Order(definition, name, succeeds, self._house.clocks.wall())
            order.task = self._run(self._bear(order), f"birth of {definition}")
            self._orders[key] = order
        return order

    def close(self, why: str) -> None:
        """Let no birth begin until it is opened again; those under way go on: their copies hold nothing back."""
        self._why_closed = why
        self._open.clear()

    def open(self) -> None:
        """Births may begin."""
        self._open.set()

    async def withdraw(self, name: str) -> bool:
        """End the births of a name. Whether there was one."""
        orders = [order for order in self.orders if order.name == name and order.task is not None]
        for order in orders:
            assert order.task is not None, "filtered above"
            order.is_withdrawn = True
            order.task.cancel()
            await asyncio.wait([order.task])
        return bool(orders)

    def succeed(self, ended: Entry) -> None:
        """The place of a shape with a name is to be taken."""
        self._run(self._succeed(ended), f"successor of {ended.handle}")

    def _run(self, work: Coroutine[None, None, None], name: str) -> "asyncio.Task[None]":
        """Raises `RuntimeError` once the process is about to end: then nobody is born."""
        try:
            task = self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            raise
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _succeed(self, ended: Entry) -> None:
        """Until the name has a shape again, or nobody wants one."""
        house, name, attempts = self._house, ended.shape.name, 0
        assert name is not None, "others have no successors"
        while (latest := house.registry.awaited(name)) is not None:
            reason = await self._try_to_succeed(latest, name)
            if not reason or house.registry.awaited(name) is None:
                break
            seconds = min(SUCCESSOR_SECONDS_MIN * 2.0 ** min(attempts, _DOUBLINGS_MAX), SUCCESSOR_SECONDS_MAX)
            attempts += 1
            now = house.clocks.wall()
            again_at = now + round(seconds * _MICROSECONDS)
            self._awaited[name] = Awaited(name, ended.definition, reason, attempts, now, again_at)
            logger.error("the shape %s has no successor, and is tried again in %g s: %s", name, seconds, reason)
            await asyncio.sleep(seconds)
        self._awaited.pop(name, None)

    async def _try_to_succeed(self, ended: Entry, name: str) -> str:
        """Why that did not work; nothing if it did, or if others see to it."""
        house = self._house
        try:
            async with house.turn:
                await house.turn.wait_for(lambda: house.is_streaming)
            async with self._questions:
                table = await self._table_of(ended)
            if table is None:
                gone = f"{quote(ended.definition.schema)}.{quote(ended.definition.table)}"
                return f"its table {gone} is gone. Make it again, or remove the shape."
            order = self.order(renewed(ended.definition, table), name, ended.handle)
            await asyncio.wait([order.done])
        except (ShapeError, SourceError, OSError) as fault:
            return str(fault)
        return "" if order.failure is None else str(order.failure)

    async def _table_of(self, ended: Entry) -> Table | None:
        """The table that has the name now; asked for until the server answers."""
        key = (ended.definition.schema, ended.definition.table)
        while True:
            try:
                async with self._house.control() as connection:
                    return (await find_tables(connection, [key])).get(key)
            except ConnectionFault as fault:
                logger.warning("the successor of %s waits for the server: %s", ended.handle, fault)
                await asyncio.sleep(RETAKE_SECONDS_MIN)

    async def _admitted(self, watch: Callable[[Status], None]) -> None:
        """Wait until births may begin."""
        if not self._open.is_set():
            watch(Status(Step.PUBLISHING, reason=self._why_closed))
            await self._open.wait()

    async def _bear(self, order: Order) -> None:
        house = self._house

        def told(entry: Entry) -> None:
            order.entry = entry
            if not order.born.done():
                order.born.set_result(entry)

        def watch(status: Status) -> None:
            if replace(status, progress=None) != replace(order.status, progress=None):
                order.told_at = house.clocks.wall()
            order.status = status

        ground = ShapeGround(house, order.definition, order.name, order.succeeds, told)
        try:
            await self._admitted(watch)
            async with self._places:
                await self._admitted(watch)
                birth = Birth(ground, house.conninfo, house.application, house.clocks, watch)
                is_ready = await birth.run()
            if not is_ready:
                kind = BirthRefused if birth.is_refused else BirthFailed
                order.failure = kind(ground.fault, hint=ground.hint)
            order.done.set_result(is_ready)
            if order.failure is not None and not order.born.done():
                order.born.set_exception(order.failure)
                order.born.exception()  # whoever waits is told; nobody has to
            if not is_ready:
                logger.error("the shape %s was not born: %s %s", order.definition, ground.fault, ground.hint)
        except asyncio.CancelledError:
            if order.is_withdrawn:  # at a stop, the next start clears up
                order.failure = BirthFailed("it was removed", hint="Ask for it again.")
                await _leave(ground)
            raise
        finally:
            house.wanted.pop(ground, None)
            del self._orders[order.definition.identity, order.name]
            order.born.cancel()
            order.done.cancel()


async def _leave(ground: ShapeGround) -> None:
    """Whatever is in the way: a birth that nobody wants any more must not end the program, nor hold G for ever."""
    while True:
        try:
            return await ground.leave("removed")
        except SharedDiskFault as fault:
            logger.warning("waiting for the disk: %s", fault)
            await asyncio.sleep(FAULT_RETRY_SECONDS)
        except (ShapeError, StorageError) as fault:
            logger.info("what was begun of a shape that is removed: %s", fault)
            return None


def renewed(definition: Definition, table: Table) -> Definition:
    """The same request, of the table as it is now; raises `DefinitionError` if it cannot be any more."""
    names = None if definition.selects_all else ",".join(quote(column.name) for column in definition.columns)
    log = definition.log if definition.log is not LogMode.FULL else None
    return define(Request(definition.where, {}, names, definition.replica, log), table)
