"""The shape protocol on a real socket: the loop beside a real Postgres, its shape endpoint, and a plain HTTP client."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from cdc.http.access import Guard
from cdc.http.server import listen, serving, url_of
from shapes.http.app import ShapeApp
from shapes.http.envelope import Envelope
from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from shapes.service import ShapeService
from tests.loop import Loop, looping
from tests.postgres import Database

SHAPE = "/v1/shape"


@dataclass
class Reader:
    """A client as simple as can be: follows `electric-offset`, and folds what it gets."""

    http: httpx.AsyncClient
    params: dict[str, str]
    offset: str = "-1"
    handle: str | None = None
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    refetches: int = 0

    async def ask(self, **more: str) -> httpx.Response:
        params = {**self.params, "offset": self.offset, **more}
        if self.handle is not None and self.offset != "-1":
            params["handle"] = self.handle
        return await self.http.get(SHAPE, params=params)

    async def step(self, **more: str) -> bool:
        """One request; whether that was up to date."""
        response = await self.ask(**more)
        if response.status_code == 409:
            self.refetches += 1
            self.offset, self.handle, self.rows = "-1", response.headers.get("electric-handle"), {}
            return False
        assert response.status_code == 200, (response.status_code, response.text)
        self.handle, self.offset = response.headers["electric-handle"], response.headers["electric-offset"]
        for message in response.json():
            self.take(message)
        return "electric-up-to-date" in response.headers

    async def catch_up(self) -> None:
        while not await self.step():
            pass

    def take(self, message: dict[str, Any]) -> None:
        headers = message["headers"]
        self.messages.append(message)
        match headers.get("operation"):
            case "insert":
                assert message["key"] not in self.rows, message
                self.rows[message["key"]] = message["value"]
            case "update":
                self.rows[message["key"]] |= message["value"]
            case "delete":
                del self.rows[message["key"]]
            case _:
                assert "control" in headers


@dataclass
class ShapeServer:
    """A running server."""

    app: ShapeApp
    http: httpx.AsyncClient
    url: str
    loop: Loop | None = None

    def reader(self, table: str, **params: str) -> Reader:
        return Reader(self.http, {"table": table, **params})

    @property
    def living(self) -> Loop:
        assert self.loop is not None
        return self.loop


@asynccontextmanager
async def shape_server(
    service: ShapeService,
    settings: HttpSettings,
    secret: str | None = None,
    tokens: ShapeTokens | None = None,
    loop: Loop | None = None,
    port: int = 0,
) -> AsyncIterator[ShapeServer]:
    """Serve shapes, as the program composes it."""
    app = ShapeApp(service, settings, tokens)
    inner = app.in_front_of(Starlette())
    listener = listen("127.0.0.1", port)
    url = url_of(listener)
    guard = Guard(inner, secret, app.refusal_of)
    limits = httpx.Limits(max_connections=None)
    with contextlib.closing(listener):
        async with (
            serving(Envelope(guard), listener),
            httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http,
        ):
            try:
                yield ShapeServer(app, http, url, loop)
            finally:
                app.stop()


@asynccontextmanager
async def serving_shapes(
    database: Database,
    folder: Path,
    settings: HttpSettings = HttpSettings(),  # noqa: B008 - frozen
    secret: str | None = None,
    tokens: ShapeTokens | None = None,
    port: int = 0,
    **more: Any,
) -> AsyncIterator[ShapeServer]:
    """The whole loop beside a real Postgres, and its shapes over HTTP."""
    async with looping(database, folder, **more) as loop:
        service = ShapeService(loop.app.house, loop.app.nursery)
        async with shape_server(service, settings, secret, tokens, loop, port) as server:
            yield server
