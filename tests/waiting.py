"""Waiting for a state, with a bound: what tests do where others would sleep."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.02
"""Between two looks: short beside what is waited for, long enough to leave the processor to it."""


def until(look: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    """What `look` finds, as soon as it finds something true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        threading.Event().wait(LOOK_SECONDS)
    return found


async def eventually(
    look: Callable[[], T | Awaitable[T]], what: str, seconds: float = 20.0, *, look_seconds: float = LOOK_SECONDS
) -> T:
    """As `until`, while the loop runs on."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(look_seconds):
                await asyncio.Event().wait()
