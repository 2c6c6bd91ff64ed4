"""G on its way to the server while its record waits for the disk: of this life of the slot, and one at a time."""

import asyncio
import threading

from cdc.source.lsn import Lsn
from flush_tracker.tracker import FlushTracker
from shapes.acknowledge import Acknowledger
from storage.memory_disk import MemoryDisk
from storage.progress import Incarnation, ProgressLog


class SlowDisk(MemoryDisk):
    """Its syncs wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.may_sync = threading.Event()
        self.may_sync.set()

    def sync(self, path: str) -> None:
        self.begun.release()
        assert self.may_sync.wait(20)
        super().sync(path)


class Rig:
    """An acknowledger whose next record waits."""

    def __init__(self) -> None:
        self.disk = SlowDisk()
        self.tracker = FlushTracker(Incarnation(1, 1, 1), 100)
        self.told: list[int] = []
        self.acknowledger = Acknowledger(self.tracker, ProgressLog(self.disk), lambda: 1, self._confirm)

    def _confirm(self, lsn: Lsn) -> None:
        self.told.append(int(lsn))

    async def begin(self) -> "asyncio.Task[None]":
        """Confirm G; returns in the midst of its sync."""
        self.disk.may_sync.clear()
        while self.disk.begun.acquire(blocking=False):
            pass
        task = asyncio.create_task(self.acknowledger.acknowledge())
        assert await asyncio.to_thread(self.disk.begun.acquire, timeout=20)
        return task


async def test_g_of_the_life_before_is_not_confirmed_in_the_next() -> None:
    """Its number means another place there: the server would forget what nobody has."""
    rig = Rig()
    rig.tracker.idle_at(500)
    confirming = await rig.begin()
    rig.tracker.reset(Incarnation(1, 2, 2), 200)
    rig.disk.may_sync.set()
    await confirming
    assert rig.told == []
    await rig.acknowledger.acknowledge()
    assert rig.told == [200]


async def test_two_who_confirm_at_a_time_write_one_after_the_other() -> None:
    """A stop, or a server that stops, does not wait for the next turn; and a record log is for one thread."""
    rig = Rig()
    rig.tracker.idle_at(500)
    first = await rig.begin()
    rig.tracker.idle_at(600)
    second = asyncio.create_task(rig.acknowledger.acknowledge())
    assert not await asyncio.to_thread(rig.disk.begun.acquire, timeout=0.05)
    rig.disk.may_sync.set()
    await asyncio.gather(first, second)
    assert rig.told == [500, 600]
