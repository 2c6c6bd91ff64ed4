"""Work that waits for the disk, on a thread."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from storage.errors import SharedDiskFault
from storage.limits import FAULT_RETRY_SECONDS

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


async def in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run it; whoever cancels waits for its end, or it would write behind the back of what comes next."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def until_done(work: Callable[[], Result]) -> Result:
    """Do it on a thread, again and again while the disk that all share refuses (A9)."""
    while True:
        try:
            return await in_thread(work)
        except SharedDiskFault as fault:
            logger.warning("waiting for the disk: %s", fault)
            await asyncio.sleep(FAULT_RETRY_SECONDS)
