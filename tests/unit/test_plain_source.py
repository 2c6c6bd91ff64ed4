"""Frames off a socket, however the kernel cuts them; and a large message costs one look, not one for every piece."""

import itertools
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source import plain_source
from cdc.source.framing import Found, find_messages
from cdc.source.limits import BATCH_BYTES, MESSAGE_BYTES_MAX
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
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_what_is_framed_does_not_depend_on_the_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(message, bodies))
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        source = PlainSource(ours, data[: bounds[1]], MESSAGE_BYTES_MAX)
        found = taken(source)
        for start, end in itertools.pairwise(bounds[1:]):
            theirs.sendall(data[start:end])
            source.receive()
            found += taken(source)
    assert found == bodies
    assert source.size == 0


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
