"""Requests that are held until there is news of their shape: woken together, by one call from the writer's thread.

Invariants:
    nobody misses news: whoever waits looks at V after he is in the list
    while nobody waits for a handle, nothing is kept of it
    at a stop all are woken at once, and nobody is held any more
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from shapes.http.limits import ENDED_LOOK_SECONDS
from shapes.service import Served
from storage.marks import Marks
from storage.offset import LogOffset
from storage.watermark import Subscription


@dataclass(slots=True)
class _Held:
    """Those who wait for one handle."""

    marks: Marks
    life: object
    waiters: set["asyncio.Future[None]"] = field(default_factory=set)
    subscription: Subscription[LogOffset] | None = None


class Wakes:
    """Who waits for which handle."""

    def __init__(self, watch: Callable[[Served], Marks], life: Callable[[str], object]) -> None:
        """`life` tells what a handle is; where that is another thing than before, its readers are woken."""
        self.is_stopping = False
        self._watch = watch
        self._life = life
        self._held: dict[str, _Held] = {}
        self._loop = asyncio.get_running_loop()
        self._look: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """Requests that are held."""
        return sum(len(held.waiters) for held in self._held.values())

    async def wait(self, served: Served, above: LogOffset, seconds: float, gone: "asyncio.Future[None]") -> None:
        """Until V is above the offset, the handle is not what it was, or the client is gone; it may be for nothing."""
        waiter = self._loop.create_future()
        held = self._held.get(served.handle)
        if held is None:
            held = self._held[served.handle] = _Held(self._watch(served), self._life(served.handle))
        held.waiters.add(waiter)
        self._listen(held)
        timer = self._loop.call_later(max(seconds, 0), _wake, waiter)
        leave = partial(_wake, waiter)
        gone.add_done_callback(leave)
        try:
            if self.is_stopping or gone.done() or above < held.marks.visible.value or held.marks.visible.closed:
                await asyncio.sleep(0)  # whoever asks again and again lets others have their turn
            else:
                await waiter
        finally:
            timer.cancel()
            gone.remove_done_callback(leave)
            held.waiters.discard(waiter)
            if not held.waiters:
                self._forget(served.handle, held)

    def stop(self) -> None:
        """Wake all; whoever asks from now on is not held."""
        self.is_stopping = True
        for held in list(self._held.values()):
            _wake_all(held)
        if self._look is not None:
            self._look.cancel()

    def _listen(self, held: _Held) -> None:
        if held.subscription is None:
            woken = partial(_woken, held)

            def tell(_: LogOffset | None) -> None:  # in the writer's thread, or at once in this one
                self._loop.call_soon_threadsafe(woken)

            visible = held.marks.visible
            held.subscription = visible.subscribe(visible.value, tell)
        if self._look is None and not self.is_stopping:
            self._look = self._loop.call_later(ENDED_LOOK_SECONDS, self._look_for_ended)

    def _look_for_ended(self) -> None:
        self._look = None
        for handle, held in list(self._held.items()):
            if self._life(handle) != held.life:
                held.life = self._life(handle)
                _wake_all(held)
        if self._held and not self.is_stopping:
            self._look = self._loop.call_later(ENDED_LOOK_SECONDS, self._look_for_ended)

    def _forget(self, handle: str, held: _Held) -> None:
        if held.subscription is not None:
            held.subscription.cancel()
            held.subscription = None
        if self._held.get(handle) is held:
            del self._held[handle]


def _wake(waiter: "asyncio.Future[None]", *_: object) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _woken(held: _Held) -> None:
    held.subscription = None
    _wake_all(held)


def _wake_all(held: _Held) -> None:
    for waiter in held.waiters:
        _wake(waiter)
