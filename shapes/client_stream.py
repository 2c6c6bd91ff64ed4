"""A shape's changes over HTTP, for ever, with and without an event loop: the shell of `client_state`.

Invariants:
    a batch is handed out once; who stops between two and goes on from `position` misses none
    between two requests of which the first failed there is a pause, and every wait has a bound
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import httpx
import orjson

from shapes.client_state import Batch, Follower, Position
from shapes.client_values import PARSERS, Parser
from shapes.http.errors import RequestRefused
from shapes.limits import CLIENT_SECONDS_MAX

logger = logging.getLogger(__name__)

_LOST: Final = (httpx.RequestError, orjson.JSONDecodeError)
"""Nothing came, or something that a network or a proxy has broken."""

PORT_MAX: Final = 65_535
"""Of TCP."""


class ShapeStream:
    """Changes of a shape, for ever, over whatever breaks in between. To be iterated once, with or without `async`."""

    def __init__(  # noqa: PLR0913 - as many as a question has parts
        self,
        url: str,
        table: str | None = None,
        *,
        where: str | None = None,
        params: Mapping[int, str] | None = None,
        columns: str | None = None,
        live_sse: bool = False,
        position: Position | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        parsers: Mapping[str, Parser] | None = None,
        as_text: bool = False,
        **more: str,
    ) -> None:
        """`url` ends in `/v1/shape`; `more` are other parameters of the protocol, such as `replica` and `log`.

        `live_sse`: changes come as a stream of events, each as soon as it is there; without it, by requests that are
        held until there is news. `position`: that of an earlier stream, to go on from. `token`: a shape token, or the
        server's secret. `parsers`: from text to values, by types' names, beside those that are there. `as_text`: values
        stay the texts that Postgres sent.
        """
        address = _address(url)
        given = {"table": table, "where": where, "columns": columns, **more}
        asked = dict(address.params.items())  # a request's parameters would take the place of these
        asked |= {name: value for name, value in given.items() if value is not None}
        asked |= {f"params[{number}]": value for number, value in (params or {}).items()}
        known = None if as_text else {**PARSERS, **(parsers or {})}
        self._follower = Follower(asked, position or Position(), known, live_sse)
        self._url = address.copy_with(query=None, fragment=None)
        self._name = self._url.copy_with(userinfo=b"")  # for logs, without what is secret
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        self._options: dict[str, Any] = {
            "headers": dict(_header(name, text) for name, text in {**(headers or {}), **bearer}.items()),
            "timeout": CLIENT_SECONDS_MAX,
        }

    @property
    def position(self) -> Position:
        """Behind all batches that were handed out."""
        return self._follower.position

    @property
    def schema(self) -> Mapping[str, Mapping[str, Any]]:
        """The columns, once the first batch has come."""
        return self._follower.schema

    def __iter__(self) -> Iterator[Batch]:
        with httpx.Client(**self._options) as client:
            while True:
                yield from self._ask(client)
                if pause := self._follower.pause_seconds(random.random()):  # noqa: S311 - nobody guesses for gain
                    time.sleep(pause)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        async with httpx.AsyncClient(**self._options) as client:
            while True:
                async with aclosing(self._ask_async(client)) as batches:
                    async for batch in batches:
                        yield batch
                if pause := self._follower.pause_seconds(random.random()):  # noqa: S311 - as above
                    await asyncio.sleep(pause)

    def _ask(self, client: httpx.Client) -> Iterator[Batch]:
        """One request, and what its answer brings."""
        follower, stream = self._follower, None
        try:
            with client.stream("GET", self._url, params=follower.next_params()) as answer:
                if follower.begins_stream(answer.status_code, answer.headers):
                    stream = _Stream()
                    for piece in answer.iter_bytes():
                        stream.brought_anything = True
                        for batch in follower.feed(piece):
                            stream.brought_batch = True
                            yield batch
                    yield from stream.end(follower)
                else:
                    answer.read()
                    whole = follower.take(answer.status_code, answer.headers, answer.content)
                    if whole is not None:
                        yield whole
        except _LOST as error:
            self._lose(stream, error)

    async def _ask_async(self, client: httpx.AsyncClient) -> AsyncGenerator[Batch, None]:
        follower, stream = self._follower, None
        try:
            async with client.stream("GET", self._url, params=follower.next_params()) as answer:
                if follower.begins_stream(answer.status_code, answer.headers):
                    stream = _Stream()
                    async for piece in answer.aiter_bytes():
                        stream.brought_anything = True
                        for batch in follower.feed(piece):
                            stream.brought_batch = True
                            yield batch
                    for batch in stream.end(follower):
                        yield batch
                else:
                    await answer.aread()
                    whole = follower.take(answer.status_code, answer.headers, answer.content)
                    if whole is not None:
                        yield whole
        except _LOST as error:
            self._lose(stream, error)

    def _lose(self, stream: "_Stream | None", error: Exception) -> None:
        if isinstance(error, httpx.LocalProtocolError) and stream is None:  # which may quote what is secret
            raise RequestRefused("nothing was asked: a header has a name that none can have") from None
        if stream is None:
            self._follower.lost()
        else:
            stream.end(self._follower, is_broken=True)
        if self._follower.failures:
            logger.warning("no answer from %s, asking again: %s", self._name, str(error) or type(error).__name__)


def _header(name: str, text: str) -> tuple[bytes, bytes]:
    """As it is sent: a secret may have any letters. Refuses what cannot be, and does not show it."""
    if text != text.strip(" \t") or any(letter < " " and letter != "\t" for letter in text):
        raise RequestRefused(
            f"the header {name} has a line break or a control character, or a blank at one of its ends"
        )
    try:
        return name.encode(), text.encode()
    except UnicodeEncodeError:
        raise RequestRefused(f"the header {name} has half a letter, which no text in UTF-8 has") from None


def _address(url: str) -> httpx.URL:
    """Where to ask; refuses what cannot be asked, ever."""
    if not url.startswith(("http://", "https://")):
        raise RequestRefused(f"the address {url!r} begins with neither http:// nor https://")
    try:
        address = httpx.URL(url)
        has_host, port = bool(address.host), address.port
    except (httpx.InvalidURL, ValueError) as error:  # the latter for names that are none in any language
        raise RequestRefused(f"the address {url!r} is none: {error}") from None
    if not has_host or (port is not None and not 0 < port <= PORT_MAX):
        raise RequestRefused(f"the address {url!r} has no host, or a port that is none")
    return address


class _Stream:
    """A stream of events that is open."""

    def __init__(self) -> None:
        self.brought_anything = False
        self.brought_batch = False
        self._began = time.monotonic()

    def end(self, follower: Follower, *, is_broken: bool = False) -> list[Batch]:
        """What is left to hand on: who waits hears that there is no news, as an answer without any would say."""
        lasted = time.monotonic() - self._began
        follower.stream_ended(lasted, brought_anything=self.brought_anything, is_broken=is_broken)
        is_silence = follower.is_up_to_date and not self.brought_batch and not is_broken
        return [Batch(is_up_to_date=True)] if is_silence else []
