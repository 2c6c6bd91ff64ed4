"""From a request's text to a definition, with as few questions to Postgres as will do.

A table's facts are asked for once by all who want them at the same time, and used again for a moment. So is a
definition made, and it is remembered by the text that led to it. For a request with a handle that is enough, however
old it is: where handle and definition agree, nothing has to be asked.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from cdc.source.errors import SourceError
from shapes.definition import Definition, Table, TableColumn
from shapes.errors import DefinitionError
from shapes.http.limits import DEFINITION_BYTES_KEPT_MAX, DEFINITIONS_KEPT, TABLE_FACTS_SECONDS, TABLE_SECONDS_MAX
from shapes.http.params import ShapeQuery
from shapes.http.problems import invalid, invalid_field, unreachable_table
from shapes.http.responses import schema_header
from shapes.http.row_format import RowFormat
from shapes.identifiers import parse_columns
from shapes.requests import define
from shapes.service import ShapeService

Key = tuple[str, ...]
Made = TypeVar("Made")


class Flights(Generic[Made]):
    """Work that is done once for all who want it at the same time."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Made]] = {}

    async def join(self, name: Hashable, work: Callable[[], Awaitable[Made]]) -> Made:
        """What comes of it; whoever leaves does not end it for the others."""
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.ensure_future(self._run(work))
            task.add_done_callback(lambda done: self._landed(name, done))
        return await asyncio.shield(task)

    async def _run(self, work: Callable[[], Awaitable[Made]]) -> Made:
        return await work()

    def _landed(self, name: Hashable, task: "asyncio.Task[Made]") -> None:
        del self._tasks[name]
        if not task.cancelled():
            task.exception()  # looked at, also where all have left


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition, and what follows from it and its table."""

    definition: Definition
    table: Table
    form: RowFormat
    schema: str
    """The header that tells of its columns."""
    queryable: tuple[TableColumn, ...]
    """What the clauses of subsets may read."""
    read_at: float


class Definitions:
    """Definitions by request."""

    def __init__(self, service: ShapeService, now: Callable[[], float]) -> None:
        self._service = service
        self._now = now
        self._known: OrderedDict[Key, Defined] = OrderedDict()
        self._tables: dict[str, tuple[float, Table]] = {}
        self._readings = Flights[Table]()
        self._makings = Flights[Defined]()

    def known(self, query: ShapeQuery) -> Defined | None:
        """What the same request meant before."""
        key = _key(query)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def find(self, query: ShapeQuery, *, fresh: bool = False) -> Defined:
        """What the request means now; raises a `Problem` for what is no shape. `fresh`: whatever was read before."""
        if fresh:
            self._tables.pop(query.table, None)
        key = _key(query)
        found = self.known(query)
        if not fresh and found is not None and self._now() - found.read_at <= TABLE_FACTS_SECONDS:
            return found
        try:
            table = await self._table(query.table)
            # By these facts and no others: whoever wants fresh ones does not get what is being made of older ones.
            making = partial(asyncio.to_thread, self._define, query, table)
            defined = await self._makings.join((key, id(table)), making)
        except DefinitionError as error:
            raise invalid({name: list(texts) for name, texts in error.fields.items()}) from None
        except (SourceError, OSError, TimeoutError):
            if found is not None and not fresh:
                return found  # what it meant before; if the table is another by now, its shape ends when we hear of it
            raise unreachable_table() from None
        self._keep(key, defined)
        return defined

    def _define(self, query: ShapeQuery, table: Table) -> Defined:
        definition = define(query.shape, table)
        columns = {column.name: column for column in table.columns}
        selected = [columns[column.name] for column in definition.columns]
        queryable = selected if query.queryable is None else self._queryable(query, table, definition)
        return Defined(
            definition, table, RowFormat.of(definition), schema_header(selected), tuple(queryable), self._now()
        )

    def _queryable(self, query: ShapeQuery, table: Table, definition: Definition) -> list[TableColumn]:
        """The list of columns that a proxy allows its clients."""
        name = "queryable_columns"
        allowed = parse_columns(query.queryable or "", name)
        known = {column.name for column in table.columns}
        if missing := [column for column in table.key if column not in allowed]:
            texts = f"The list of columns must include all primary key columns, missing: {', '.join(missing)}"
            raise invalid_field(name, texts)
        if unknown := [column for column in allowed if column not in known]:
            raise invalid_field(name, f"The following columns are not found on the table: {', '.join(unknown)}")
        if not definition.selects_all:
            refused = [column.name for column in definition.columns if column.name not in allowed]
            if refused:
                raise invalid_field("columns", f"The following columns are not queryable: {', '.join(refused)}")
        return [column for column in table.columns if column.name in allowed]

    async def _table(self, name: str) -> Table:
        kept = self._tables.get(name)
        if kept is not None and self._now() - kept[0] <= TABLE_FACTS_SECONDS:
            return kept[1]
        return await self._readings.join(name, partial(self._read, name))

    async def _read(self, name: str) -> Table:
        async with asyncio.timeout(TABLE_SECONDS_MAX):
            table = await self._service.table(name)
        now = self._now()
        self._tables = {one: kept for one, kept in self._tables.items() if now - kept[0] <= TABLE_FACTS_SECONDS}
        self._tables[name] = (now, table)
        return table

    def _keep(self, key: Key, defined: Defined) -> None:
        if sum(map(len, key)) > DEFINITION_BYTES_KEPT_MAX:
            return
        self._known[key] = defined
        self._known.move_to_end(key)
        while len(self._known) > DEFINITIONS_KEPT:
            self._known.popitem(last=False)


def _key(query: ShapeQuery) -> Key:
    shape = query.shape
    parts = [query.table, shape.where, shape.columns, shape.replica, shape.log, query.queryable]
    params = [text for pair in sorted(shape.params.items()) for text in pair]
    return tuple("" if part is None else "=" + part for part in parts) + tuple(params)
