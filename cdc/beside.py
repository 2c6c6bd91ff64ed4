"""Work that runs beside something else, for exactly as long."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine


@contextlib.asynccontextmanager
async def beside(work: Coroutine[None, None, None], name: str) -> AsyncIterator[None]:
    """Do the work while the context lasts; it is over when the context is. What it raises is not heard here."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
