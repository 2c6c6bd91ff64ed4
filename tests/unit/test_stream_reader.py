"""The thread that reads a socket, and how it stands with the system's scheduler."""

import asyncio
import os
import socket
import threading

import pytest

from cdc.source.limits import MESSAGE_BYTES_MAX, READER_NICENESS
from cdc.source.plain_source import PlainSource
from cdc.source.stream_reader import StreamReader

MESSAGE = b"d\0\0\0\x0aw what"


async def read_one() -> int:
    """Read a message, and tell the reader's priority meanwhile."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        reader = StreamReader(PlainSource(ours, b"", MESSAGE_BYTES_MAX))
        try:
            theirs.sendall(MESSAGE)
            async with asyncio.timeout(10):
                assert len(await reader.batch()) == 1
            (thread,) = [one for one in threading.enumerate() if one.name == "shapelog-reader"]
            assert thread.native_id is not None
            return os.getpriority(os.PRIO_PROCESS, thread.native_id)
        finally:
            reader.stop()


def may_choose() -> bool:
    """Whether the system lets this user; tried in a thread, since there is no way back."""
    found: list[bool] = []

    def choose() -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), READER_NICENESS)
        except OSError:
            found.append(False)
        else:
            found.append(True)

    thread = threading.Thread(target=choose)
    thread.start()
    thread.join()
    return found[0]


async def test_the_reader_comes_first_and_nobody_else() -> None:
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert await read_one() == (READER_NICENESS if may_choose() else before)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


async def test_who_may_not_choose_reads_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    assert await read_one() == os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
