"""What surrounds a simulated process, and outlives it: the server, the disk, chance, and whoever watches."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from cdc.simulate.server import Server
from storage.faulty_disk import FaultyDisk
from storage.memory_disk import MemoryDisk


@dataclass(slots=True)
class Surroundings:
    """All that a process meets."""

    random: Random
    server: Server
    memory: MemoryDisk
    disk: FaultyDisk
    flush_pace: int = 1
    refusals: float = 0.0
    """How often a connection for queries is refused."""
    lost_snapshots: float = 0.0
    """How often a copy breaks, at each of its batches."""
    stalls: float = 0.0
    """How often the stream stands still in the middle of a transaction."""
    stall_breaks: float = 0.5
    """How often the connection breaks then."""
    lags: float = 0.0
    """How often the stream falls behind: what births see is then far ahead of it."""
    keepalives_due: int = 0
    server_news: asyncio.Event = field(default_factory=asyncio.Event)
    break_connection: Callable[[], None] = lambda: None
    connected: Callable[[], None] = lambda: None
    """Told that the process has a stream."""
    confirming: Callable[[int], None] = lambda _: None
    """Told what the process is about to confirm."""
    confirmed: Callable[[int], None] = lambda _: None
    """Told what the server has heard."""

    @property
    def is_dead(self) -> bool:
        """The process has ended; what is left of it reaches nobody."""
        return self.memory.crashed

    @property
    def has_lost_slot(self) -> bool:
        """Whether the slot that a process had is gone, or brings nothing any more."""
        return self.server.confirmed is None or self.server.is_slot_lost

    def happens(self, odds: float) -> bool:
        return odds > 0 and self.random.random() < odds

    def some_seconds(self, scale: float) -> float:
        """Mostly about the scale, sometimes much less or more."""
        return scale * self.random.choice((0.1, 0.5, 1.0, 1.0, 2.0, 10.0))

    async def pause(self, scale: float) -> None:
        """Let others in between."""
        await asyncio.sleep(self.some_seconds(scale))
