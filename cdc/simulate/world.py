"""A story: chance does something to the server, the disk or the process, time passes, and everything is looked at.

After the last deed all heals: disk, connections, waiting commits. Then, without any further write, everything must
come to rest where it belongs.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from cdc.app import App
from cdc.simulate.checks import Checks
from cdc.simulate.definitions import relations, some_shape
from cdc.simulate.oracle import Violation
from cdc.simulate.process import Process, after_a_kill, after_a_power_cut, broken
from cdc.simulate.server import Relation, Row, Server, Transaction
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.troubled import Troubled
from shapes.errors import ShapeError
from storage.errors import SharedDiskFault
from storage.faulty_disk import FaultyDisk
from storage.memory_disk import MemoryDisk

HEALING_SECONDS: Final = 600.0
"""Made-up seconds in which all comes to rest: a few pauses between a birth's attempts."""

SHAPES_MAX: Final = 6
KEYS: Final = tuple(str(number) for number in range(1, 9))


@dataclass
class World:
    """Everything of one simulation."""

    random: Random
    trace: list[str] = field(default_factory=list)
    """What was done, for those who look for a cause."""

    def __post_init__(self) -> None:
        random = self.random
        memory = MemoryDisk()
        disk = FaultyDisk(memory, Troubled(random))
        disk.healthy = True
        server = Server(random, relations())
        self.around = Surroundings(random, server, memory, disk, random.choice((1, 2, 5, 1000)))
        self.around.flush_pace = random.choice((1, 1, 10, 100))
        self.around.refusals = random.choice((0.0, 0.0, 0.2))
        self.around.lost_snapshots = random.choice((0.0, 0.0, 0.1))
        self.around.confirming = self._confirming
        self.around.confirmed = self._confirmed
        self.checks = Checks(self.around)
        self._violation: Violation | None = None
        self._cut_is_power = False
        self.is_healing = False
        self.process = Process(self.around)

    async def run(self, steps: int) -> None:
        """Live through it; raises the first `Violation`."""
        await self._begin()
        names, weights = list(DEEDS), [weight for weight, _ in DEEDS.values()]
        for _ in range(steps):
            deed = self.random.choices(names, weights)[0]
            await self._do(deed)
            await self._look()
        await self._heal()

    async def _begin(self) -> None:
        """Mostly there are rows, and a few shapes, before anything goes wrong."""
        self.around.stalls = self.random.choice((0.0, 0.0, 0.02, 0.1))
        self.around.lags = self.random.choice((0.0, 0.02, 0.3))
        if self.random.random() < 0.2:
            return
        await self._do("storm")
        for transaction in self.around.server.waiting():
            self.around.server.show(transaction)
        await asyncio.sleep(1.0)
        for _ in range(self.random.randrange(1, SHAPES_MAX)):
            await self._do("add")
        await asyncio.sleep(2.0)

    async def _do(self, name: str) -> None:
        self.trace.append(f"{asyncio.get_running_loop().time():.4f} {name}")
        await DEEDS[name][1](self)

    async def _look(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.0005, 0.003, 0.02, 0.2)))
        if self._violation is not None:
            raise self._violation
        if self.process.has_ended:
            await self._again()
        elif self.process.app is not None:
            self.checks.step(self.process.app)

    async def _again(self) -> None:
        """The process has ended; what follows is the next one's."""
        around = self.around
        if around.is_dead:
            await self.process.bury()
            (after_a_power_cut if self._cut_is_power else after_a_kill)(around)
            self.trace.append("-- " + ("power cut" if self._cut_is_power else "killed"))
        elif self.process.failure is not None:
            raise broken(self.process.failure)
        self.checks.look_at_copy()
        around.disk.healthy = around.disk.healthy or self.random.random() < 0.5
        self.process = Process(around)

    async def _heal(self) -> None:
        """Nothing fails any more; all comes to rest, and again after a last wave of transactions."""
        around = self.around
        self.is_healing = True
        around.refusals = around.lost_snapshots = around.stalls = around.lags = 0.0
        around.memory.crash_at_operation = None
        await self._finish_transactions()
        await self._come_to_rest()
        before = self._living_logs()
        for name in ("write", "huge", "write"):
            await self._do(name)
        await self._finish_transactions()
        await self._come_to_rest()
        if ended := before - self._living_logs():
            raise Violation(f"nothing was wrong any more, and yet the logs {sorted(ended)} have ended")
        self.checks.look_at_copy()
        await self.process.stop()
        if self.process.failure is not None:
            raise broken(self.process.failure)

    def _living_logs(self) -> set[int]:
        return {entry.log for entry in self.process.app.house.registry.living()} if self.process.app else set()

    async def _finish_transactions(self) -> None:
        server = self.around.server
        for transaction in list(server.active.values()):
            if not transaction.commit_lsn and transaction.changes:
                server.commit(transaction)
            (server.show if transaction.commit_lsn else server.abort)(transaction)
        self.around.server_news.set()

    async def _come_to_rest(self) -> None:
        self.trace.append("-- healing")
        loop = asyncio.get_running_loop()
        waits, end = "the process has not started", loop.time() + HEALING_SECONDS
        while loop.time() < end:
            self.around.disk.healthy = True
            await asyncio.sleep(0.25)
            await self._look()
            app = self.process.app
            if app is not None and app.house.is_streaming:
                waits = self.checks.is_quiet(app)
                if not waits:
                    return
        raise Violation(f"everything is healed, and it does not come to rest: {waits}")

    # What the process does

    def _confirming(self, lsn: int) -> None:
        if self.process.app is not None:
            self._watch(lambda app: self.checks.confirming(app, lsn))

    def _confirmed(self, lsn: int) -> None:
        server = self.around.server
        server.confirmed = max(server.confirmed or 0, lsn)
        if self.random.random() < 0.01 and not self.is_healing:
            self.around.memory.cut_power()  # killed right after the acknowledgement
            self._cut_is_power = self.random.random() < 0.7

    def _watch(self, check: Callable[[App], None]) -> None:
        assert self.process.app is not None, "it confirms"
        try:
            check(self.process.app)
        except Violation as violation:
            self._violation = self._violation or violation

    # Deeds

    async def write(self) -> None:
        """A transaction writes, a new one or one that runs."""
        server = self.around.server
        running = server.running()
        transaction = self.random.choice(running) if running and self.random.random() < 0.6 else server.begin()
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            self._change(transaction)

    async def storm(self) -> None:
        """Many transactions of a row each."""
        server = self.around.server
        for _ in range(self.random.choice((5, 20))):
            transaction = server.begin()
            self._change(transaction)
            server.commit(transaction)
            if self.random.random() < 0.9:
                server.show(transaction)
        self.around.server_news.set()

    async def huge(self) -> None:
        """One transaction of many rows."""
        server = self.around.server
        transaction = server.begin()
        for _ in range(self.random.choice((20, 60))):
            self._change(transaction)
        await self._commit(transaction)

    async def truncate(self) -> None:
        """A transaction empties one table or two."""
        server = self.around.server
        running = server.running()
        transaction = self.random.choice(running) if running and self.random.random() < 0.5 else server.begin()
        wanted = self.random.sample(list(server.relations.values()), self.random.choice((1, 1, 2)))
        free = [one for one in wanted if server.may_truncate(transaction, one)]
        if free:
            server.truncate(transaction, free)
            self._change(transaction)
        if self.random.random() < 0.7:
            await self._commit(transaction)

    async def commit(self) -> None:
        """A transaction commits; mostly it is visible soon."""
        running = self.around.server.running()
        if running:
            await self._commit(self.random.choice(running))

    async def abort(self) -> None:
        """A transaction is rolled back."""
        running = self.around.server.running()
        if running:
            self.around.server.abort(self.random.choice(running))

    async def show(self) -> None:
        """Commits become visible."""
        for transaction in self.around.server.waiting():
            if self.random.random() < 0.7:
                self.around.server.show(transaction)

    async def idle(self) -> None:
        """The server writes what is nobody's business, and tells how far it is."""
        self.around.server.write_something(self.random.choice((0, 1, 500)))
        self.around.keepalives_due += 1
        self.around.server_news.set()

    async def rest(self) -> None:
        """Time passes."""
        await asyncio.sleep(self.random.choice((0.5, 2.0, 7.0)))

    async def add(self) -> None:
        """Somebody asks for a shape."""
        service = self.process.service
        if service is None or len(service.house.registry.living()) + len(service.nursery.orders) >= SHAPES_MAX:
            return
        wanted = some_shape(self.random, self.random.choice(list(self.around.server.relations.values())))
        if wanted.definition.where is not None:
            self.around.predicates[wanted.definition.where] = wanted.predicate
        name = f"s{self.random.randrange(4)}" if self.random.random() < 0.4 else None
        try:
            if name is not None:
                service.house.registry.check_free(name)
                if any(order.name == name for order in service.nursery.orders):
                    return
            elif service.house.registry.defined(wanted.definition) is not None:
                return
        except ShapeError:
            return
        self.trace.append(f"   {wanted.definition} {wanted.definition.replica} {name}")
        with contextlib.suppress(RuntimeError):  # the process is about to end by itself, which is told elsewhere
            service.nursery.order(wanted.definition, name)

    async def remove(self) -> None:
        """Somebody removes a shape."""
        service = self.process.service
        living = service.house.registry.living() if service is not None else []
        if not living or service is None:
            return
        handle = self.random.choice(living).handle
        task = self.process.request(service.remove(handle))
        task.add_done_callback(self._removed)

    def _removed(self, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, ShapeError | SharedDiskFault) and not self.around.is_dead:
            self._violation = self._violation or broken(failure)

    async def disconnect(self) -> None:
        """The connection breaks."""
        self.around.break_connection()

    async def fail(self) -> None:
        """The disk begins to fail, in all of it or in some of its files, or stops failing."""
        self.around.disk.healthy = not self.around.disk.healthy
        self.around.disk.plan = Troubled(self.random)

    async def crash(self) -> None:
        """The process is killed, or the power is cut, at one of the next changes of the disk."""
        memory = self.around.memory
        memory.crash_at_operation = memory.operations + self.random.choice((1, 2, 3, 5, 8, 20))
        memory.crash_after = self.random.random() < 0.5
        self._cut_is_power = self.random.random() < 0.6

    async def cut(self) -> None:
        """The process ends now, whatever it does."""
        self.around.memory.cut_power()
        self._cut_is_power = self.random.random() < 0.6

    async def restart(self) -> None:
        """It is stopped in order, and started again."""
        if self.process.app is not None and not self.around.is_dead:
            await self.process.stop()

    # What deeds are made of

    async def _commit(self, transaction: Transaction) -> None:
        server = self.around.server
        if not transaction.changes:
            server.abort(transaction)
            return
        server.commit(transaction)
        self.around.server_news.set()
        if self.random.random() < 0.3:
            await asyncio.sleep(0.002)
        if self.random.random() < 0.75 and transaction.xid in server.active:
            server.show(transaction)

    def _change(self, transaction: Transaction) -> None:
        """Insert, update or delete a row that is nobody else's."""
        server, random = self.around.server, self.random
        relation = random.choice(list(server.relations.values()))
        if not server.may_write(transaction, relation):
            return
        rows = list(server.rows_for(transaction, relation))
        kind = random.choice("IIUUD") if rows else "I"
        old = random.choice(rows)[1] if kind != "I" else None
        new = self._row(relation, old) if kind != "D" else None
        if new is not None:
            key = relation.key_of(new)
            is_same = old is not None and relation.key_of(old) == key
            if not is_same and not server.is_free(transaction, relation, key):
                return
        server.change(transaction, kind, relation, old, new)

    def _row(self, relation: Relation, old: Row | None) -> Row:
        """New values; of an update mostly only some."""
        random = self.random
        values = {
            "grp": (None, "1", "1", "2", "3"),
            "val": (None, "a", "ab", "b", "x" * 50),
            "note": (None, "", "n", "\\N\t", "\u00e9" * 9),
        }
        row = []
        for index, column in enumerate(relation.columns):
            keeps = old is not None and random.random() < (0.85 if column.is_key else 0.5)
            row.append(old[index] if keeps and old is not None else random.choice(values.get(column.name, KEYS)))
        return tuple(row)


DEEDS: Final = {
    "write": (16, World.write),
    "commit": (14, World.commit),
    "abort": (2, World.abort),
    "show": (8, World.show),
    "storm": (5, World.storm),
    "huge": (3, World.huge),
    "truncate": (3, World.truncate),
    "idle": (6, World.idle),
    "rest": (3, World.rest),
    "add": (9, World.add),
    "remove": (3, World.remove),
    "disconnect": (4, World.disconnect),
    "fail": (3, World.fail),
    "crash": (3, World.crash),
    "cut": (2, World.cut),
    "restart": (1, World.restart),
}
"""What can happen, and how often."""
