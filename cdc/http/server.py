"""The socket that is listened at, and what is served there while a context lasts.

Invariants:
    the socket is bound before anything else is started, so that a taken port is a clear refusal
    however many connect, the rest of the program can open files
    leaving the context ends every answer under way within HTTP_STOP_SECONDS_MAX
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator

from starlette.types import ASGIApp

from cdc.errors import AddressTaken
from cdc.limits import DESCRIPTORS_KEPT, HTTP_BACKLOG, HTTP_STOP_SECONDS_MAX
from shapes.http.connection_counts import ConnectionCounts
from shapes.http.connections import Connections
from shapes.http.limits import CONNECTIONS_MAX, SOCKET_AHEAD_BYTES


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; port 0 is any that is free."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=HTTP_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise AddressTaken(f"cannot listen at {host}, port {port}: {reason}") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, SOCKET_AHEAD_BYTES)  # of all that it takes
    return listener


def connections_max() -> int:
    """How many connections there may be, once this process may open as many files as the system lets it."""
    wanted = CONNECTIONS_MAX + DESCRIPTORS_KEPT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    may = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY:
        soft = wanted
    elif soft < may:
        resource.setrlimit(resource.RLIMIT_NOFILE, (may, hard))
        soft = may
    return min(CONNECTIONS_MAX, max(soft - DESCRIPTORS_KEPT, soft // 4))


def url_of(listener: socket.socket) -> str:
    """Where the socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket, counts: ConnectionCounts | None = None) -> AsyncIterator[None]:
    """Serve while the context lasts. `counts`: where connections are counted, for whoever wants to know."""
    address = listener.getsockname()[:2]
    connections = Connections(app, address, connections_max=connections_max(), counts=counts)
    server = await asyncio.get_running_loop().create_server(connections.connect, sock=listener, backlog=HTTP_BACKLOG)
    try:
        yield
    finally:
        server.close()
        await connections.end(HTTP_STOP_SECONDS_MAX)
