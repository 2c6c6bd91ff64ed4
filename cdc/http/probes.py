"""What machines ask: is it there, is it ready, and its numbers."""

from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shapes.service import ShapeService, State

_NOT_KEPT: Final = {"cache-control": "no-cache, no-store, must-revalidate"}


def probe_routes(service: ShapeService, metrics: Callable[[], Awaitable[bytes]]) -> list[Route]:
    """`/`, `/v1/health` and `/metrics`."""

    async def root(_: Request) -> Response:
        return Response()

    async def health(_: Request) -> Response:
        state = service.state
        if service.house.session.attempt is None:
            state = State.WAITING  # what is stored is served all the same
        return JSONResponse({"status": state.value}, 200 if state is State.ACTIVE else 202, headers=_NOT_KEPT)

    async def numbers(_: Request) -> Response:
        return Response(await metrics(), media_type=CONTENT_TYPE_LATEST, headers=_NOT_KEPT)

    return [Route("/", root), Route("/v1/health", health), Route("/metrics", numbers)]
