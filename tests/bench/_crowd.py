"""Many readers in one thread, with so little work for each that the server is what is measured."""

import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable

READ_BYTES = 65_536
FILES_KEPT = 200
"""Open files that a process needs for all else."""
ROUND_SECONDS_MAX = 60


def room() -> int:
    """How many readers a process can have, once it may open as many files as the system lets it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard - FILES_KEPT


class Reader:
    """One keep-alive connection, and what has come of its answer."""

    __slots__ = ("answers", "got", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.got = b""
        self.answers = 0

    def ask(self, request: bytes) -> None:
        self.socket.send(request)

    def take(self) -> bytes | None:
        """The head of an answer that is whole."""
        piece = self.socket.recv(READ_BYTES)
        if not piece:
            raise ConnectionResetError("closed without an answer")
        got = self.got = self.got + piece
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = got[:end]
        start = head.index(b"content-length: ") + 16
        stop = head.find(b"\r\n", start)
        size = int(head[start : stop if stop > 0 else end])
        if len(got) < end + 4 + size:
            return None
        assert head.startswith(b"HTTP/1.1 200"), head
        self.got = b""
        self.answers += 1
        return head


class Crowd:
    """All of them."""

    def __init__(self, port: int, count: int) -> None:
        self._selector = selectors.EpollSelector()
        self.readers = [Reader(port) for _ in range(count)]
        for reader in self.readers:
            self._selector.register(reader.socket, selectors.EVENT_READ, reader)

    def ask(self, request: bytes) -> None:
        """The same of each."""
        for reader in self.readers:
            reader.ask(request)

    def take(self, is_done: Callable[[Reader, bytes], bool], *, may_close: bool = False) -> int:
        """Hand on the head of each answer as it comes, until all are done; how many were closed before, if any may."""
        missing, closed = len(self.readers), 0
        end = time.perf_counter() + ROUND_SECONDS_MAX
        while missing:
            assert time.perf_counter() < end, f"{missing} readers have no answer"
            for key, _ in self._selector.select(1):
                try:
                    head = key.data.take()
                    is_over = head is not None and is_done(key.data, head)
                except ConnectionResetError:
                    if not may_close:
                        raise
                    is_over = True
                    closed += 1
                if is_over:
                    missing -= 1
                    if may_close:
                        self._selector.unregister(key.fileobj)
        return closed

    def close(self) -> None:
        """All leave."""
        for reader in self.readers:
            reader.socket.close()
        self._selector.close()
