"""From a request that makes sense to a page of a shape: which handle, which page, and what is waited for.

Invariants:
    every wait has a bound, and ends when the client leaves or the server stops
    no answer says `up-to-date` before the stream has passed the shape's birth
    an offset that a reader may have is never called out of bounds while we catch up
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cdc.source.errors import SourceError
from shapes.definition import Definition
from shapes.endings import TRUNCATED
from shapes.errors import BirthRefused, ShapeError
from shapes.http.definitions import Defined, Definitions
from shapes.http.limits import CHUNK_SECONDS_MAX, READY_RETRY_SECONDS, STATE_LOOK_SECONDS
from shapes.http.pages import Page, Pages
from shapes.http.params import ShapeQuery
from shapes.http.positions import BaseFacts, ChunkPlace, LogPlace, bound_of, place_of
from shapes.http.problems import Problem, invalid_field, must_refetch, not_yet, out_of_bounds
from shapes.http.row_format import RowFormat, Style
from shapes.http.settings import HttpSettings
from shapes.http.wakes import Wakes
from shapes.service import Served, ShapeService, State
from storage.catalog_records import Life
from storage.errors import LogFault, Refetch, SharedDiskFault, UnknownLog
from storage.offset import SNAPSHOT_END, LogOffset

logger = logging.getLogger(__name__)

_BUSY: Final = "The shape is not ready yet, please retry"


class Serving:
    """What all requests share."""

    def __init__(self, service: ShapeService, settings: HttpSettings) -> None:
        self.service = service
        self.settings = settings
        self.definitions = Definitions(service, service.house.clocks.monotonic)
        self.pages = Pages(service.reader, settings.encoded_bytes_max)
        self.wakes = Wakes(service.watch, self._life)

    def now(self) -> float:
        """Seconds, to measure with."""
        return self.service.house.clocks.monotonic()

    # Handles

    async def ready(self) -> None:
        """Wait until there is a stream."""
        if not await self._until(lambda: self.service.state is not State.WAITING, self.settings.ready_seconds):
            raise not_yet("Timeout waiting for the replication stream to be ready", READY_RETRY_SECONDS)

    async def resolve(self, query: ShapeQuery) -> tuple[Defined, Served]:
        """The shape of a request, made if need be; 409 if the handle is not its."""
        if query.handle is None:
            return await self._made(query)
        known = self.definitions.known(query)
        if known is not None and (served := self.follows(query.handle, known.definition)) is not None:
            return known, served
        defined = await self.definitions.find(query)
        if (served := self.follows(query.handle, defined.definition)) is not None:
            return defined, served
        raise must_refetch((await self._made(query))[1].handle)

    async def _made(self, query: ShapeQuery) -> tuple[Defined, Served]:
        """The shape that a request means, born if need be; what was remembered of its table may be old."""
        defined = await self.definitions.find(query)
        try:
            return defined, await self.shape_for(defined.definition)
        except Problem:
            renewed = await self.definitions.find(query, fresh=True)
            if renewed.definition == defined.definition:
                raise
            return renewed, await self.shape_for(renewed.definition)

    async def shape_for(self, definition: Definition) -> Served:
        """The shape of a definition, born if need be."""
        try:
            async with asyncio.timeout(self.settings.birth_seconds):
                return await self.service.shape_for(definition)
        except BirthRefused as refusal:
            raise invalid_field("table", refusal.message.strip(), refusal.advice) from None
        except (ShapeError, SourceError) as error:
            logger.warning("the shape %s that a request asks for cannot be made: %s", definition, error)
            raise not_yet("Failed to create shape, please retry", 1, code=error.code, hint=error.advice) from None
        except TimeoutError:
            raise not_yet("Failed to create shape, please retry", 1, code="birth_slow") from None

    def follows(self, handle: str, definition: Definition) -> Served | None:
        """The handle, if it can be followed and is of this definition."""
        served = self.living(handle)
        return served if served is not None and served.definition == definition else None

    def living(self, handle: str) -> Served | None:
        """A handle that can be followed: what was truncated since cannot, though its log goes on."""
        served = self.service.served(handle)
        if served is None or served.entry.shape.life is not Life.REBASED:
            return served
        return None if TRUNCATED in self.service.house.registry.reasons_since(handle) else served

    def check(self, served: Served) -> None:
        """409 for a handle that is over."""
        if self.living(served.handle) is None:
            raise self.over(served)

    def over(self, served: Served) -> Problem:
        """What its readers are told."""
        entry = self.service.house.registry.replacement(served.handle)
        return must_refetch(entry.handle if entry is not None and entry.handle != served.handle else None)

    def _life(self, handle: str) -> object:
        registry = self.service.house.registry
        entry = registry.find(handle)
        return None if entry is None else (entry.shape.life, entry.shape.reason, registry.reasons_since(handle))

    # Pages

    def visible(self, served: Served) -> LogOffset:
        """V of its log."""
        try:
            return self.service.watch(served).visible.value
        except UnknownLog:
            raise self.over(served) from None
        except (LogFault, SharedDiskFault) as fault:
            raise self._faulty(served, fault) from None

    def last_seen(self, visible: LogOffset) -> int:
        """The last transaction that the stream is past, as far as readers of a log can tell."""
        return max(self.service.last_seen, visible.tx)

    async def page(self, served: Served, form: RowFormat, after: LogOffset, style: Style = Style.ARRAY) -> Page:
        """The rows above an offset. A page that is at the end is one that may be called up to date."""
        patience = self.now() + self.settings.long_poll_seconds / 2
        while True:
            self.check(served)
            page = await self._read(served, form, after, style)
            if page.is_truncated:
                await self._until(lambda: self.living(served.handle) is None, patience - self.now())
                self.check(served)
                raise not_yet(_BUSY, 1)
            if not page.is_end or self.service.has_passed_birth(served.entry):
                return page
            if not await self._until(lambda: self.service.has_passed_birth(served.entry), patience - self.now()):
                raise not_yet(_BUSY, 1)

    async def _read(self, served: Served, form: RowFormat, after: LogOffset, style: Style) -> Page:
        try:
            place = await self._place(served, after)
            if isinstance(place, ChunkPlace):
                return await self.pages.chunk(served, form, place, style)
            visible = await self._in_bounds(served, place.after)
            return await self.pages.log(served, form, place.after, visible, style)
        except (Refetch, UnknownLog):
            raise self.over(served) from None
        except (LogFault, SharedDiskFault) as fault:
            raise self._faulty(served, fault) from None

    async def _place(self, served: Served, after: LogOffset) -> ChunkPlace | LogPlace:
        """Where the rows are, once they are written."""
        patience = self.now() + CHUNK_SECONDS_MAX
        while True:
            base = self.service.base_of(served)
            if base is None and after < SNAPSHOT_END:
                raise self.over(served)  # a newer base took its place; only the log goes on under this handle
            facts = BaseFacts(0, False, SNAPSHOT_END)
            if base is not None:
                facts = BaseFacts(len(base.chunks), base.is_complete, base.floor)
            place = place_of(after, facts)
            if isinstance(place, ChunkPlace | LogPlace):
                return place
            if self.wakes.is_stopping or self.now() > patience:
                raise not_yet(_BUSY, 1)
            await asyncio.sleep(STATE_LOOK_SECONDS)
            self.check(served)

    async def _in_bounds(self, served: Served, after: LogOffset) -> LogOffset:
        """V, if a reader can be at this offset."""

        def is_in_bounds() -> bool:
            visible = self.visible(served)
            return after <= bound_of(visible, self.service.last_seen)

        if not is_in_bounds():
            if not self.service.has_caught_up:
                raise not_yet("The server is catching up with Postgres, please retry", 1)
            if not await self._until(is_in_bounds, self.settings.long_poll_seconds / 2):
                raise out_of_bounds()
        return self.visible(served)

    def _faulty(self, served: Served, fault: Exception) -> Problem:
        logger.warning("the shape %s cannot be read: %s", served.handle, fault)
        return not_yet("The shape cannot be read at the moment, please retry", 5)

    async def _until(self, look: Callable[[], bool], seconds: float) -> bool:
        """Wait for what tells nobody; whether it came."""
        end = self.now() + seconds
        while not look():
            if self.wakes.is_stopping or self.now() > end:
                return False
            await asyncio.sleep(STATE_LOOK_SECONDS)
        return True
