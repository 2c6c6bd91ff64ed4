"""The shape endpoint, as a plain ASGI application: its methods, and how each answer is put together.

Stands in front of the program's router, inside of `Envelope`. Whoever may not use the server is turned away before.
"""

import contextlib
import logging
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from starlette.datastructures import Headers as RequestHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from shapes.errors import UnknownShape
from shapes.http.admission import Admission, Kind
from shapes.http.clients import Client, ClientGone, Outflow
from shapes.http.connection import CONNECTION
from shapes.http.connection_counts import ConnectionCounts
from shapes.http.definitions import Defined
from shapes.http.envelope import SHAPE_PATH
from shapes.http.holding import Holding, Place, Question, page_body
from shapes.http.limits import QUERIES_KEPT, QUERY_BYTES_KEPT, URL_BYTES_MAX
from shapes.http.metrics import HttpMetric
from shapes.http.pages import Page
from shapes.http.params import ShapeQuery, parse_request, read_body, read_query
from shapes.http.problems import (
    Problem,
    failed,
    invalid,
    no_deleting,
    no_method,
    no_shape,
    not_an_object,
    not_json,
    not_yet,
    unauthorized,
    url_too_long,
)
from shapes.http.responses import (
    JSON,
    Facts,
    Headers,
    answer_of,
    etag_of,
    for_request,
    matches,
    next_cursor,
    options_headers,
    shape_headers,
)
from shapes.http.serving import Serving
from shapes.http.settings import HttpSettings
from shapes.http.sse import HEADERS as EVENT_HEADERS
from shapes.http.sse import EventStream
from shapes.http.subsets import Subsets
from shapes.http.tokens import ShapeTokens
from shapes.service import Served, ShapeService
from storage.offset import SNAPSHOT_END

logger = logging.getLogger(__name__)


