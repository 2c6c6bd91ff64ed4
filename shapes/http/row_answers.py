"""Answers with rows: a page, a stream of events, a subset; or none yet, and the request is held.

Invariants:
    whoever is let in, and registered as a shape's reader, is let out and struck off once, whatever happens
    the same question has the same answer, whoever asks: what differs is who may keep it
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from starlette.datastructures import Headers as RequestHeaders

from shapes.http.admission import Admission, Kind
from shapes.http.clients import Client, Outflow
from shapes.http.definitions import Defined
from shapes.http.holding import Holding, Place, Question, page_body
from shapes.http.limits import QUERIES_KEPT, QUERY_BYTES_KEPT
from shapes.http.pages import Page
from shapes.http.params import ShapeQuery, parse_request, read_query
from shapes.http.responses import (
    JSON,
    Facts,
    Headers,
    etag_of,
    for_request,
    matches,
    next_cursor,
    shape_headers,
)
from shapes.http.serving import Serving
from shapes.http.sse import HEADERS as EVENT_HEADERS
from shapes.http.sse import EventStream
from shapes.http.subsets import Subsets
from shapes.service import Served
from storage.offset import SNAPSHOT_END


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for rows, and who waits for its answer."""

    question: Question
    headers: RequestHeaders
    client: Client

    @property
    def method(self) -> str:
        """As it came."""
        return self.question[0]

    @property
    def is_head(self) -> bool:
        """Whether it wants headers only."""
        return self.method == "HEAD"


@dataclass(frozen=True, slots=True)
class Found:
    """What a request is for."""

    query: ShapeQuery
    defined: Defined
    served: Served


