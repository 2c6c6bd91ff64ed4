"""The socket that is listened at, and what is served there while a context lasts.

Invariants:
    the socket is bound before anything else is started, so that a taken port is a clear refusal
    leaving the context ends every answer under way within HTTP_STOP_SECONDS_MAX
"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator

from starlette.types import ASGIApp

from cdc.errors import AddressTaken
from cdc.limits import COLLECTOR_ALLOCATIONS, HTTP_BACKLOG, HTTP_STOP_SECONDS_MAX
from shapes.http.connections import Connections


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
    """Serve while the context lasts."""
    connections = Connections(app, listener.getsockname()[:2])
    server = await asyncio.get_running_loop().create_server(connections.connect, sock=listener, backlog=HTTP_BACKLOG)
    try:
        yield
    finally:
        server.close()
        await connections.end(HTTP_STOP_SECONDS_MAX)
