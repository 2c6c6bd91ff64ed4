"""Waiting for a socket, in a way that may be cancelled at any time and leaves nothing behind."""

import asyncio


async def until_readable(socket: int) -> None:
    """Return when the socket can be read, or has ended."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(socket, _settle, readable)
    try:
        await readable
    finally:
        loop.remove_reader(socket)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
