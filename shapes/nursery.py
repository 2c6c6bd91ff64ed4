"""All births: who is being born, who waits for it, and the shapes with a name whose place must be taken.

Invariants:
    one birth for each identity or name at a time; whoever asks again waits for the same one
    no more than BIRTHS_AT_ONCE copy at a time: each has a connection, and a snapshot that holds back vacuum
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field

from cdc.source.errors import ConnectionFault, SourceError
from cdc.source.publication import quote
from shapes.birth import Birth, Status
from shapes.birth_steps import Step
from shapes.definition import Definition, LogMode, Table
from shapes.errors import BirthFailed, BirthRefused, DefinitionError, ShapeError
from shapes.ground import ShapeGround
from shapes.household import Household
from shapes.limits import BIRTHS_AT_ONCE, RETAKE_SECONDS_MIN
from shapes.registry import Entry
from shapes.requests import Request, define
from shapes.tables import find_tables

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Order:
    """A birth that was asked for."""

    definition: Definition
    name: str | None
    succeeds: str | None
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


class Nursery:
    """Brings shapes into the world."""

    def __init__(self, house: Household, tasks: asyncio.TaskGroup) -> None:
        self._house = house
        self._group = tasks
        self.tasks: set[asyncio.Task[None]] = set()
        self._orders: dict[tuple[str, str | None], Order] = {}
        self._places = asyncio.Semaphore(BIRTHS_AT_ONCE)

    @property
    def orders(self) -> list[Order]:
        """Births that have not ended."""
        return list(self._orders.values())

    def order(self, definition: Definition, name: str | None = None, succeeds: str | None = None) -> Order:
        """Ask for a shape; the same one as others did, if it is on its way."""
        key = (definition.identity, name)
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = Order(definition, name, succeeds)
            order.task = self._run(self._bear(order), f"birth of {definition}")
        return order

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
        task = self._group.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _succeed(self, ended: Entry) -> None:
        house = self._house
        try:
            async with house.turn:
                await house.turn.wait_for(lambda: house.is_streaming)
            table = await self._table_of(ended)
            if table is None:
                raise DefinitionError(fields={"table": [f"{ended.definition} is gone"]})
            self.order(renewed(ended.definition, table), ended.shape.name, ended.handle)
        except (ShapeError, SourceError, OSError) as fault:
            logger.error("the shape %s gets no successor: %s", ended.shape.name, fault)  # noqa: TRY400 - it says all

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

    async def _bear(self, order: Order) -> None:
        house = self._house

        def told(entry: Entry) -> None:
            order.entry = entry
            if not order.born.done():
                order.born.set_result(entry)

        def watch(status: Status) -> None:
            order.status = status

        ground = ShapeGround(house, order.definition, order.name, order.succeeds, told)
        try:
            async with self._places:
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
                await ground.leave("removed")
            raise
        finally:
            del self._orders[order.definition.identity, order.name]
            order.born.cancel()
            order.done.cancel()


def renewed(definition: Definition, table: Table) -> Definition:
    """The same request, of the table as it is now; raises `DefinitionError` if it cannot be any more."""
    names = None if definition.selects_all else ",".join(quote(column.name) for column in definition.columns)
    log = definition.log if definition.log is not LogMode.FULL else None
    return define(Request(definition.where, {}, names, definition.replica, log), table)
