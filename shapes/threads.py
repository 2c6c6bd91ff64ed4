"""Work that waits for the disk, on a thread."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run it; whoever cancels waits for its end, or it would write behind the back of what comes next."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
