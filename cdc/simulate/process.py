"""One life of the program after the other, over the same disk: started, killed in the midst of things, started again.

A *kill* ends the process, and what it wrote is in the kernel; a *power cut* leaves what was synced, and of the rest
whatever chance says. Both come before or after a change of the disk, without its caller ever learning of it.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Final

from cdc.app import App, AppSettings, running
from cdc.beside import first_of
from cdc.simulate.oracle import Violation
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.virtual_loop import VirtualLoop
from shapes.limits import LOG_BYTES
from shapes.service import ShapeService
from storage.clocks import Clocks
from storage.errors import SharedDiskFault
from storage.faulty_disk import FaultyDisk
from storage.flush_control import FlushOptions
from storage.limits import CHUNK_WIRE_BYTES
from storage.memory_disk import in_runs, luckiest, strictest
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions

START_MICROSECONDS = 1_700_000_000_000_000

COMPACTION_ODDS: Final = 0.4
"""How often a process makes updates of one row one; not beside a server that numbers changes now so, now otherwise."""


class Process:
    """The program, as a task."""

    def __init__(self, around: Surroundings) -> None:
        self.app: App | None = None
        self.failure: BaseException | None = None
        """Why it ended by itself."""
        self._around = around
        compacts = around.random.random() < COMPACTION_ODDS and not around.server.is_forgetful
        self._settings = AppSettings(
            "",
            Path(),
            shape_idle_seconds=1e9,
            log_bytes_kept=around.random.choice((1_200, 2_500) if compacts else (600, 600, 2_000, LOG_BYTES)),
            log_compaction=compacts,
            chunk_bytes=around.random.choice((300, 1_000, CHUNK_WIRE_BYTES)),
            store=some_options(around.random, has_many_segments=compacts),
        )
        self._is_to_stop = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._live())

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more, or its disk is gone and it will notice."""
        return self._task.done() or self._around.is_dead

    @property
    def service(self) -> ShapeService | None:
        """Its shapes, once it has a stream."""
        if self.app is None or self.has_ended or not self.app.house.is_streaming:
            return None
        return ShapeService(self.app.house, self.app.nursery)

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for what he asked for."""
        return bool(self._requests)

    async def stop(self) -> None:
        """End it in order."""
        for request in self._requests:
            request.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        self._is_to_stop.set()
        await asyncio.wait({self._task})
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others and self.failure is None and not self._around.is_dead:
            self.failure = Violation(f"the process has stopped, and there runs {min(map(str, others))}")

    def request(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Let somebody ask for something; it ends with the process."""
        task = asyncio.get_running_loop().create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    async def bury(self) -> None:
        """End all its tasks; its disk is gone, so none of them does anything any more."""
        self._task.cancel()
        await asyncio.wait({self._task})
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in sorted(others, key=lambda task: task.get_name()):
            task.cancel()
        if others:
            await asyncio.wait(others)
        for task in others:
            if not task.cancelled():
                task.exception()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "simulations run nowhere else"
        loop.end_threads()

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        clocks = Clocks(loop.time, lambda: START_MICROSECONDS + int(loop.time() * 1e6))
        try:
            async with running(self._settings, clocks) as app:
                self.app = app
                await self._is_to_stop.wait()
        except SharedDiskFault as fault:
            has_begun = self.app is not None and self.app.house.is_streaming
            self.failure = fault if has_begun else None  # a start may be refused, and is tried again
        except BaseException as failure:  # noqa: BLE001 - whatever it is, the simulation is told
            if not self._around.is_dead:
                self.failure = failure
        finally:
            self.app = None


def some_options(random: Random, *, has_many_segments: bool) -> StoreOptions:
    """Bounds of any size, so that each of them is met."""
    own, largest = ((1,), (1, 3_000)) if has_many_segments else ((1, 1, 1_500, 100_000), (1, 1, 3_000, 1_000_000))
    buffer = BufferOptions(
        bytes_max=random.choice((60_000, 10_000_000)),
        flush_log_bytes=random.choice((300, 3_000, 1_000_000)),
        flush_log_rows=random.choice((1, 5, 1_000)),
        flush_age_seconds=random.choice((0.01, 0.1, 1.0)),
    )
    own_bytes, segment_bytes = random.choice(own), random.choice(largest)
    journal_bytes = random.choice((6_000, 40_000, 1_000_000))
    flush = FlushOptions(
        own_segment_bytes=own_bytes,
        segment_bytes_max=segment_bytes,
        journal_bytes_max=journal_bytes,
        journal_joined_bytes_max=journal_bytes,
        journal_file_bytes_max=random.choice((2_000, 4_000)),
        fault_retry_seconds=0.2,
    )
    return StoreOptions(buffer, flush)


def after_a_kill(around: Surroundings) -> None:
    """The disk as the next process of the same kernel finds it."""
    memory = around.memory
    memory.crash_at_operation = memory.crash_at_sync = None
    memory.crashed = False
    around.disk = FaultyDisk(memory, around.disk.plan, forgotten=around.disk.forgotten)


def after_a_power_cut(around: Surroundings) -> None:
    """The disk as it is found when the power is back."""
    random = around.random
    choose = random.choice((strictest, luckiest, in_runs(random.randrange), in_runs(random.randrange)))
    around.memory = around.memory.crash_image(choose)
    around.disk = FaultyDisk(around.memory, around.disk.plan)


def broken(failure: BaseException) -> Violation:
    """A process that ended by itself is a finding."""
    failure = first_of(failure)
    if isinstance(failure, Violation):
        return failure
    found = Violation(f"the process ended by itself: {type(failure).__name__}: {failure}")
    found.__cause__ = failure
    return found
