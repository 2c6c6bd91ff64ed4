"""When the stream counts as quiet, and what it means to a G that has nothing more to wait for; in made-up time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import numpy as np
import pytest

from cdc.simulate.virtual_loop import THREAD_SECONDS, VirtualLoop
from cdc.source.lsn import Lsn
from flush_tracker.stream import Commits, Touched
from flush_tracker.tracker import FlushTracker
from shapes.acknowledge import Acknowledger
from shapes.limits import ACKNOWLEDGE_LOOK_SECONDS, ACKNOWLEDGE_SECONDS, QUIET_SECONDS
from shapes.quiet import QuietWatch
from storage.memory_disk import MemoryDisk
from storage.offset import LogOffset
from storage.progress import Incarnation, ProgressLog

SLOW_SECONDS = max(THREAD_SECONDS)
"""What a sync takes at most."""


def in_made_up_time(story: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(1))) as runner:
        runner.run(_awaited(story))


async def _awaited(story: Callable[[], Awaitable[None]]) -> None:
    await story()


def now() -> float:
    return asyncio.get_running_loop().time()


async def pause(seconds: float) -> None:
    """Made-up time passes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


class Watched:
    """A watch, and when it told what."""

    def __init__(self) -> None:
        self.is_receiving = False
        self.told: list[float] = []
        self.watch = QuietWatch(lambda: self.is_receiving, lambda: self.told.append(now()), QUIET_SECONDS)


def test_a_wait_without_a_word_is_quiet_once() -> None:
    async def story() -> None:
        watched = Watched()
        with watched.watch:
            await pause(100 * QUIET_SECONDS)
        await pause(1.0)
        assert watched.told == [pytest.approx(QUIET_SECONDS)]
        with watched.watch:
            await pause(100 * QUIET_SECONDS)
        assert len(watched.told) == 2

    in_made_up_time(story)


def test_short_waits_are_no_quiet() -> None:
    async def story() -> None:
        watched = Watched()
        for _ in range(10):
            with watched.watch:
                await pause(0.9 * QUIET_SECONDS)
        await pause(1.0)
        assert watched.told == []

    in_made_up_time(story)


def test_a_batch_that_is_gathered_is_no_quiet() -> None:
    async def story() -> None:
        watched = Watched()
        with watched.watch:
            watched.is_receiving = True
            await pause(5.5 * QUIET_SECONDS)
            assert watched.told == []
            watched.is_receiving = False
            await pause(QUIET_SECONDS)
            assert len(watched.told) == 1

    in_made_up_time(story)


class Rig:
    """An acknowledger, the tracker that it asks, and when the server was told what."""

    def __init__(self) -> None:
        self.tracker = FlushTracker(Incarnation(1, 1, 1), 100)
        self.tracker.attach(1, 0.0)
        self.told: list[tuple[float, int]] = []
        self._last = 0
        progress = ProgressLog(MemoryDisk())
        self.acknowledger = Acknowledger(self.tracker, progress, lambda: 1, self._confirm)

    def _confirm(self, lsn: Lsn) -> None:
        if int(lsn) > self._last:
            self._last = int(lsn)
            self.told.append((now(), self._last))

    def commit(self, tx: int, *, durable: bool) -> None:
        """A transaction with a row of the shape."""
        one = np.array([tx], np.int64)
        commits = Commits(one, one + 10, np.ones(1, np.int64), one)
        self.tracker.commits(commits, Touched(np.array([1]), np.array([0, 1]), np.zeros(1, np.int64)), now())
        if durable:
            self.flush(tx)
        self.acknowledger.wake()

    def flush(self, tx: int) -> None:
        self.tracker.flushed(1, LogOffset(tx, 1), now())
        self.acknowledger.wake()


def acknowledging(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def run() -> None:
        rig = Rig()
        task = asyncio.create_task(rig.acknowledger.run())
        await pause(10 * ACKNOWLEDGE_LOOK_SECONDS)  # whatever it confirms at its start is long ago
        rig.told.clear()
        await story(rig)
        task.cancel()
        await asyncio.wait([task])

    in_made_up_time(run)


def test_a_commit_on_an_idle_system_is_confirmed_with_its_flush() -> None:
    """The look at G when the commit came, in vain, costs the flush behind it nothing."""

    async def story(rig: Rig) -> None:
        rig.commit(1000, durable=False)
        await pause(0.001)
        assert rig.told == []
        rig.flush(1000)
        flushed_at = now()
        await pause(1.0)
        assert [lsn for _, lsn in rig.told] == [1010]
        assert rig.told[0][0] - flushed_at <= SLOW_SECONDS

    acknowledging(story)


def test_the_last_flush_of_a_busy_stream_is_confirmed_at_once() -> None:
    async def story(rig: Rig) -> None:
        for step in range(20):  # the stream is always ahead of the disk
            rig.commit(1000 + 100 * step, durable=False)
            if step:
                rig.flush(900 + 100 * step)
            await pause(ACKNOWLEDGE_SECONDS / 3)
        rig.flush(2900)
        settled_at = now()
        await pause(1.0)
        assert rig.told[-1][1] == 2910
        assert rig.told[-1][0] - settled_at <= SLOW_SECONDS

    acknowledging(story)


@pytest.mark.parametrize("step_seconds", [0.004, 0.03, 0.07])
def test_a_trickle_that_is_settled_each_time_is_confirmed_no_more_often(step_seconds: float) -> None:
    async def story(rig: Rig) -> None:
        began = now()
        for tx in range(1000, 21000, 100):
            rig.commit(tx, durable=True)
            await pause(step_seconds)
        seconds = now() - began
        assert len(rig.told) <= seconds / ACKNOWLEDGE_SECONDS + 3
        assert len(rig.told) >= seconds / (ACKNOWLEDGE_SECONDS + step_seconds + SLOW_SECONDS) - 1
        await pause(2 * ACKNOWLEDGE_SECONDS)
        assert rig.told[-1][1] == 20910

    acknowledging(story)


def test_a_stream_that_is_never_settled_is_confirmed_at_its_pace() -> None:
    async def story(rig: Rig) -> None:
        began = now()
        rig.commit(1000, durable=False)
        for tx in range(1100, 11000, 100):
            rig.commit(tx, durable=False)
            rig.flush(tx - 100)
            await pause(0.01)
        moments = [at for at, _ in rig.told]
        assert len(moments) >= (now() - began) / (ACKNOWLEDGE_SECONDS + 0.01 + SLOW_SECONDS) - 1
        assert min(np.diff(moments)) >= ACKNOWLEDGE_SECONDS - SLOW_SECONDS

    acknowledging(story)
