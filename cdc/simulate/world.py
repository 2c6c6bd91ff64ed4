"""A story: chance does something to the server, the disk or the process, time passes, and everything is looked at.

After the last deed all heals: disk, connections, waiting commits. Then, without any further write, everything must
come to rest where it belongs.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from cdc.app import App
from cdc.beside import first_of
from cdc.simulate.checks import Checks
from cdc.simulate.deeds import SERVER_DEEDS, ServerDeeds
from cdc.simulate.definitions import relations, some_shape
from cdc.simulate.kinds import some_kind
from cdc.simulate.oracle import Violation
from cdc.simulate.process import Process, after_a_kill, after_a_power_cut, broken
from cdc.simulate.recovering import recover_lost_slot
from cdc.simulate.server import Server
from cdc.simulate.surroundings import Surroundings
from cdc.simulate.troubled import Troubled
from cdc.source.errors import ConnectionFault, SlotLost
from shapes.errors import ShapeError
from storage.errors import SharedDiskFault
from storage.faulty_disk import FaultyDisk
from storage.memory_disk import Crashed, MemoryDisk

HEALING_SECONDS: Final = 600.0
"""Made-up seconds in which all comes to rest: a few pauses between a birth's attempts."""

SHAPES_MAX: Final = 6

PARTITIONS_ODDS: Final = 0.25
"""How often there is a partitioned table too."""


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
        server = Server(random, relations(has_partitions=random.random() < PARTITIONS_ODDS))
        self.kind = some_kind(random)
        self.around = Surroundings(random, server, memory, disk)
        self.around.flush_pace = random.choice((1, 1, 10, 100))
        self.around.refusals = random.choice((0.0, 0.0, 0.2))
        self.around.lost_snapshots = random.choice((0.0, 0.0, 0.1))
        self.around.confirming = self._confirming
        self.around.confirmed = self._confirmed
        self.around.connected = self._connected
        self.checks = Checks(self.around)
        self.deeds = ServerDeeds(self.around)
        self._violation: Violation | None = None
        self._cut_is_power = False
        self.is_healing = False
        self.process = Process(self.around)

    async def run(self, steps: int) -> None:
        """Live through it; raises the first `Violation`."""
        await self._begin()
        usual = {name: weight for name, (weight, _) in (*SERVER_DEEDS.items(), *PROCESS_DEEDS.items())}
        odds = self.kind.odds_of(usual)
        names, weights = list(odds), list(odds.values())
        for _ in range(steps):
            deed = self.random.choices(names, weights)[0]
            await self._do(deed)
            await self.look()
        await self.heal()

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
        if name in SERVER_DEEDS:
            await SERVER_DEEDS[name][1](self.deeds)
        else:
            await PROCESS_DEEDS[name][1](self)

    async def look(self) -> None:
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
            around.break_connection()  # what it has not said by now the server does not hear
            await self.process.bury()
            (after_a_power_cut if self._cut_is_power else after_a_kill)(around)
            self.trace.append("-- " + ("power cut" if self._cut_is_power else "killed"))
        elif isinstance(first_of(self.process.failure), SlotLost) and around.has_lost_slot:
            if not await self._recovered():
                return
        elif self.process.failure is not None:
            raise broken(self.process.failure)
        self.checks.look_at_copy()
        around.disk.healthy = around.disk.healthy or self.random.random() < 0.5
        self.process = Process(around)

    async def _recovered(self) -> bool:
        """Whether a person could mend it; else he tries again a moment later."""
        try:
            await recover_lost_slot(self.around)
        except (SharedDiskFault, ConnectionFault, Crashed) as fault:
            self.trace.append(f"-- not recovered: {fault}")
            return False
        self.trace.append("-- recovered")
        return True

    async def heal(self) -> None:
        """Nothing fails any more; all comes to rest, and again after a last wave of transactions."""
        around = self.around
        self.is_healing = True
        around.refusals = around.lost_snapshots = around.stall_breaks = around.lags = 0.0
        around.stalls = self.random.choice((0.0, 0.2))  # the last commits may still come by halves
        around.memory.crash_at_operation = None
        await self._finish_transactions()
        await self._come_to_rest()
        before = self._living_logs()
        for name in ("write", "huge", "write"):
            await self._do(name)
        await self._finish_transactions()
        await self._come_to_rest()
        if ended := self.checks.without_reason(before - self._living_logs()):
            raise Violation(f"nothing was wrong any more, and yet the logs {sorted(ended)} have ended")
        self.checks.look_at_copy()
        await self.process.stop()
        if self.process.failure is not None:
            raise broken(self.process.failure)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let time pass until something is so; for stories that are told and not left to chance."""
        async with asyncio.timeout(HEALING_SECONDS):
            while not is_so():  # noqa: ASYNC110 - the model tells nobody
                await asyncio.sleep(0.01)

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
        waits, quiet, end = "the process has not started", 0, loop.time() + HEALING_SECONDS
        while loop.time() < end:
            self.around.disk.healthy = True
            if self.around.server.flushed_lsn < self.around.server.insert_lsn:
                await self._do("flush")
            await asyncio.sleep(0.25)
            await self.look()
            app = self.process.app
            if app is not None and app.house.is_streaming:
                waits = "somebody waits for an answer" if self.process.is_asked else self.checks.is_quiet(app)
                quiet = 0 if waits else quiet + 1
                if quiet > 1:  # what was found out just now is told a moment later
                    return
        raise Violation(f"everything is healed, and it does not come to rest: {waits}")

    # What the process does

    def _confirming(self, lsn: int) -> None:
        if self.process.app is not None:
            self._watch(lambda app: self.checks.confirming(app, lsn))

    def _confirmed(self, lsn: int) -> None:
        self.around.server.confirm(lsn)
        if self.random.random() < 0.01 and not self.is_healing:
            self.around.memory.cut_power()  # killed right after the acknowledgement
            self._cut_is_power = self.random.random() < 0.7

    def _connected(self) -> None:
        if not self.is_healing and self.around.happens(self.kind.taken_over_early):
            loop = asyncio.get_running_loop()
            loop.call_later(self.around.some_seconds(0.001), self._taken_over_early)

    def _taken_over_early(self) -> None:
        if not self.is_healing:
            self.trace.append(f"{asyncio.get_running_loop().time():.4f} fail over early")
            self.deeds.take_over(loses=True)

    def _watch(self, check: Callable[[App], None]) -> None:
        assert self.process.app is not None, "it confirms"
        try:
            check(self.process.app)
        except Violation as violation:
            self._violation = self._violation or violation

    # Deeds

    async def rest(self) -> None:
        """Time passes."""
        await asyncio.sleep(self.random.choice((0.5, 2.0, 7.0)))

    async def add(self) -> None:
        """Somebody asks for a shape."""
        service = self.process.service
        if service is None or len(service.house.registry.living()) + len(service.nursery.orders) >= SHAPES_MAX:
            return
        relations = self.around.server.relations.values()
        tables = [one for one in relations if one.is_followed and one.first_root is None]
        wanted = some_shape(self.random, self.random.choice(tables))
        name = f"s{self.random.randrange(4)}" if self.random.random() < 0.4 else None
        try:
            if name is not None:
                service.house.registry.check_free(name)
                if any(order.name == name for order in service.nursery.orders):
                    return
            elif service.house.registry.defined(wanted) is not None:
                return
        except ShapeError:
            return
        self.trace.append(f"   {wanted} {wanted.replica} {name}")
        with contextlib.suppress(RuntimeError):  # the process is about to end by itself, which is told elsewhere
            service.nursery.order(wanted, name)

    async def remove(self) -> None:
        """Somebody removes a shape."""
        service = self.process.service
        living = service.house.registry.living() if service is not None else []
        if not living or service is None:
            return
        handle = self.random.choice(living).handle
        task = self.process.request(service.remove(handle))
        task.add_done_callback(partial(self._removed, self.process))

    def _removed(self, process: Process, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        is_over = process is not self.process or self.around.is_dead  # what became of it is then nobody's fault
        if failure is not None and not isinstance(failure, ShapeError | SharedDiskFault) and not is_over:
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


PROCESS_DEEDS: Final = {
    "rest": (3, World.rest),
    "add": (9, World.add),
    "remove": (3, World.remove),
    "disconnect": (4, World.disconnect),
    "fail": (3, World.fail),
    "crash": (3, World.crash),
    "cut": (2, World.cut),
    "restart": (1, World.restart),
}
"""What can happen to the process, and how often."""
