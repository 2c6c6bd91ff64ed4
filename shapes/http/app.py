"""The shape endpoint, as a plain ASGI application: its methods, and how each answer is put together.

Stands in front of the program's router, inside of `Envelope`. Whoever may not use the server is turned away before.
"""

import contextlib
import logging
import random
from collections.abc import Sequence
from typing import Any, Final

import orjson
from starlette.datastructures import Headers as RequestHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from shapes.errors import UnknownShape
from shapes.http.admission import Admission
from shapes.http.clients import Client, ClientGone, Outflow
from shapes.http.definitions import Defined
from shapes.http.encoding import up_to_date
from shapes.http.envelope import SHAPE_PATH, TRANSPORT
from shapes.http.limits import URL_BYTES_MAX
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
    Facts,
    Headers,
    etag_of,
    matches,
    next_cursor,
    options_headers,
    problem_headers,
    shape_headers,
)
from shapes.http.serving import Serving
from shapes.http.settings import HttpSettings
from shapes.http.sse import EventStream
from shapes.http.subsets import Subsets
from shapes.http.tokens import ShapeTokens
from shapes.service import Served, ShapeService
from storage.offset import SNAPSHOT_END

logger = logging.getLogger(__name__)

JSON: Final = ("content-type", "application/json; charset=utf-8")


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

    def numbers(self) -> dict[HttpMetric, int]:
        """What is counted, as it is now."""
        return {
            HttpMetric.INITIAL_REQUESTS: self.admission.present["initial"],
            HttpMetric.FOLLOWING_REQUESTS: self.admission.present["existing"],
            HttpMetric.HELD_REQUESTS: self.serving.wakes.count,
            HttpMetric.REFUSED_REQUESTS: self.admission.refused,
            HttpMetric.ENCODED_PAGES: self.serving.pages.made,
            HttpMetric.KEPT_BYTES: self.serving.pages.kept_bytes,
            HttpMetric.SENDING_BYTES: self.outflow.bytes,
        }

    def stop(self) -> None:
        """Answer all who are held, and hold nobody from now on."""
        self.serving.wakes.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(receive, send, self.settings.send_seconds, scope.get(TRANSPORT))
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
        fields = read_query(scope["query_string"])
        claims = self._tokens.claims_of(headers, fields) if self._tokens is not None else None
        match method:
            case "GET" | "HEAD" | "POST":
                body = await self._body(client) if method == "POST" else None
                if claims is not None:
                    fields = claims.applied_to(fields)
                query = parse_request(fields, body)
                with self.admission.place(is_first=query.is_first):
                    await self._shape(query, client, headers, method)
            case "DELETE" if claims is not None:
                raise unauthorized()
            case "DELETE":
                await self._delete(fields, client)
            case _:
                raise no_method()

    # Rows

    async def _shape(self, query: ShapeQuery, client: Client, headers: RequestHeaders, method: str) -> None:
        await self.serving.ready()
        defined, served = await self.serving.resolve(query)
        registry, now = self._service.house.registry, self.serving.now
        registry.enter(served.handle, now())
        try:
            if query.subset is not None:
                await self._subset(query, defined, served, client, is_head=method == "HEAD")
            elif query.sse:
                await self._events(query, defined, served, client, is_head=method == "HEAD")
            else:
                await self._rows(query, defined, served, client, headers, method)
        finally:
            registry.leave(served.handle, now())

    async def _rows(
        self,
        query: ShapeQuery,
        defined: Defined,
        served: Served,
        client: Client,
        headers: RequestHeaders,
        method: str,
    ) -> None:
        facts, page, last_seen = await self._page(query, defined, served, client)
        raw = self._headers(facts, defined, query)
        if method not in {"GET", "HEAD"}:
            raw = [(name, "no-cache" if name == "cache-control" else value) for name, value in raw]
        if matches(headers.get("if-none-match"), etag_of(facts, self._instant())):
            await client.respond(304, raw, [])
            return
        messages = b"" if page is None else page.messages
        end = up_to_date(last_seen) if facts.is_up_to_date else b""
        if not end:  # the comma behind the last message goes
            parts: Sequence[bytes] = [b"[", memoryview(messages)[:-1].tobytes() if messages else b"", b"]"]
        else:
            parts = [b"[", messages, end, b"]"]
        size = sum(map(len, parts))
        self.outflow.enter(size, self.admission.retry_seconds())
        try:
            await client.respond(200, [JSON, *raw], parts, is_head=method == "HEAD")
        finally:
            self.outflow.leave(size)

    async def _page(
        self, query: ShapeQuery, defined: Defined, served: Served, client: Client
    ) -> tuple[Facts, Page | None, int]:
        """What is answered, and the last transaction that `up-to-date` names."""
        serving = self.serving
        deadline = serving.now() + self.settings.long_poll_seconds
        after = query.offset
        if after is None:
            visible = max(serving.visible(served), SNAPSHOT_END)
            await serving.page(served, defined.form, visible)  # may be waited for; what came meanwhile comes later
            facts = Facts(served.handle, None, visible, has_data=False, is_up_to_date=True)
            return facts, None, serving.last_seen(visible)
        while True:
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
            if page.rows or not page.is_end:
                seen = page.next.tx if query.live else serving.last_seen(page.next)
                return facts, page, seen
            if not query.live:
                return facts, page, serving.last_seen(page.next)
            seconds = deadline - serving.now()
            if seconds <= 0 or serving.wakes.is_stopping:
                nothing = Facts(
                    served.handle, after, page.next, live=True, has_data=False, is_up_to_date=True, cursor=query.cursor
                )
                return nothing, page, serving.last_seen(serving.visible(served))
            await serving.wakes.wait(served, page.seen, seconds, client.gone)
            if client.is_gone:
                raise ClientGone

    def _headers(self, facts: Facts, defined: Defined, query: ShapeQuery) -> Headers:
        now = self._service.house.clocks.wall() / 1_000_000
        cursor = next_cursor(query.cursor, now, self.settings.long_poll_seconds, self._chance)
        return shape_headers(facts, defined.schema, self.settings, cursor, self._instant())

    def _instant(self) -> int:
        return self._service.house.clocks.wall()

    async def _events(
        self, query: ShapeQuery, defined: Defined, served: Served, client: Client, *, is_head: bool
    ) -> None:
        assert query.offset is not None, "a stream goes on from somewhere"
        stream = EventStream(self.serving, served, defined.form, self.outflow, self.admission.retry_seconds())
        first = await stream.first(query.offset)
        # The place it begins at, and not where it may come to: a stream that breaks has not come there.
        facts = Facts(served.handle, query.offset, query.offset, live=True, sse=True, has_data=bool(first.rows))
        raw = self._headers(facts, defined, query)
        await client.start(200, [("content-type", "text/event-stream"), ("connection", "keep-alive"), *raw])
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
        await client.respond(202, [], [])

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
        headers = [JSON, *problem.headers.items()]
        headers += problem_headers(problem.status, has_handle="electric-handle" in problem.headers)
        body = b"" if problem.body is None else orjson.dumps(problem.body)
        with contextlib.suppress(ClientGone):
            await client.respond(problem.status, headers, [body], is_head=scope["method"] == "HEAD")
