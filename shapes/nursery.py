"""All births: who is being born, who waits for it, and the shapes with a name whose place must be taken.

Invariants:
    one birth for each identity or name at a time; whoever asks again waits for the same one
    no more than BIRTHS_AT_ONCE copy at a time: each has a connection, and a snapshot that holds back vacuum
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field

from cdc.source.publication import quote
from shapes.birth import Birth, Status
from shapes.birth_steps import Step
from shapes.definition import Definition, LogMode, Table
from shapes.errors import BirthFailed, DefinitionError, ShapeError
from shapes.ground import ShapeGround
from shapes.household import Household
from shapes.limits import BIRTHS_AT_ONCE
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
    """The handle, once its identity is on disk; its base is still being copied."""
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
            self._run(self._bear(order), f"birth of {definition}")
        return order

    def succeed(self, ended: Entry) -> None:
        """The place of a shape with a name is to be taken."""
        self._run(self._succeed(ended), f"successor of {ended.handle}")

    def _run(self, work: Coroutine[None, None, None], name: str) -> None:
        task = self._group.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _succeed(self, ended: Entry) -> None:
        house = self._house
        try:
            async with house.turn:
                await house.turn.wait_for(lambda: house.is_streaming)
            async with house.control() as connection:
                key = (ended.definition.schema, ended.definition.table)
                table = (await find_tables(connection, [key])).get(key)
            if table is None:
                raise DefinitionError(fields={"table": [f"{ended.definition} is gone"]})
            self.order(renewed(ended.definition, table), ended.shape.name, ended.handle)
        except (ShapeError, OSError) as fault:
            logger.error("the shape %s gets no successor: %s", ended.shape.name, fault)  # noqa: TRY400 - it says all

    async def _bear(self, order: Order) -> None:
        house = self._house

        def told(entry: Entry) -> None:
            if not order.born.done():
                order.born.set_result(entry)

        def watch(status: Status) -> None:
            order.status = status

        ground = ShapeGround(house, order.definition, order.name, order.succeeds, told)
        try:
            async with self._places:
                birth = Birth(ground, house.conninfo, house.application, house.clocks, watch)
                is_ready = await birth.run()
            order.done.set_result(is_ready)
            if not is_ready and not order.born.done():
                order.born.set_exception(BirthFailed(ground.fault, hint=ground.hint))
                order.born.exception()  # whoever waits is told; nobody has to
            if not is_ready:
                logger.error("the shape %s was not born: %s %s", order.definition, ground.fault, ground.hint)
        finally:
            del self._orders[order.definition.identity, order.name]
            order.born.cancel()
            order.done.cancel()


def renewed(definition: Definition, table: Table) -> Definition:
    """The same request, of the table as it is now; raises `DefinitionError` if it cannot be any more."""
    names = None if definition.selects_all else ",".join(quote(column.name) for column in definition.columns)
    log = definition.log if definition.log is not LogMode.FULL else None
    return define(Request(definition.where, {}, names, definition.replica, log), table)
