"""The one application of the program: every part gives its routes, the guard stands before all of them."""

import logging
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from cdc.app import App
from cdc.http.access import Guard
from cdc.http.admin import Admin
from cdc.http.console.api import ConsoleApi
from cdc.http.console.page import ConsolePage
from cdc.http.hosts import Hosts
from cdc.http.probes import probe_routes
from cdc.insurance.insurer import Insurer
from cdc.status.report import StatusDesk
from cdc.status.slot_watch import SlotWatch
from cdc.telemetry.metrics import exposition
from shapes.http.app import ShapeApp
from shapes.http.envelope import Envelope
from shapes.service import ShapeService

logger = logging.getLogger(__name__)


def application(
    app: App,
    watch: SlotWatch,
    secret: str | None,
    console: ConsoleApi,
    shapes: ShapeApp,
    insurer: Insurer | None = None,
    names: Iterable[str] | None = None,
) -> ASGIApp:
    """What the server serves. `names`: by which it may be asked; None for all."""
    service = ShapeService(app.house, app.nursery)
    desk = StatusDesk(app, service, watch, console.rates, insurer)
    routes = [
        *probe_routes(service, exposition(app, service, desk, shapes)),
        *Admin(service, desk).routes(),
        *console.routes(),
    ]
    starlette = Starlette(routes=routes, exception_handlers={404: _not_found, Exception: _failed})
    starlette.router.redirect_slashes = False
    answering = ConsolePage(Guard(shapes.in_front_of(starlette), secret, shapes.refusal_of))
    return Envelope(answering if names is None else Hosts(answering, names))


async def _not_found(_: Request, __: Exception) -> Response:
    return PlainTextResponse("Not found", 404)


async def _failed(request: Request, error: Exception) -> Response:
    if not isinstance(error, ClientDisconnect):
        logger.error("the answer to %s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": "Internal server error"}, 500)
