"""The properties that hold at every step, and after every crash; and those that hold when everything has healed."""

from cdc.app import App
from cdc.simulate.oracle import Expectation, Violation, base_of, compare
from cdc.simulate.surroundings import Surroundings
from shapes.definition import Definition
from storage.catalog import Catalog
from storage.catalog_records import Life, Shape
from storage.clocks import Clocks
from storage.disk import Disk
from storage.errors import StorageError
from storage.memory_disk import luckiest
from storage.offset import LogOffset
from storage.progress import ProgressLog
from storage.store import Store
from storage.store_reader import StoreReader


class Checks:
    """Compares the program with the server."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._expected: dict[tuple[int, str], Expectation] = {}
        self.app: App | None = None

    def expected(self, shape: Shape) -> Expectation:
        """What the shape's log must hold."""
        found = self._expected.get((shape.log, shape.handle))
        if found is None:
            definition, snapshot = Definition.from_json(shape.definition), shape.snapshot
            server = self._around.server
            seen = server.snapshots[snapshot.xmin, snapshot.xmax, snapshot.xip]
            found = Expectation(server, definition, self._around.predicate(definition.where), seen)
            self._expected[shape.log, shape.handle] = found
        return found

    def step(self, app: App) -> None:
        """Safety, as readers in the process see it."""
        store, reader = app.store, StoreReader(app.store)
        for entry in app.house.registry.living():
            opened = store.logs.peek(entry.log)
            if entry.shape.life is Life.READY and opened is not None and opened.state.fault is None:
                visible, durable = store.marks(entry.log)
                if durable > visible:
                    raise Violation(f"log {entry.log}: D {durable} is above V {visible}")
                compare(reader, entry.shape, self.expected(entry.shape), visible)

    def confirming(self, app: App, lsn: int) -> None:
        """What is about to be confirmed is durable in every listed shape, and in the G log."""
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
        last, confirmed = progress.history.latest, self._around.server.confirmed
        g = 0 if last is None else last.lsn
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

    def look_at_copy(self) -> None:
        """As a crash at this moment would leave it, if nothing was lost that was written."""
        self.after_crash(self._around.memory.crash_image(luckiest))

    def is_quiet(self, app: App) -> str:
        """What is still on its way; nothing when all is."""
        house = app.house
        last = max((one.end_lsn for one in self._around.server.wal if one.is_sent), default=0)
        g = house.collector.tracker.g.lsn
        if app.nursery.orders:
            return f"births: {[(str(order.definition), order.status) for order in app.nursery.orders]}"
        if g < last:
            return (
                f"G is {g}, the last commit ends at {last}: {house.collector.tracker.explain(house.clocks.monotonic())}"
            )
        if (self._around.server.confirmed or 0) < last:
            return f"the server heard {self._around.server.confirmed} of {last}"
        for entry in house.registry.living():
            if entry.shape.life is not Life.READY:
                return f"{entry.handle} is {entry.shape.life}"
            visible, durable = app.store.marks(entry.log)
            if visible != durable:
                return f"log {entry.log}: V is {visible} and D {durable}"
            at = self.expected(entry.shape).last_below(1 << 63)
            if at is not None and at > visible:
                return f"log {entry.log}: V is {visible}, and there is a row at {at}"
            reader = StoreReader(app.store)
            self._is_emptied(reader, entry.shape, 1 << 63)
            if base_of(reader, entry.shape).number != entry.shape.base:
                return f"log {entry.log} has a newer base than its shape, {entry.shape.base}"
        return ""

    def _is_durable(self, shape: Shape, durable: LogOffset, g: int) -> None:
        at = self.expected(shape).last_below(g)
        if at is not None and at > durable:
            raise Violation(f"{shape.handle} (log {shape.log}) is durable to {durable}, G is {g}, and a row is at {at}")

    def _is_emptied(self, reader: StoreReader, shape: Shape, g: int) -> None:
        """A TRUNCATE below G, which is not sent again, has its base."""
        at = self.expected(shape).last_truncate_below(g)
        if at is not None and base_of(reader, shape).last < at:
            raise Violation(f"{shape.handle} (log {shape.log}) has no base for the TRUNCATE at {at}, and G is {g}")