class RowAnswers:
    """Answers requests for rows."""

    def __init__(
        self, serving: Serving, admission: Admission, outflow: Outflow, chance: Callable[[int, int], int]
    ) -> None:
        self.holding = Holding(serving, outflow, self._headers, self._ended)
        self._serving = serving
        self._settings = serving.settings
        self._house = serving.service.house
        self._admission = admission
        self._outflow = outflow
        self._chance = chance
        self._known = lru_cache(QUERIES_KEPT)(lambda text: parse_request(read_query(text)))
        self._subsets = Subsets(serving.service)

    async def read(self, asked: Asked) -> None:
        """Answer, or hold, a request all of which is in its question."""
        if (place := self.holding.known(asked.question)) is not None:
            self._join(place, asked)
            return
        text = asked.question[1]
        query = self._known(text) if len(text) <= QUERY_BYTES_KEPT else parse_request(read_query(text))
        await self.answer(query, asked)

    async def answer(self, query: ShapeQuery, asked: Asked) -> None:
        """Answer, or hold, a request that was read already."""
        kind: Kind = "initial" if query.is_first else "existing"
        self._admission.enter(kind)
        is_held = False
        try:
            await self._serving.ready()
            defined, served = await self._serving.resolve(query)
            registry, now = self._house.registry, self._serving.now
            registry.enter(served.handle, now())
            try:
                is_held = await self._shape(Found(query, defined, served), asked)
            finally:
                if not is_held:
                    registry.leave(served.handle, now())
        finally:
            if not is_held:
                self._admission.leave(kind)

    async def _shape(self, found: Found, asked: Asked) -> bool:
        """Whether the request is held; else it is answered."""
        query = found.query
        if query.subset is not None:
            await self._subset(found, asked)
        elif query.sse:
            await self._events(found, asked)
        else:
            facts, page, last_seen = await self._page(found)
            if facts.requested is None or page is None or not page.is_end or page.rows or not query.live:
                await self._rows(facts, page, last_seen, found.defined.schema, asked)
            else:
                place = self.holding.place(found.served, found.defined.form, query, asked.question, page.seen)
                self._hold(place, asked)
                return True
        return False

    # Held

    def _join(self, place: Place, asked: Asked) -> None:
        """Hold a request like one that is held: all that could be found out for it was found out for that one."""
        self._admission.enter("existing")
        self._house.registry.enter(place.group.served.handle, self._serving.now())
        self._hold(place, asked)

    def _hold(self, place: Place, asked: Asked) -> None:
        deadline = self._serving.now() + self._settings.long_poll_seconds
        self.holding.hold(place, asked.client, deadline, asked.headers.get("origin"))

    def _ended(self, served: Served) -> None:
        """A request that was held is over."""
        self._house.registry.leave(served.handle, self._serving.now())
        self._admission.leave("existing")

    # Answered

    async def _rows(self, facts: Facts, page: Page | None, last_seen: int, schema: str, asked: Asked) -> None:
        client = asked.client
        raw = for_request(self._headers(facts, schema), asked.method, has_token=client.has_token)
        if matches(asked.headers.getlist("if-none-match"), etag_of(facts, self._instant())):
            await client.respond(304, raw, [])
            return
        await self._send([JSON, *raw], page_body(page, last_seen if facts.is_up_to_date else None), asked)

    async def _page(self, found: Found) -> tuple[Facts, Page | None, int]:
        """What there is, and the last transaction that `up-to-date` names."""
        serving, query, served, form = self._serving, found.query, found.served, found.defined.form
        after = query.offset
        if after is None:
            visible = max(serving.visible(served), SNAPSHOT_END)
            await serving.page(served, form, visible)  # may be waited for; what came meanwhile comes later
            facts = Facts(served.handle, None, visible, has_data=False, is_up_to_date=True)
            return facts, None, serving.last_seen(visible)
        page = await serving.page(served, form, after)
        facts = Facts(
            served.handle,
            after,
            page.next,
            query.live,
            is_up_to_date=page.is_end,
            is_first=query.is_first,
            cursor=query.cursor,
        )
        return facts, page, page.next.tx if query.live else serving.last_seen(page.next)

    async def _events(self, found: Found, asked: Asked) -> None:
        query, served, client = found.query, found.served, asked.client
        assert query.offset is not None, "a stream goes on from somewhere"
        retry_seconds = self._admission.retry_seconds()
        stream = EventStream(self._serving, served, found.defined.form, self._outflow, retry_seconds)
        first = await stream.first(query.offset)
        # The place it begins at, and not where it may come to: a stream that breaks has not come there.
        facts = Facts(
            served.handle,
            query.offset,
            query.offset,
            live=True,
            sse=True,
            has_data=bool(first.rows),
            cursor=query.cursor,
        )
        raw = for_request(self._headers(facts), "GET", has_token=client.has_token)
        await client.start(200, [*EVENT_HEADERS, *raw])
        if asked.is_head:
            await client.send_body([])
        else:
            await stream.run(first, client)

    async def _subset(self, found: Found, asked: Asked) -> None:
        body = await self._subsets.answer(found.query, found.defined)
        visible = max(self._serving.visible(found.served), SNAPSHOT_END)
        headers = [
            JSON,
            ("electric-handle", found.served.handle),
            ("electric-offset", str(visible)),
            ("electric-schema", found.defined.schema),
            ("electric-snapshot", "true"),
            ("electric-has-data", "true"),
            ("cache-control", "no-cache"),
        ]
        await self._send(headers, body, asked)

    async def _send(self, headers: Headers, body: bytes, asked: Asked) -> None:
        self._outflow.enter(len(body), self._admission.retry_seconds())
        try:
            await asked.client.respond(200, headers, [body], is_head=asked.is_head)
        finally:
            self._outflow.leave(len(body))

    def _headers(self, facts: Facts, schema: str = "") -> Headers:
        """`schema`: of answers that are not live."""
        now = self._house.clocks.wall() / 1_000_000
        cursor = next_cursor(facts.cursor, now, self._settings.long_poll_seconds, self._chance)
        return shape_headers(facts, schema, self._settings, cursor, self._instant())

    def _instant(self) -> int:
        return self._house.clocks.wall()
