"""Work that runs beside something else, for exactly as long; and what failed first of what ran side by side."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import TypeVar

Failure = TypeVar("Failure", BaseException, BaseException | None)


def first_of(failure: Failure) -> Failure:
    """What failed first of all that was going on, out of the groups that it came in; the rest follows from it.

    `except*` will not do: before Python 3.11.4 what it raises comes in a group once more.
    """
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


@contextlib.asynccontextmanager
async def beside(work: Coroutine[None, None, None], name: str) -> AsyncIterator[None]:
    """Do the work while the context lasts; it is over when the context is. What it raises is not heard here."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
