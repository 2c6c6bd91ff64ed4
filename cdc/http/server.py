"""Uvicorn inside our own process and task group: we bind, we hear signals, we say when it ends.

Invariants:
    the socket is bound before anything else is started, so that a taken port is a clear refusal
    leaving the context ends every answer under way within HTTP_STOP_SECONDS_MAX
"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from cdc.errors import AddressTaken
from cdc.limits import COLLECTOR_ALLOCATIONS, HTTP_BACKLOG, HTTP_STOP_SECONDS_MAX


def calm_collector() -> None:
    """Once, when all is loaded: what there is now is never looked at again, and what comes less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_ALLOCATIONS)


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; port 0 is any that is free."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=HTTP_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise AddressTaken(f"cannot listen at {host}, port {port}: {reason}") from None


def url_of(listener: socket.socket) -> str:
    """Where the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve while the context lasts. What ends the server from within ends the body too."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        backlog=HTTP_BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=HTTP_STOP_SECONDS_MAX,
    )
    server = _Server(config)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listener]), name="http")
        try:
            yield
        finally:
            server.should_exit = True


class _Server(uvicorn.Server):
    """Signals are the program's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
