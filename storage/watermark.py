"""A value that grows, and those who wait until it is above something: threads, or event loops through a callback.

There are two for each log (visible, durable), so tens of thousands: while nobody waits, one is two slots and a lock
that all of them share, which is held for a few instructions at a time and never while a callback runs.

Invariants:
    the value is stored before anybody is woken: whoever is woken can read it
    value <= above, for every waiter in the list; the list is in ascending order, and None when it is empty
    each subscription ends once: its callback is called, or it was cancelled; after `close` there is none
    only `reset` lowers the value
"""

import logging
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from storage.limits import WAIT_SECONDS_MAX

_LOG: Final = logging.getLogger(__name__)
_LOCK: Final = threading.Lock()


class Ordered(Protocol):
    """A type whose values have an order."""

    def __lt__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - as tuples and numbers declare it


Value = TypeVar("Value", bound=Ordered)


class Subscription(Generic[Value]):
    """Somebody's wait for a value above `above`."""

    __slots__ = ("_callback", "_watermark", "above")

    def __init__(self, watermark: "Watermark[Value]", above: Value, callback: Callable[[Value | None], None]) -> None:
        self.above = above
        self._watermark = watermark
        self._callback = callback

    def cancel(self) -> bool:
        """Wait no longer. Whether that was in time: if not, the callback was or will be called. Again is nothing."""
        return self._watermark._remove(self)  # noqa: SLF001 - two halves of one thing

    def _call(self, value: Value | None) -> None:
        try:
            self._callback(value)
        except Exception:  # noqa: BLE001 - see below
            # One reader's fault, such as a closed event loop, is neither the writer's nor the other readers'.
            _LOG.exception("a callback of a watermark failed")


class Watermark(Generic[Value]):
    """The value and its waiters; every method may be called from any thread."""

    __slots__ = ("_value", "_waiters")

    def __init__(self, initial: Value) -> None:
        self._value = initial
        self._waiters: list[Subscription[Value]] | _Closed | None = None

    @property
    def value(self) -> Value:
        """The present value."""
        return self._value

    @property
    def closed(self) -> str | None:
        """Why there is no waiting any more."""
        return self._waiters.reason if isinstance(self._waiters, _Closed) else None

    def advance(self, to: Value) -> bool:
        """Raise the value and wake who waited for that; False, and nothing, for one that is not above it."""
        with _LOCK:
            if not self._value < to:
                return False
            self._value = to
            woken = self._take_below(to)
        for waiter in woken:
            waiter._call(to)  # noqa: SLF001
        return True

    def reset(self, to: Value) -> None:
        """Set the value, also to a lower one."""
        with _LOCK:
            self._value = to
            woken = self._take_below(to)
        for waiter in woken:
            waiter._call(to)  # noqa: SLF001

    def subscribe(self, above: Value, callback: Callable[[Value | None], None]) -> Subscription[Value]:
        """Call back once, with the value as soon as it is above `above`, or with None when closed.

        The callback runs in the thread that advances; or at once, in this one, if there is nothing to wait for. It
        must be short, as `loop.call_soon_threadsafe` is.
        """
        waiter = Subscription(self, above, callback)
        with _LOCK:
            value = self._value
            if not above < value and not isinstance(self._waiters, _Closed):
                if self._waiters is None:
                    self._waiters = []
                insort(self._waiters, waiter, key=_above)
                return waiter
        waiter._call(value if above < value else None)  # noqa: SLF001
        return waiter

    def wait_above(self, above: Value, timeout_seconds: float) -> Value | None:
        """Block this thread until the value is above `above`; None when closed, or after the time.

        The time is at most `WAIT_SECONDS_MAX`.
        """
        outcome: list[Value | None] = []
        woken = threading.Event()

        def wake(value: Value | None) -> None:
            outcome.append(value)
            woken.set()

        waiter = self.subscribe(above, wake)
        if not woken.wait(max(0.0, min(timeout_seconds, WAIT_SECONDS_MAX))) and not waiter.cancel():
            woken.wait(WAIT_SECONDS_MAX)  # the callback is under way in another thread, behind those of others
        return outcome[0] if outcome else None

    def close(self, reason: str) -> None:
        """Wake all with None, and whoever comes later. The value can still be read, and advanced."""
        with _LOCK:
            waiters = self._waiters
            if isinstance(waiters, _Closed):
                return
            self._waiters = _Closed(reason)
        for waiter in waiters or ():
            waiter._call(None)  # noqa: SLF001

    def _take_below(self, value: Value) -> list[Subscription[Value]]:
        """The waiters whose wait is over, out of the list. Under the lock."""
        waiters = self._waiters
        if waiters is None or isinstance(waiters, _Closed):
            return []
        count = bisect_left(waiters, value, key=_above)
        taken = waiters[:count]
        del waiters[:count]
        if not waiters:
            self._waiters = None
        return taken

    def _remove(self, waiter: Subscription[Value]) -> bool:
        with _LOCK:
            waiters = self._waiters
            if waiters is None or isinstance(waiters, _Closed):
                return False
            start = bisect_left(waiters, waiter.above, key=_above)
            stop = bisect_right(waiters, waiter.above, key=_above)
            for index in range(start, stop):
                if waiters[index] is waiter:
                    del waiters[index]
                    if not waiters:
                        self._waiters = None
                    return True
            return False


class _Closed:
    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _above(waiter: Subscription[Value]) -> Value:
    return waiter.above
