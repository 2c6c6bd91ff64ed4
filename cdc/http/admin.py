"""The admin API: what the program's own commands ask of a running server. Beside the protocol of readers.

    GET    /v1/admin/status               everything
    GET    /v1/admin/shapes               the shapes that live, and births
    POST   /v1/admin/shapes               a shape with a name; `"wait": true` follows its birth, a JSON line at a time
    GET    /v1/admin/shapes/SHAPE         one, by name or handle
    GET    /v1/admin/shapes/SHAPE/request what the shape protocol is asked for it with
    GET    /v1/admin/shapes/SHAPE/rows    its rows above `after`, a JSON line each; held for `wait` seconds
    DELETE /v1/admin/shapes/SHAPE         end it

Invariants:
    a page in somebody's browser can change nothing: a change must be JSON, which browsers ask leave for, and get none
    a client that leaves ends its answer, and nothing else: a birth goes on
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cdc.http.addition import parse_addition
from cdc.http.refusals import KNOWN, facts_of, refusal
from cdc.http.rows import rows_answer
from cdc.limits import ADMIN_BODY_BYTES_MAX, BIRTH_PROGRESS_SECONDS
from cdc.status.report import StatusDesk
from cdc.status.shape_facts import birth_facts
from shapes.errors import BirthFailed, DefinitionError
from shapes.http.address import parameters_of
from shapes.nursery import Order
from shapes.registry import Entry
from shapes.service import ShapeService
from storage.offset import SNAPSHOT_END

JSON_LINES: Final = "application/x-ndjson"

Answering = Callable[[Request], Awaitable[Response]]


class Admin:
    """The API of one server."""

    def __init__(self, service: ShapeService, desk: StatusDesk) -> None:
        self._service = service
        self._desk = desk

    def routes(self) -> list[Route]:
        """To be mounted by whoever composes the application."""
        shapes, shape = "/v1/admin/shapes", "/v1/admin/shapes/{shape}"
        return [
            Route("/v1/admin/status", _answers(self._status)),
            Route(shapes, _answers(self._list)),
            Route(shapes, _answers(self._add), methods=["POST"]),
            Route(f"{shape}/request", _answers(self._request)),
            Route(f"{shape}/rows", _answers(self._rows)),
            Route(shape, _answers(self._show)),
            Route(shape, _answers(self._remove), methods=["DELETE"]),
        ]

    async def _status(self, _: Request) -> Response:
        return _json(await self._desk.status())

    async def _list(self, _: Request) -> Response:
        return _json({"shapes": await self._desk.shapes(), "births": self._desk.births()})

    async def _show(self, request: Request) -> Response:
        return _json({"shape": await self._desk.shape(self._service.known(request.path_params["shape"]))})

    async def _request(self, request: Request) -> Response:
        served = self._service.served_now(request.path_params["shape"])
        if served is None:  # a successor is on its way
            return Response(status_code=204, headers={"cache-control": "no-store"})
        base = self._service.base_of(served)
        floor = SNAPSHOT_END if base is None else base.floor
        return _json(
            {"handle": served.handle, "parameters": parameters_of(served.definition), "floor": str(floor)},
        )

    async def _rows(self, request: Request) -> Response:
        return await rows_answer(self._service, request)

    async def _remove(self, request: Request) -> Response:
        return _json({"removed": await self._service.remove_named(request.path_params["shape"])})

    async def _add(self, request: Request) -> Response:
        _refuse_pages(request)
        addition = parse_addition(await _body(request))
        found = await self._service.add_named(addition.table, addition.request, addition.name)
        if isinstance(found, Entry):
            return _json({"shape": await self._desk.shape(found)})
        if addition.wait:
            return StreamingResponse(self._birth(found), 202, media_type=JSON_LINES)
        return _json({"birth": birth_facts(found)}, 202)

    async def _birth(self, order: Order) -> AsyncIterator[bytes]:
        """A line whenever something has changed; the last one is the shape, or the error."""
        told: dict[str, Any] | None = None
        while not order.done.done():
            facts = birth_facts(order)
            if facts != told:
                told = facts
                yield _line({"birth": facts})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BIRTH_PROGRESS_SECONDS):
                    await asyncio.wait([order.done])
        if order.failure is not None:
            yield _line(facts_of(order.failure))
        elif order.done.cancelled() or order.entry is None:
            stopped = BirthFailed("the server stops", hint="With the next start, ask for the shape again.")
            yield _line(facts_of(stopped))
        else:
            yield _line({"shape": await self._desk.shape(self._service.known(order.entry.handle))})


def _answers(handle: Answering) -> Answering:
    """With our errors as answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except KNOWN as error:
            return refusal(error)

    return answer


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > ADMIN_BODY_BYTES_MAX:
            raise DefinitionError(fields={"body": [f"is above the limit of {ADMIN_BODY_BYTES_MAX:,} bytes"]})
    return bytes(body)


def _refuse_pages(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise DefinitionError(fields={"body": [f"must be sent as application/json, and came as {kind or 'nothing'}"]})


def _json(value: dict[str, Any], status: int = 200) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(orjson.dumps(value), status, headers=headers, media_type=JSONResponse.media_type)


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
