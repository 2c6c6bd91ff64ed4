"""Storage without threads: a store in which nobody sleeps, and a flush in three steps with others in between."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from cdc.simulate.surroundings import Surroundings
from cdc.simulate.virtual_loop import Busy
from storage.flush import Flushed
from storage.store import Store

_IDLE_SECONDS: Final = 0.05
"""Between two looks while nothing is due: a real one is woken, which no story can tell from a look in good time."""


@dataclass(slots=True)
class Flushing:
    """The lock of those who flush: instead of waiting for it, the thread begins again later."""

    is_taken: bool = False
    depth: int = field(default=0)

    def acquire(self, timeout: float = -1) -> bool:  # noqa: ARG002 - as the real one
        """Take it, or come again."""
        if self.is_taken:
            raise Busy
        return True

    def release(self) -> None:
        """Nothing was kept."""


class WaitlessStore(Store):
    """A store in which nobody sleeps."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.flushing: Any = Flushing()

    def wait_for_room(self, size: int, timeout_seconds: float, *, log: int | None = None) -> bool:  # noqa: ARG002 - no time passes on a thread
        """Look once, and wake the flusher."""
        with self.lock:
            state = None if log is None else self.log(log).state
            has_room = self._buffer.has_room(size, state)
            if not has_room:
                self._buffer.make_room()
                self.flush_wanted.set()
            return has_room


class Flusher:
    """A flush in three steps, with others in between."""

    def __init__(
        self,
        around: Surroundings,
        store: WaitlessStore,
        on_flushed: Callable[[Sequence[Flushed]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._around = around
        self._store = store
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._is_stopping = False

    def start(self) -> Self:
        """Run beside all else."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    def stop(self) -> None:
        """What a real one does in the thread that stops it."""
        self._is_stopping = True
        if not self._store.flushing.is_taken:
            self._task.cancel()  # it only waits
        if not self._task.done():
            raise Busy
        flushed = self._store.flush_all()
        if flushed:
            self._on_flushed(flushed)

    async def _run(self) -> None:
        try:
            pause = 0.0
            while not self._is_stopping and not self._around.is_dead:
                await self._around.pause(max(pause, 0.01 * self._around.flush_pace))
                pause = 0.0 if await self._flush() else _IDLE_SECONDS
        except asyncio.CancelledError:
            return
        except BaseException as failure:  # noqa: BLE001 - as the thread: whatever ends it is told
            if not self._around.is_dead:
                self._on_failure(failure)

    async def _flush(self) -> bool:
        store = self._store
        job = store.begin_flush()
        if job is None:
            return False
        store.flushing.is_taken = True
        try:
            await self._around.pause(0.01)
            job.run(store.disk)
            await self._around.pause(0.002)
        finally:
            store.flushing.is_taken = False
            flushed = store.end_flush(job)
        if flushed:
            self._on_flushed(flushed)
        return True
