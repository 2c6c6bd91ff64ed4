"""A connection of the HTTP server whose socket is memory: bytes go in, an answer comes out."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from shapes.http.connections import Connections


@dataclass
class Answer:
    """What the server said."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = orjson.loads(self.body)
        return found


class MemorySocket(asyncio.Transport):
    """The server's end: takes all that is written, or nothing while `is_stuck`."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.sent = bytearray()
        self.unsent = 0
        self.is_stuck = False
        self.is_aborted = False
        self.is_paused = False
        self.is_ended = False
        """Nothing more is sent; what comes is read."""
        self.closed = asyncio.Event()
        self.news = asyncio.Event()
        self._closing = False
        self.connection = connections.connect()
        self.connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended, "it was said that nothing more comes"
        if self.is_stuck and not self.unsent:
            self.connection.pause_writing()
        self.unsent += len(data) if self.is_stuck else 0
        self.sent += data
        self.news.set()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._lost)

    def _lost(self) -> None:
        self.connection.connection_lost(None)
        self.closed.set()
        self.news.set()

    def send(self, data: bytes) -> None:
        """As the client."""
        self.connection.data_received(data)

    async def answer(self, method: str = "GET") -> Answer:
        """The next whole answer, or what there is of it when the connection ends."""
        while True:
            self.news.clear()
            answer, size = parsed(bytes(self.sent), method)
            if answer.ended or self.closed.is_set():
                del self.sent[:size]
                return answer
            await self.news.wait()


def parsed(data: bytes, method: str = "GET") -> tuple[Answer, int]:
    """The first answer in these bytes, and how long it is."""
    head, end, rest = data.partition(b"\r\n\r\n")
    answer, used = Answer(), len(head) + len(end)
    if not end:
        return answer, len(data)
    first, *lines = head.decode("latin-1").split("\r\n")
    answer.status = int(first.split(" ")[1])
    answer.headers = {name: text for name, _, text in (line.partition(": ") for line in lines)}
    if "content-length" in answer.headers or method == "HEAD" or answer.status in {204, 304}:
        has_body = method != "HEAD" and answer.status not in {204, 304}
        size = int(answer.headers["content-length"]) if has_body else 0
        answer.body, answer.ended = rest[:size], len(rest) >= size
        return answer, used + size
    while not answer.ended:
        line, end, rest = rest.partition(b"\r\n")
        if not end or len(rest) < int(line, 16) + 2:
            return answer, len(data)
        size = int(line, 16)
        assert rest[size : size + 2] == b"\r\n", "a chunk ends where it says"
        answer.body, rest, answer.ended = answer.body + rest[:size], rest[size + 2 :], not size
        used += len(line) + size + 4
    return answer, used
