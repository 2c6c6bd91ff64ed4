"""A proxy between a client and a server that can be cut, stopped and frozen: losing the network in one line.

It has threads of its own, so that it goes on while a test's event loop is busy.
"""

import contextlib
import socket
import struct
import threading
from typing import Self

CHUNK_BYTES = 65_536
ABORT = struct.pack("ii", 1, 0)  # linger for 0 s: close by reset, as a lost peer looks


class Proxy:
    """Listens on a port of this machine and forwards to a TCP address or a Unix socket."""

    def __init__(self, target: tuple[str, int] | str) -> None:
        self.target = target
        self.port = 0
        self.connections_count = 0
        self.bytes_until_cut: int | None = None
        """Cut once when the server has sent so much more: a way to strike in any phase of a conversation."""
        self._listener: socket.socket | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.thaw()

    def start(self) -> None:
        """Accept connections again, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections and cut those that are open."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # close alone leaves accept() waiting
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """Reset what is open, in both directions; a new connection works at once."""
        with self._lock:
            doomed, self._open = self._open, set()
        for end in doomed:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def freeze(self) -> None:
        """Forward nothing, close nothing: a cable pulled out."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = self._reach_target()
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
                self.connections_count += 1
            for source, sink, from_server in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=[source, sink, from_server], daemon=True).start()

    def _is_cut_now(self, size: int) -> bool:
        with self._lock:
            if self.bytes_until_cut is None:
                return False
            self.bytes_until_cut -= size
            if self.bytes_until_cut > 0:
                return False
            self.bytes_until_cut = None
            return True

    def _reach_target(self) -> socket.socket:
        if isinstance(self.target, str):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
            return server
        return socket.create_connection(self.target)

    def _pump(self, source: socket.socket, sink: socket.socket, from_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._flowing.wait()
                if from_server and self._is_cut_now(len(data)):
                    self.cut()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        with self._lock:
            self._open -= {source, sink}