class ShapeApp:
    """Serves shapes. Made in a running event loop."""

    def __init__(
        self,
        service: ShapeService,
        settings: HttpSettings = HttpSettings(),  # noqa: B008 - frozen
        tokens: ShapeTokens | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.serving = Serving(service, settings)
        self._service = service
        self._tokens = tokens
        self._chance = (chance or random.SystemRandom()).randint
        self.admission = Admission(settings.initial_requests_max, settings.following_requests_max, self._chance)
        self.outflow = Outflow(settings.sent_bytes_max)
        self.connections = ConnectionCounts()
        """Of the server that serves this, if it counts here."""
        self._known = lru_cache(QUERIES_KEPT)(lambda text: parse_request(read_query(text)))
        self.holding = Holding(self.serving, self.outflow, self._headers, self._ended)
        self._subsets = Subsets(service)

    def in_front_of(self, app: ASGIApp) -> ASGIApp:
        """An application that answers at SHAPE_PATH itself, and passes on all else.

        A router in between would keep some kilobytes for each request that is held.
        """

        async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
            is_ours = scope["type"] == "http" and scope["path"] == SHAPE_PATH
            await (self if is_ours else app)(scope, receive, send)

        return dispatch

    def admits(self, scope: Scope) -> bool:
        """Whether a request brings a valid token, and so needs no secret; which shape it is for is looked at later."""
        return self._tokens is not None and self._tokens.admits(scope)

    @property
    def held(self) -> int:
        """Requests that wait for news, streams of events included."""
        return self.holding.count + self.serving.wakes.count - self.holding.waiting

    def numbers(self) -> dict[HttpMetric, int]:
        """What is counted, as it is now."""
        return {
            HttpMetric.INITIAL_REQUESTS: self.admission.present["initial"],
            HttpMetric.FOLLOWING_REQUESTS: self.admission.present["existing"],
            HttpMetric.HELD_REQUESTS: self.held,
            HttpMetric.REFUSED_REQUESTS: self.admission.refused,
            HttpMetric.ENCODED_PAGES: self.serving.pages.made,
            HttpMetric.KEPT_BYTES: self.serving.pages.kept_bytes,
            HttpMetric.SENDING_BYTES: self.outflow.bytes,
            HttpMetric.CONNECTIONS: self.connections.open,
            HttpMetric.CONNECTIONS_ACCEPTED: self.connections.accepted,
        }

    def reasons(self) -> dict[HttpMetric, Mapping[str, int]]:
        """What is counted by reason."""
        return {
            HttpMetric.CONNECTIONS_TURNED_AWAY: self.connections.turned_away,
            HttpMetric.CONNECTIONS_CUT: self.connections.cut,
        }

    def stop(self) -> None:
        """Answer all who are held, and hold nobody from now on."""
        self.serving.wakes.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(receive, send, scope[CONNECTION])
        try:
            await self._answer(scope, client)
        except ClientGone:
            pass
        except Problem as problem:
            await self._tell(problem, client, scope)
        except Exception:  # what nobody thought of is a 500, and not the end of the server
            logger.exception("a request failed")
            await self._tell(failed(), client, scope)
        finally:
            client.close()

    async def _answer(self, scope: Scope, client: Client) -> None:
        method: str = scope["method"]
        headers = RequestHeaders(scope=scope)
        if method == "OPTIONS":
            asked = headers.get("access-control-request-headers")
            await client.respond(204, options_headers(asked), [])
            return
        if len(scope["query_string"]) + len(scope["raw_path"]) > URL_BYTES_MAX:
            raise url_too_long()
        if self.serving.wakes.is_stopping:
            raise not_yet("The server is stopping, please retry", 1)
        query = scope["query_string"]
        client.has_token = self._tokens is not None and self._tokens.brought_by(headers, query)
        if method in {"GET", "HEAD"}:
            # Without tokens, all of the question is in its address; with one, some of it is in the token.
            text = query if self._tokens is None else self._tokens.question(headers, query)
            await self._read((method, text), client, headers)
            return
        fields = read_query(query)
        claims = self._tokens.claims_of(headers, fields) if self._tokens is not None else None
        match method:
            case "POST":
                body = await self._body(client)
                wanted = parse_request(fields if claims is None else claims.applied_to(fields), body)
                await self._admitted(wanted, client, headers, (method, query))
            case "DELETE" if claims is not None:
                raise unauthorized()
            case "DELETE":
                await self._delete(fields, client)
            case _:
                raise no_method()

    # Rows

    async def _read(self, question: Question, client: Client, headers: RequestHeaders) -> None:
        """Rows, for whoever may have them: the same question has the same answer, whoever asks."""
        if (place := self.holding.known(question)) is not None:
            self._join(place, client, headers)
            return
        text = question[1]
        query = self._known(text) if len(text) <= QUERY_BYTES_KEPT else parse_request(read_query(text))
        await self._admitted(query, client, headers, question)

    async def _admitted(self, query: ShapeQuery, client: Client, headers: RequestHeaders, question: Question) -> None:
        kind: Kind = "initial" if query.is_first else "existing"
        self.admission.enter(kind)
        is_held = False
        try:
            await self.serving.ready()
            defined, served = await self.serving.resolve(query)
            registry, now = self._service.house.registry, self.serving.now
            registry.enter(served.handle, now())
            try:
                is_held = await self._shape(query, defined, served, client, headers, question)
            finally:
                if not is_held:
                    registry.leave(served.handle, now())
        finally:
            if not is_held:
                self.admission.leave(kind)

    async def _shape(
        self,
        query: ShapeQuery,
        defined: Defined,
        served: Served,
        client: Client,
        headers: RequestHeaders,
        question: Question,
    ) -> bool:
        """Whether the request is held; else it is answered."""
        method = question[0]
        is_head = method == "HEAD"
        if query.subset is not None:
            await self._subset(query, defined, served, client, is_head=is_head)
        elif query.sse:
            await self._events(query, defined, served, client, is_head=is_head)
        else:
            facts, page, last_seen = await self._page(query, defined, served)
            if facts.requested is None or page is None or not page.is_end or page.rows or not query.live:
                await self._rows(facts, page, last_seen, defined, client, headers, method)
            else:
                place = self.holding.place(served, defined.form, query, question, page.seen)
                self._hold(place, client, headers)
                return True
        return False

    def _join(self, place: Place, client: Client, headers: RequestHeaders) -> None:
        """Hold a request like one that is held: all that could be found out for it was found out for that one."""
        self.admission.enter("existing")
        self._service.house.registry.enter(place.group.served.handle, self.serving.now())
        self._hold(place, client, headers)

    def _hold(self, place: Place, client: Client, headers: RequestHeaders) -> None:
        deadline = self.serving.now() + self.settings.long_poll_seconds
        self.holding.hold(place, client.connection, deadline, headers.get("origin"))

    def _ended(self, served: Served) -> None:
        """A request that was held is over."""
        self._service.house.registry.leave(served.handle, self.serving.now())
        self.admission.leave("existing")

    async def _rows(
        self,
        facts: Facts,
        page: Page | None,
        last_seen: int,
        defined: Defined,
        client: Client,
        headers: RequestHeaders,
        method: str,
    ) -> None:
        raw = for_request(self._headers(facts, defined.schema), method, has_token=client.has_token)
        if matches(headers.getlist("if-none-match"), etag_of(facts, self._instant())):
            await client.respond(304, raw, [])
            return
        body = page_body(page, last_seen if facts.is_up_to_date else None)
        self.outflow.enter(len(body), self.admission.retry_seconds())
        try:
            await client.respond(200, [JSON, *raw], [body], is_head=method == "HEAD")
        finally:
            self.outflow.leave(len(body))

    async def _page(self, query: ShapeQuery, defined: Defined, served: Served) -> tuple[Facts, Page | None, int]:
        """What there is, and the last transaction that `up-to-date` names."""
        serving = self.serving
        after = query.offset
        if after is None:
            visible = max(serving.visible(served), SNAPSHOT_END)
            await serving.page(served, defined.form, visible)  # may be waited for; what came meanwhile comes later
            facts = Facts(served.handle, None, visible, has_data=False, is_up_to_date=True)
            return facts, None, serving.last_seen(visible)
        page = await serving.page(served, defined.form, after)
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

    def _headers(self, facts: Facts, schema: str = "") -> Headers:
        """`schema`: of answers that are not live."""
        now = self._service.house.clocks.wall() / 1_000_000
        cursor = next_cursor(facts.cursor, now, self.settings.long_poll_seconds, self._chance)
        return shape_headers(facts, schema, self.settings, cursor, self._instant())

    def _instant(self) -> int:
        return self._service.house.clocks.wall()

    async def _events(
        self, query: ShapeQuery, defined: Defined, served: Served, client: Client, *, is_head: bool
    ) -> None:
        assert query.offset is not None, "a stream goes on from somewhere"
        stream = EventStream(self.serving, served, defined.form, self.outflow, self.admission.retry_seconds())
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
        if is_head:
            await client.send_body([])
        else:
            await stream.run(first, client)

    async def _subset(
        self, query: ShapeQuery, defined: Defined, served: Served, client: Client, *, is_head: bool
    ) -> None:
        body = await self._subsets.answer(query, defined)
        visible = max(self.serving.visible(served), SNAPSHOT_END)
        headers = [
            JSON,
            ("electric-handle", served.handle),
            ("electric-offset", str(visible)),
            ("electric-schema", defined.schema),
            ("electric-snapshot", "true"),
            ("electric-has-data", "true"),
            ("cache-control", "no-cache"),
        ]
        self.outflow.enter(len(body), self.admission.retry_seconds())
        try:
            await client.respond(200, headers, [body], is_head=is_head)
        finally:
            self.outflow.leave(len(body))

    # Others

    async def _delete(self, fields: dict[str, str], client: Client) -> None:
        if not self.settings.allow_delete:
            raise no_deleting()
        handle = fields.get("handle") or None
        found = None
        if fields.get("table"):
            query = parse_request({**fields, "offset": "-1"})
            defined = await self.serving.definitions.find(query)
            found = self._service.house.registry.defined(defined.definition)
            if handle is not None and (found is None or found.handle != handle):
                text = "The specified shape definition and handle do not match. Please ensure the shape definition is "
                raise invalid({"handle": [f"{text}correct or omit the shape handle from the request entirely."]})
        elif handle is None:
            raise invalid({"table": ["can't be blank when shape handle is missing"]})
        else:
            served = self.serving.living(handle)
            found = None if served is None else served.entry
        if found is None:
            raise no_shape()
        try:
            await self._service.remove(found.handle)
        except UnknownShape:
            raise no_shape() from None
        await client.respond(202, [("cache-control", "no-cache")], [])

    async def _body(self, client: Client) -> dict[str, Any]:
        body = await client.body()
        if not body.strip():
            return {}
        try:
            content = orjson.loads(body)
        except ValueError as error:
            raise not_json(str(error)) from None
        try:
            return read_body(content)
        except TypeError:
            raise not_an_object() from None

    async def _tell(self, problem: Problem, client: Client, scope: Scope) -> None:
        """Answer with a problem, if nothing else was begun."""
        if client.has_started:
            return
        headers, body = answer_of(problem)
        with contextlib.suppress(ClientGone):
            await client.respond(problem.status, headers, [body], is_head=scope["method"] == "HEAD")
