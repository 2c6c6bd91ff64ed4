"""The composition root: one folder, one slot, and everything between them, started and stopped in the right order.

    start   folder lock, catalog, G log, store, flusher, session; the stream restores what was there
    stop    births end, the stream ends, what is whole is flushed and confirmed, the folder is let go

Invariants:
    whatever ends a part of it ends all of it, with that part's error: nothing runs on alone
    a stop takes STOP_SECONDS_MAX at most; what is not confirmed by then is sent again after the next start
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cdc.beside import first_of
from cdc.errors import SlotDiffers
from cdc.source.handshake import Settings as SourceSettings
from cdc.source.lsn import Lsn
from cdc.source.publication import Mode
from cdc.source.session import Session
from flush_tracker.tracker import FlushTracker
from shapes.acknowledge import Acknowledger
from shapes.capture import Capture
from shapes.collector import Collector
from shapes.endings import Endings
from shapes.folding import Folding
from shapes.household import Household
from shapes.housekeeping import Housekeeping
from shapes.limits import (
    LOG_BYTES,
    SHAPE_IDLE_SECONDS,
    SHAPE_LOG_BYTES_MAX,
    SHAPES_MAX,
    STALL_SECONDS_MAX,
    STOP_SECONDS_MAX,
)
from shapes.lineage import Lineage
from shapes.nursery import Nursery
from shapes.registry import Registry
from shapes.waits import tell
from storage.catalog import Catalog
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.errors import StorageError, named_faults
from storage.flusher import Flusher
from storage.folder_lock import FolderLock
from storage.limits import CHUNK_WIRE_BYTES
from storage.progress import ProgressLog
from storage.store import Store, StoreOptions

logger = logging.getLogger(__name__)

APPLICATION = "shapelog"


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What a server is told."""

    database_url: str
    data_dir: Path
    slot: str = "shapelog"
    publication: str = "shapelog"
    mode: Mode = "managed"
    adopt: bool = False
    heartbeat_seconds: float | None = None
    shape_idle_seconds: float = SHAPE_IDLE_SECONDS
    shapes_max: int = SHAPES_MAX
    stall_seconds: float = STALL_SECONDS_MAX
    log_bytes_max: int = SHAPE_LOG_BYTES_MAX
    log_bytes_kept: int = LOG_BYTES
    log_age_seconds: float | None = None
    log_compaction: bool = False
    chunk_bytes: int = CHUNK_WIRE_BYTES
    store: StoreOptions = field(default_factory=StoreOptions)


class App:
    """The running parts, for those who serve them."""

    def __init__(self, settings: AppSettings, disk: LocalDisk, clocks: Clocks, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        catalog = Catalog(disk)
        self.progress = ProgressLog(disk)
        lineage = Lineage(disk, self.progress, settings.slot, clocks.wall)
        confirmed, commit_time = (0, 0) if lineage.incarnation is None else lineage.g
        self.store = Store(disk, clocks, settings.store, confirmed_tx=confirmed)
        registry = Registry(catalog, clocks.wall, clocks.monotonic())
        collector = Collector(self.store, FlushTracker(lineage.incarnation, confirmed, commit_time))
        session = Session(_source_settings(settings, lineage), known=lineage.known, waiting=tell)
        endings = Endings(collector, registry, self.store, clocks)
        self.house = Household(
            settings.database_url,
            APPLICATION,
            session,
            self.store,
            registry,
            lineage,
            collector,
            endings,
            clocks,
            settings.chunk_bytes,
        )
        self.nursery = Nursery(self.house, tasks)
        endings.succeed = self.nursery.succeed
        self.acknowledger = Acknowledger(collector.tracker, self.progress, lambda: catalog.state.version, self._confirm)
        self.capture = Capture(self.house, self.acknowledger)
        self._failed: asyncio.Future[None] = loop.create_future()
        self._flusher = Flusher(self.store, self.capture.on_flushed, lambda failure: _tell(loop, self._fail, failure))
        self.housekeeping = Housekeeping(
            self.house,
            idle_seconds=settings.shape_idle_seconds,
            shapes_max=settings.shapes_max,
            stall_seconds=settings.stall_seconds,
            log_bytes_max=settings.log_bytes_max,
        )
        self.folding = Folding(
            self.house,
            log_bytes_kept=settings.log_bytes_kept,
            log_age_seconds=settings.log_age_seconds,
            compacts=settings.log_compaction,
        )
        self._tasks = tasks

    def start(self) -> None:
        """Let everything run."""
        self._flusher.start()
        runs = {
            "stream": self.capture.run(),
            "acknowledger": self.acknowledger.run(),
            "housekeeping": self.housekeeping.run(),
            "folding": self.folding.run(),
            "flusher's fate": self._fate(),
        }
        self._running = [self._tasks.create_task(run, name=name) for name, run in runs.items()]

    async def stop(self) -> None:
        """End everything in order. What the disk or the server does not let end in time is left to the next start."""
        tasks = [*self._running, *self.nursery.tasks]
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS_MAX
        self.store.release_producers()  # a cancelled task waits for its thread, and that one may wait for a full disk
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)  # one may be in the middle of a sync that does not return
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.to_thread(self._flusher.stop)
                await asyncio.sleep(0)  # what it told is told on
                await self.house.endings.settled()
                await self.acknowledger.acknowledge()
        except (TimeoutError, StorageError) as fault:
            logger.warning("not all is flushed and confirmed; the next start gets it again: %s", fault)
        await self.house.endings.give_up()
        await self.house.session.close()

    def _confirm(self, lsn: Lsn) -> None:
        """To the connection that was judged last: what a newer one leads to is not known yet (A2)."""
        self.house.session.confirm(self.house.attempt, lsn)

    def _fail(self, failure: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(failure)

    async def _fate(self) -> None:
        await self._failed


@asynccontextmanager
async def running(settings: AppSettings, clocks: Clocks | None = None) -> AsyncIterator[App]:
    """Run it all; leaving the context stops it. What ends it from within ends the body too, with its error."""
    with _folder(settings.data_dir) as disk:
        try:
            async with asyncio.TaskGroup() as tasks:
                app = App(settings, disk, clocks or Clocks(), tasks)
                app.start()
                try:
                    yield app
                finally:
                    await app.stop()
        except BaseExceptionGroup as group:
            raise first_of(group) from None


def _tell(loop: asyncio.AbstractEventLoop, hear: Callable[[BaseException], None], failure: BaseException) -> None:
    """From another thread; a loop that has ended hears nothing."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(hear, failure)


def _source_settings(settings: AppSettings, lineage: Lineage) -> SourceSettings:
    if lineage.record is not None and lineage.record.slot != settings.slot:
        raise SlotDiffers(
            f"the folder's data came from the slot {lineage.record.slot!r}, and {settings.slot!r} was asked for"
        )
    return SourceSettings(
        conninfo=settings.database_url,
        slot=settings.slot,
        publication=settings.publication,
        mode=settings.mode,
        adopt=settings.adopt or lineage.is_claimed,
        before_slot=lineage.claim,
        heartbeat_seconds=settings.heartbeat_seconds,
    )


@contextmanager
def _folder(folder: Path) -> Iterator[LocalDisk]:
    """The folder, for us alone."""
    with named_faults(str(folder), shared=True):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder, started_at=time.time_ns() // 1000)
    disk = LocalDisk(folder)
    try:
        yield disk
    finally:
        disk.close()
        lock.release()
