"""The shape endpoint, as a plain ASGI application: its methods, who may use them, and what is counted.

Stands in front of the program's router, inside of `Envelope`. Whoever may not use the server is turned away before.
"""

import contextlib
import logging
import random
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.datastructures import Headers as RequestHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from shapes.errors import UnknownShape
from shapes.http.admission import Admission
from shapes.http.clients import Client, ClientGone, Outflow
from shapes.http.connection import CONNECTION
from shapes.http.connection_counts import ConnectionCounts
from shapes.http.envelope import SHAPE_PATH
from shapes.http.limits import URL_BYTES_MAX
from shapes.http.metrics import HttpMetric
from shapes.http.params import parse_request, read_body, read_query
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
from shapes.http.responses import answer_of, options_headers
from shapes.http.row_answers import Asked, RowAnswers
from shapes.http.serving import Serving
from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from shapes.service import ShapeService

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
        randint = (chance or random.SystemRandom()).randint
        self.admission = Admission(settings.initial_requests_max, settings.following_requests_max, randint)
        self.outflow = Outflow(settings.sent_bytes_max)
        self.connections = ConnectionCounts()
        """Of the server that serves this, if it counts here."""
        self._rows = RowAnswers(self.serving, self.admission, self.outflow, randint)
        self.holding = self._rows.holding

    def in_front_of(self, app: ASGIApp) -> ASGIApp:
        """An application that answers at SHAPE_PATH itself, and passes on all else.

        A router in between would keep some kilobytes for each request that is held.
        """

        async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
            is_ours = scope["type"] == "http" and scope["path"] == SHAPE_PATH
            await (self if is_ours else app)(scope, receive, send)

        return dispatch

    def refusal_of(self, scope: Scope) -> Problem | None:
        """What a request without the secret is told; None for a valid token, whose shape is looked at later."""
        return unauthorized() if self._tokens is None else self._tokens.refusal_of(scope)

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
            await self._rows.read(Asked((method, text), headers, client))
            return
        fields = read_query(query)
        claims = self._tokens.claims_of(headers, fields) if self._tokens is not None else None
        match method:
            case "POST":
                body = await self._body(client)
                wanted = parse_request(fields if claims is None else claims.applied_to(fields), body)
                await self._rows.answer(wanted, Asked((method, query), headers, client))
            case "DELETE" if claims is not None:
                raise unauthorized()
            case "DELETE":
                await self._delete(fields, client)
            case _:
                raise no_method()

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
