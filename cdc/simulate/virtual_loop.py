"""An event loop in made-up time, whose threads are none: the same seed runs everything in the same order.

Time passes only where everybody waits. What is given to a thread runs in one piece, a made-up while later: others get
in between, as with real threads, and never at two places at once.

Invariant: nothing here waits for anything real
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

THREAD_SECONDS: Final = (0.0001, 0.0003, 0.001, 0.001, 0.004, 0.02)
"""How long something takes on a thread: about what a sync takes, and sometimes much longer."""


class Busy(BaseException):
    """Raised where a thread would wait for another: it is run again later, from its start."""


class Stuck(Exception):
    """Everybody waits for somebody else."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Makes up its time."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now = 0.0
        self._selector = self
        self._threads: dict[int, asyncio.TimerHandle] = {}
        self._next_thread = 0

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._now

    def select(self, timeout: float | None) -> tuple[()]:
        """Where a loop waits for the world: here, time passes."""
        if timeout is None:
            raise Stuck("nobody will ever do anything again")
        self._now += timeout
        return ()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ANN401, ARG002 - the signature of asyncio
        """Run it a little later."""
        future = self.create_future()
        self._start_thread(future, lambda: func(*args))
        return future

    def end_threads(self) -> None:
        """Their process has ended: what has not run yet never will."""
        for thread in self._threads.values():
            thread.cancel()
        self._threads.clear()

    def _start_thread(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        number = self._next_thread
        self._next_thread += 1
        delay = self._random.choice(THREAD_SECONDS)
        self._threads[number] = self.call_later(delay, self._run_thread, number, future, work)

    def _run_thread(self, number: int, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        self._threads.pop(number, None)
        try:
            result = work()
        except Busy:
            self._start_thread(future, work)
        except BaseException as failure:  # noqa: BLE001 - whatever a thread raises, who waits for it gets it
            if not future.done():
                future.set_exception(failure)
        else:
            if not future.done():
                future.set_result(result)

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who could be woken."""
