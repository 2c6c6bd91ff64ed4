"""The way of G to the server: into the G log, synced, and only then into a status reply. Coalesced.

Invariants:
    what is confirmed was in the G log before, as of a catalog that lists no shape with less
    a G record's catalog version and its LSN were true at the same moment
    a disk that refuses holds G back, and nothing else
    G waits for no more to come where all that was received is on disk, unless that was so a moment ago
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from cdc.source.lsn import Lsn
from flush_tracker.tracker import FlushTracker
from shapes.limits import ACKNOWLEDGE_LOOK_SECONDS, ACKNOWLEDGE_SECONDS
from shapes.threads import in_thread
from storage.errors import SharedDiskFault
from storage.head_start import HeadStart
from storage.limits import FAULT_RETRY_SECONDS
from storage.progress import Incarnation, ProgressLog, ProgressRecord

logger = logging.getLogger(__name__)


class Acknowledger:
    """Runs beside the stream."""

    def __init__(
        self,
        tracker: FlushTracker,
        progress: ProgressLog,
        catalog_version: Callable[[], int],
        confirm: Callable[[Lsn], None],
    ) -> None:
        self._tracker = tracker
        self._progress = progress
        self._catalog_version = catalog_version
        self._confirm = confirm
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._due_at = 0.0
        """Of the next confirmation of a G that grows on."""
        self._head_start = HeadStart(ACKNOWLEDGE_SECONDS)
        self.fault: SharedDiskFault | None = None
        """Why G stands still on its way, if it does."""

    def wake(self) -> None:
        """G may have grown."""
        self._news.set()

    async def run(self) -> None:
        """Confirm what there is to confirm, every `ACKNOWLEDGE_SECONDS`; all there is also between, now and then."""
        while True:
            await self._until_due()
            try:
                await self.acknowledge()
                self.fault = None
            except SharedDiskFault as fault:
                if self.fault is None:
                    logger.error("nothing is confirmed to the server: %s", fault)  # noqa: TRY400 - it says all
                self.fault = fault
                self._news.set()
                await asyncio.sleep(FAULT_RETRY_SECONDS)

    async def _until_due(self) -> None:
        """Wait until G is to be looked at: it may have grown, and its time has come."""
        # What ends a shape lets G grow too, and need not know of us.
        look_at = self._clock() + ACKNOWLEDGE_LOOK_SECONDS
        has_news = False
        while (seconds := (self._due() if has_news else look_at) - self._clock()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
                    self._news.clear()
                    has_news = True

    def _due(self) -> float:
        return min(self._due_at, self._head_start.allowed_at) if self._tracker.is_settled else self._due_at

    async def acknowledge(self) -> None:
        """Confirm G as it is now."""
        async with self._turn:
            incarnation, g = self._tracker.incarnation, self._tracker.g
            if incarnation is None:
                return  # there was no stream yet
            assert isinstance(incarnation, Incarnation)
            record = ProgressRecord(incarnation, g.lsn, self._catalog_version(), g.commit_time)
            if self._progress.history.is_news(record):
                await in_thread(self._progress.append, record)
                self._due_at = self._clock() + ACKNOWLEDGE_SECONDS
                self._head_start.done(self._clock())
            if self._tracker.incarnation == incarnation:
                self._confirm(Lsn(g.lsn))
