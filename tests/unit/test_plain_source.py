"""Frames off a socket, however the kernel cuts them; and a large message costs one look, not one for every piece."""

import itertools
import socket
import struct
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source import plain_source
from cdc.source.framing import Found, find_messages
from cdc.source.limits import BATCH_BYTES, FRAMED_BYTES_MIN, MESSAGE_BYTES_MAX
from cdc.source.numbers import Bytes
from cdc.source.plain_source import PlainSource


def message(body: bytes) -> bytes:
    return b"d" + struct.pack(">I", 4 + len(body)) + body


def taken(source: PlainSource) -> list[bytes]:
    batch = source.take()
    frames = [batch.buffer[start:end].tobytes() for start, end in zip(batch.starts, batch.ends, strict=True)]
    if frames:
        source.give_back(batch)
    return frames


@given(
    bodies=st.lists(st.binary(max_size=40).map(lambda body: b"w" + body), max_size=8),
    cuts=st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=12),
    framed_bytes_min=st.sampled_from([1, 30, 10**6]),
)
def test_what_is_framed_does_not_depend_on_the_pieces(
    bodies: list[bytes], cuts: list[tuple[int, bool]], framed_bytes_min: int
) -> None:
    """Nor on when they are looked at, and when they are taken."""
    data = b"".join(map(message, bodies))
    stops = [*sorted((min(stop, len(data)), is_taken) for stop, is_taken in cuts), (len(data), True)]
    ours, theirs = socket.socketpair()
    with ours, theirs, mock.patch.object(plain_source, "FRAMED_BYTES_MIN", framed_bytes_min):
        ours.setblocking(False)
        source = PlainSource(ours, data[: stops[0][0]], MESSAGE_BYTES_MAX)
        found = taken(source)
        for (start, _), (stop, is_taken) in itertools.pairwise(stops):
            theirs.sendall(data[start:stop])
            source.receive()
            if is_taken:
                found += taken(source)
    assert found == bodies
    assert source.size == 0


def test_a_backlog_is_looked_at_while_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a batch little is left to look at, or the walsender would stand still meanwhile."""
    looked_at: list[int] = []

    def find(buffer: Bytes, start: int, filled: int, message_bytes_max: int) -> Found:
        looked_at.append(filled - start)
        return find_messages(buffer, start, filled, message_bytes_max)

    monkeypatch.setattr(plain_source, "find_messages", find)
    data = message(b"w" + bytes(94)) * (BATCH_BYTES // 100 - 1)
    piece = 16 * 1024
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        source = PlainSource(ours, b"", MESSAGE_BYTES_MAX)
        for start in range(0, len(data), piece):
            theirs.sendall(data[start : start + piece])
            source.receive()
        assert len(taken(source)) == len(data) // 100
    assert max(looked_at) < FRAMED_BYTES_MIN + piece
    assert sum(looked_at) < 1.1 * len(data)


def test_a_large_message_is_looked_at_once_or_twice_and_not_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at all that came, for every piece, grows with the square: the server gives up before 100 MB are here."""
    looked_at = 0

    def find(buffer: Bytes, start: int, filled: int, message_bytes_max: int) -> Found:
        nonlocal looked_at
        looked_at += filled - start
        return find_messages(buffer, start, filled, message_bytes_max)

    monkeypatch.setattr(plain_source, "find_messages", find)
    bodies = [b"w" + bytes(12 * BATCH_BYTES), b"w small"]
    data = b"".join(map(message, bodies))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        source = PlainSource(ours, b"", MESSAGE_BYTES_MAX)
        found: list[bytes] = []
        piece = 64 * 1024
        for start in range(0, len(data), piece):
            theirs.sendall(data[start : start + piece])
            while source.receive():
                pass
            found += taken(source)
        while source.receive():
            pass
        found += taken(source)
    assert found == bodies
    assert looked_at < 3 * len(data)
