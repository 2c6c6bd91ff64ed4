"""The writer of the demo: recovers, goes on where the confirmed transactions end, and is killed at any moment.

Everything it needs to know after a kill is in the folder: the progress log says up to where the shop may forget, and
the shop sends the rest again. What a log has of that is recognised by its offsets.
"""

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cdc.demo import shop
from cdc.demo.births import logs_of_tables
from cdc.demo.confirmed import Confirmed
from cdc.demo.fragments import Fragment, Part, fragments
from cdc.demo.messages import LargeBegun, Progress, Recovered, Stopped, tell
from cdc.demo.orders import Orders
from cdc.inspect.survey import rows_on_disk
from storage.catalog import Catalog
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.errors import BufferFull
from storage.flush import Flushed
from storage.flush_control import FlushOptions
from storage.flusher import Flusher
from storage.folder_lock import FolderLock
from storage.limits import KIB
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.rows import offset_at
from storage.store import Store, StoreOptions

INCARNATION: Final = Incarnation(system_identifier=shop.SEED, timeline=1, slot_epoch=1)

OPTIONS: Final = StoreOptions(
    # Far below the defaults, so that within seconds a little data goes every way that much data goes in hours:
    # through the journal, out of it again, and straight to segments.
    flush=FlushOptions(own_segment_bytes=32 * KIB, journal_bytes_max=512 * KIB, journal_file_bytes_max=128 * KIB)
)

SMALL_SECONDS: Final = 0.04
"""Between fragments of small transactions: 200 transactions a second, which a busy laptop still does."""

PIECE_SECONDS: Final = 0.02
"""Between the pieces of a large transaction: it takes 0.3 to 0.5 s, and several flushes, until it commits."""

TELL_SECONDS: Final = 0.1
"""Between two reports: as often as a person can follow."""

CONFIRM_SECONDS: Final = 0.5
"""Between two confirmations: seldom enough that a kill makes the shop send again what is on disk already."""


class Writer:
    """One life of the writer."""

    def __init__(self, disk: LocalDisk, clocks: Clocks) -> None:
        self._clocks = clocks
        self._progress = ProgressLog(disk)
        latest = self._progress.history.latest
        self._lsn = 0 if latest is None else latest.lsn
        start = shop.first_above(self._lsn)
        before = rows_on_disk(disk)
        began = clocks.monotonic()
        self._store = Store(disk, clocks, OPTIONS, confirmed_tx=self._lsn)
        self._catalog = Catalog(disk)
        self._logs = logs_of_tables(self._store, self._catalog, now=clocks.wall())
        durable = {table: self._store.marks(log)[1] for table, log in self._logs.items()}
        seconds = clocks.monotonic() - began
        after = rows_on_disk(disk)
        self._tables = {log: table for table, log in self._logs.items()}
        self._known = max((shop.transaction_at(end.tx) for end in durable.values() if not end.is_snapshot), default=-1)
        self._confirmed = Confirmed(start - 1, durable)
        self._confirmed_at = clocks.monotonic()
        self._lock = threading.Lock()
        """Guards what is confirmed: transactions are added in one thread, and flushed in another."""
        self._flusher = Flusher(self._store, self._on_flushed)
        self._resume(start)
        cut = {table: before.get(log, 0) - after[log] for table, log in self._logs.items()}
        tell(Recovered(seconds, cut, max(0, self._known + 1 - start)))
        self._tell_progress(start)

    def run(self, orders: Orders) -> None:
        """Append until told to stop; then flush what is left."""
        self._flusher.start()
        told_at = 0.0
        for fragment in fragments(self._start):
            if self._flusher.failure is not None:
                raise self._flusher.failure
            self._take(fragment)
            if self._clocks.monotonic() - told_at >= TELL_SECONDS:
                told_at = self._clocks.monotonic()
                self._tell_progress(fragment.last + fragment.ends)
            if fragment.ends and fragment.last >= self._known and orders.stop.is_set():
                break
            if fragment.last > self._known:  # what is on disk already is sent again as fast as it goes
                orders.stop.wait(PIECE_SECONDS if fragment.first == fragment.last else SMALL_SECONDS)
        self._flusher.stop()
        self._confirm()  # also what was durable before this life, and was never said to be
        self._tell_progress(fragment.last + 1)
        tell(Stopped(fragment.last))

    def _resume(self, start: int) -> None:
        """Tell the store that the shop sends everything above the confirmed transactions, beginning with `start`."""
        self._start = start
        covered = LogOffset(shop.tx_of(start) - 1, OP_INFINITE) if start else SNAPSHOT_END
        self._store.resume(covered)
        self._after = dict.fromkeys(self._logs, covered)

    def _take(self, fragment: Fragment) -> None:
        if fragment.begins_large:
            tell(LargeBegun(fragment.last))
        if fragment.ends:
            with self._lock:
                self._confirmed.expect(fragment.last, self._ends(fragment))
        for part in fragment.parts:
            self._append(part)

    def _ends(self, fragment: Fragment) -> dict[str, LogOffset]:
        return {part.table: part.aligned for part in fragment.parts if part.aligned is not None}

    def _append(self, part: Part) -> None:
        log = self._logs[part.table]
        if not part.rows.num_rows:
            assert part.aligned is not None, "a part without rows is there for its commit"
            self._store.commit(log, part.aligned)
            return
        while True:
            try:
                self._store.append(log, part.rows, after=self._after[part.table], aligned=part.aligned)
                break
            except BufferFull:
                self._store.wait_for_room(part.rows.nbytes, TELL_SECONDS)
        self._after[part.table] = offset_at(part.rows, part.rows.num_rows - 1)

    def _on_flushed(self, flushed: Sequence[Flushed]) -> None:
        """In the flusher's thread: some logs are durable further, so more may be confirmed."""
        with self._lock:
            for one in flushed:
                self._confirmed.flushed(self._tables[one.log], one.aligned)
        now = self._clocks.monotonic()
        if now - self._confirmed_at >= CONFIRM_SECONDS:
            self._confirmed_at = now
            self._confirm()

    def _confirm(self) -> None:
        """Write down how far the shop may forget, before anybody is told."""
        with self._lock:
            upto = self._confirmed.advance()
        if upto >= 0 and shop.confirmed_by(upto) > self._lsn:
            lsn, version = shop.confirmed_by(upto), self._catalog.state.version
            self._progress.append(ProgressRecord(INCARNATION, lsn, version, shop.committed_at(upto)))
            self._lsn = lsn

    def _tell_progress(self, transactions: int) -> None:
        marks = {table: self._store.marks(log) for table, log in self._logs.items()}
        visible = {table: str(visible) for table, (visible, _) in marks.items()}
        durable = {table: str(durable) for table, (_, durable) in marks.items()}
        tell(Progress(visible, durable, self._lsn, max(transactions, self._known + 1)))


def write(folder: Path) -> None:
    """Be the writer of a folder until told to stop, or killed."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    orders = Orders()
    clocks = Clocks(time.monotonic)
    disk = LocalDisk(folder)
    with FolderLock(folder, started_at=clocks.wall()):
        Writer(disk, clocks).run(orders)
    disk.close()
