"""Around all routes: one spelling for the shapes' path, and the headers that every answer has.

Invariants:
    whoever decides by a path, inside of this, meets the one spelling: no other leads past a check
    an answer has these headers whoever gives it, a refusal too
"""

import importlib.metadata
import re
from itertools import count
from typing import Final
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shapes.http.responses import cors_headers

SHAPE_PATH: Final = "/v1/shape"
_OF_ALL_ORIGINS: Final = frozenset({"/", "/v1/health", SHAPE_PATH})
_SLASHES: Final = re.compile(r"/{2,}")
_SERVER: Final = f"shapelog/{importlib.metadata.version('shapelog')}"
_PROCESS: Final = uuid4().hex
_COUNTER: Final = count(1)


def canonical(path: str) -> str:
    """The one spelling: escapes were read by the server; slashes count once, and not at the end."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"


class Envelope:
    """What every request and answer passes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] != SHAPE_PATH and canonical(scope["path"]) == SHAPE_PATH:
            scope["path"], scope["raw_path"] = SHAPE_PATH, SHAPE_PATH.encode()

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                common = common_headers(scope["path"], Headers(scope=scope).get("origin"))
                message["headers"] = [*message.get("headers", ()), *common]
            await send(message)

        await self._app(scope, receive, send_on)


def common_headers(path: str, origin: str | None) -> list[tuple[bytes, bytes]]:
    """What every answer has, for a path in its one spelling."""
    # What is for operators only is nobody's from another origin: a page in a browser could read it at localhost.
    common = cors_headers(origin, of_shape=path == SHAPE_PATH) if path in _OF_ALL_ORIGINS else []
    common += [("electric-server", _SERVER), ("x-request-id", f"{_PROCESS}-{next(_COUNTER)}")]
    return [(name.encode(), value.encode("latin-1")) for name, value in common]
