"""The properties that hold at every step, and after every crash; and those that hold when everything has healed."""

from typing import Any, Final

from cdc.app import App
from cdc.simulate.comparison import base_of, compare, follow
from cdc.simulate.definitions import predicate_of
from cdc.simulate.oracle import Expectation, Violation
from cdc.simulate.publisher import publication
from cdc.simulate.readers import Readers
from cdc.simulate.surroundings import Surroundings
from shapes.definition import Definition
from shapes.stream_record import StreamRecord, read_stream_record
from storage.catalog import Catalog
from storage.catalog_records import Life, Shape
from storage.clocks import Clocks
from storage.disk import Disk
from storage.errors import StorageError
from storage.log_counts import log_bytes
from storage.memory_disk import luckiest
from storage.offset import LogOffset
from storage.progress import ProgressLog
from storage.retention import RetentionPolicy, over_limit
from storage.store import Store
from storage.store_reader import StoreReader

_LOOKS_BETWEEN_READS_OF_ALL: Final = 16


class Checks:
    """Compares the program with the server."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._expected: dict[tuple[int, str], Expectation] = {}
        self._timeline = around.server.timeline
        self._crashes = 0
        self._followed_app: App | None = None
        self._followed: dict[str, tuple[LogOffset, int]] = {}
        """By handle: how far a reader in this process has read, and how often it has looked."""
        self._readers = Readers(self.expected, is_forgetful=around.server.is_forgetful)

    def expected(self, shape: Shape) -> Expectation:
        """What the shape's log must hold."""
        found = self._expected.get((shape.log, shape.handle))
        if found is None:
            definition, snapshot = Definition.from_json(shape.definition), shape.snapshot
            server = self._around.server
            seen = server.snapshots[snapshot]
            found = Expectation(server, definition, predicate_of(definition.where), seen)
            self._expected[shape.log, shape.handle] = found
        return found

    def step(self, app: App) -> None:
        """Safety, as readers in the process see it."""
        if not self._is_present(app.house.lineage.record):
            return
        if app is not self._followed_app:
            self._followed_app, self._followed = app, {}
        store, reader = app.store, StoreReader(app.store)
        for entry in app.house.registry.living():
            opened = store.logs.peek(entry.log)
            if entry.shape.life is Life.READY and opened is not None and opened.state.fault is None:
                visible, durable = store.marks(entry.log)
                if durable > visible:
                    raise Violation(f"log {entry.log}: D {durable} is above V {visible}")
                self._look(reader, entry.shape, visible)
        if app.house.is_streaming:
            self._readers.look(app)

    def _look(self, reader: StoreReader, shape: Shape, visible: LogOffset) -> None:
        """As somebody reads who has read before; now and then as somebody who begins anew."""
        upto, looks = self._followed.get(shape.handle, (visible, 0))
        if looks and upto == visible:
            return
        if visible < upto:
            raise Violation(f"log {shape.log}: V was {upto}, and is {visible}")
        if looks % _LOOKS_BETWEEN_READS_OF_ALL:
            follow(reader, shape, self.expected(shape), upto, visible)
        else:
            compare(reader, shape, self.expected(shape), visible)
        self._followed[shape.handle] = (visible, looks + 1)

    def confirming(self, app: App, lsn: int) -> None:
        """What is about to be confirmed is durable in every listed shape, and in the G log."""
        if not self._is_present(app.house.lineage.record):
            return
        last = app.progress.history.latest
        if last is None or lsn > last.lsn:
            raise Violation(f"{lsn} is confirmed, and the G log has {last}")
        for entry in app.house.registry.living():
            if entry.shape.life is Life.READY and app.store.logs.peek(entry.log) is not None:
                _, durable = app.store.marks(entry.log)
                self._is_durable(entry.shape, durable, lsn)

    def after_crash(self, disk: Disk) -> None:
        """What the next start will find, looked at on a copy."""
        try:
            self._after_crash(disk)
        except StorageError as error:
            raise Violation(f"after a crash, the folder cannot be read: {error}") from error

    def _after_crash(self, disk: Disk) -> None:
        catalog, progress = Catalog(disk), ProgressLog(disk)
        record = read_stream_record(disk)
        if record is None or record.identity is None or not self._is_present(record):
            return
        last, confirmed = progress.history.last_of(record.incarnation), self._around.server.confirmed
        g = record.start if last is None else last.lsn
        if last is not None and confirmed is not None and confirmed > g:
            raise Violation(f"the server was told {confirmed}, and after the crash the G log ends with {g}")
        store = Store(disk, Clocks(lambda: 0.0, lambda: 0), confirmed_tx=g)
        reader = StoreReader(store)
        for shape in catalog.state.living():
            if shape.life is Life.READY:
                visible, durable = store.marks(shape.log)
                if visible != durable:
                    raise Violation(f"log {shape.log}: after a crash V is {visible} and D {durable}")
                self._is_durable(shape, durable, g)
                self._is_emptied(reader, shape, g)
                compare(reader, shape, self.expected(shape), durable)

    def without_reason(self, logs: set[int]) -> set[int]:
        """Those of the logs for whose end the server did nothing."""
        for (log, _), expected in self._expected.items():
            if log in logs and expected.is_unsound_at(1 << 63):
                logs = logs - {log}
        return logs

    def look_at_copy(self) -> None:
        """As a crash at this moment would leave it, if nothing was lost that was written."""
        self.after_crash(self._around.memory.crash_image(luckiest))

    def _is_present(self, record: StreamRecord | None) -> bool:
        """Whether what the process has is of the server's timeline: what was streamed of another may be undone."""
        server = self._around.server
        timeline = server.timeline
        if server.crashes != self._crashes:
            self._crashes, self._expected = server.crashes, {}  # who follows goes on: nothing that he has was undone
        if timeline != self._timeline:
            self._timeline, self._expected, self._followed = timeline, {}, {}
            self._readers.forget()
        return record is None or record.identity is None or record.identity.timeline == timeline

    def is_quiet(self, app: App) -> str:
        """What is still on its way; nothing when all is."""
        house = app.house
        last = max((one.end_lsn for one in self._around.server.wal if one.is_sent), default=0)
        g = house.collector.tracker.g.lsn
        if not self._is_present(house.lineage.record):
            return "a standby has taken over, and the process has not met it"
        publisher: Any = house.session.publisher  # the one that stands in
        if not publisher.alterations.is_settled or publisher.baseline != publication(self._around.server):
            return "somebody altered the publication, and nobody has looked"
        if app.nursery.orders:
            return f"births: {[(str(order.definition), order.status) for order in app.nursery.orders]}"
        if g < last:
            return (
                f"G is {g}, the last commit ends at {last}: {house.collector.tracker.explain(house.clocks.monotonic())}"
            )
        if (self._around.server.confirmed or 0) < last:
            return f"the server heard {self._around.server.confirmed} of {last}"
        lacks = (self._lacks(app, entry.shape) for entry in house.registry.living())
        return next(filter(None, lacks), "") or self._readers.waits(app)

    def _lacks(self, app: App, shape: Shape) -> str:
        """What is missing in a shape; nothing if nothing is."""
        if shape.life is not Life.READY:
            return f"{shape.handle} is {shape.life}"
        visible, durable = app.store.marks(shape.log)
        if visible != durable:
            return f"log {shape.log}: V is {visible} and D {durable}"
        expected = self.expected(shape)
        table = self._around.server.relations.get(expected.definition.oid)
        if table is None or not expected.fits(table.version):
            return f"{shape.handle} does not fit its table any more"
        at = expected.last_below(1 << 63)
        if expected.hole_at is not None:
            return f"{shape.handle} lacks what somebody left out of the publication"
        if at is not None and at.tx > visible.tx:
            return f"log {shape.log}: V is {visible}, and there is a row at {at}"
        reader = StoreReader(app.store)
        self._is_emptied(reader, shape, 1 << 63)
        is_long = log_bytes(app.store, shape.log) > app.settings.log_bytes_kept
        if is_long and base_of(reader, shape).number != shape.base:  # else an earlier process had another bound
            return f"log {shape.log} has a newer base than its shape, {shape.base}"
        return self._is_short(app, shape.log)

    def _is_short(self, app: App, log: int) -> str:
        """What is to be folded, and is not."""
        kept = app.settings.log_bytes_kept
        size, files = log_bytes(app.store, log), app.store.log(log).files
        for segment in files.segments:
            segment.load(app.store.disk)
        tried = app.folding._tried.get(log, 0)  # noqa: SLF001 - it may have grown while it was tried in vain
        if size > max(kept, tried) and over_limit(files, RetentionPolicy(kept // 2), now=0, held=None):
            return f"log {log} has {size} bytes in {len(files.segments)} segments, and should be folded to {kept}"
        return ""

    def _is_durable(self, shape: Shape, durable: LogOffset, g: int) -> None:
        expected = self.expected(shape)
        expected.check_end(g - 1)
        at = expected.last_below(g)
        if at is not None and at.tx > durable.tx:
            raise Violation(f"{shape.handle} (log {shape.log}) is durable to {durable}, G is {g}, and a row is at {at}")

    def _is_emptied(self, reader: StoreReader, shape: Shape, g: int) -> None:
        """A TRUNCATE below G, which is not sent again, has its base."""
        at = self.expected(shape).last_truncate_below(g)
        if at is not None and base_of(reader, shape).last < at:
            raise Violation(f"{shape.handle} (log {shape.log}) has no base for the TRUNCATE at {at}, and G is {g}")
