"""Who is told whom a birth waits for: the publisher is shared, and tells of its waits without saying whose they are.

Invariant: what is told within `told_to` reaches that listener, and no other; the log of events gets all of it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from cdc.source.holders import Holder
from cdc.source.publisher import Waiting

logger = logging.getLogger(__name__)

_LISTENER: Final[ContextVar[Waiting | None]] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Waiting) -> Iterator[None]:
    """Waits of this task are told to the listener."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def tell(what: str, holders: tuple[Holder, ...]) -> None:
    """Something is waited for, and these hold it."""
    logger.warning("waiting for %s: %s", what, "; ".join(map(str, holders)) or "nobody that can be named")
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, holders)
