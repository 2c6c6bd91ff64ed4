"""Every story of a store, with every operation failing in every way: it happened or did not, or half of it did; once or
for a while; for all logs or for one. Nothing acknowledged is lost, nothing is doubled, and a healed disk is all that the
store needs to go on.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from storage.faulty_disk import Fault, Operation
from storage.inodes import Choose
from storage.memory_disk import MemoryDisk, in_runs, luckiest, strictest
from tests.crash.scenarios import STORIES
from tests.world import World, is_thorough

Failing = Callable[[int], Fault]
"""What is wrong with a call that has so many bytes to append."""

SHARED: dict[str, tuple[int, Failing]] = {
    "does not happen": (1, lambda size: Fault(errno.EIO)),
    "happened": (1, lambda size: Fault(errno.EIO, happens=True)),
    "half of it happened": (1, lambda size: Fault(errno.ENOSPC, happens=True, appended=size // 2)),
    "fails, and what would mend it": (2, lambda size: Fault(errno.EIO)),
    "happens, and what would mend it fails": (2, lambda size: Fault(errno.EIO, happens=True)),
    "fails for a while": (5, lambda size: Fault(errno.ENOSPC)),
}
"""How many calls are met, and how."""

SEEDS = range(20 if is_thorough() else 1)
IMAGES: list[Choose] = [strictest, luckiest, *(in_runs(Random(seed).randrange) for seed in SEEDS)]
EACH_CALL = 1 if is_thorough() else 3
"""Of the calls, every so manieth is met in one run, and all of them over the ways to fail."""


@dataclass
class Nth:
    """Meets some calls in a row, from the first to the last that changes something."""

    first: int
    calls: int
    failing: Failing
    path: str = ""
    """Only calls of paths that begin so."""
    count: int = field(default=0, init=False)

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:
        if operation in ("read", "size", "exists", "names") or not path.startswith(self.path):
            return None
        self.count += 1
        return self.failing(size) if self.first <= self.count < self.first + self.calls else None


def told(name: str, plan: Nth) -> World:
    """The world at a story's end, with the plan at work from its first operation on."""
    tell, options = STORIES[name]
    world = World(MemoryDisk(), options)
    world.disk.plan = plan
    world.open()
    tell(world)
    return world


def operations_of(name: str, path: str = "") -> int:
    """How many calls of a story there are to fail."""
    plan = Nth(0, 0, lambda size: Fault(), path)
    told(name, plan)
    return plan.count


@pytest.mark.parametrize("way", SHARED)
@pytest.mark.parametrize("name", STORIES)
def test_a_fault_of_the_shared_disk_costs_nothing(name: str, way: str) -> None:
    calls, failing = SHARED[way]
    for number in range(1 + list(SHARED).index(way) % EACH_CALL, operations_of(name) + 1, EACH_CALL):
        plan = Nth(number, calls, failing)
        try:
            world = told(name, plan)
            world.check()
            survivors = [world.crashed(world.memory.crash_image(image)) for image in IMAGES]
            world.finish()
            world.check_everywhere()
            assert not any(log.has_ended for log in world.logs.values())
            for survivor in [*survivors, world.crashed(world.memory.crash_image(strictest))]:
                survivor.open().look()
                survivor.check()
                survivor.finish()
        except Exception as error:
            error.add_note(f"call {number} {way}: {[str(one) for one in world_log(plan, name)]}")
            raise


def world_log(plan: Nth, name: str) -> list[str]:
    return [f"{name} {plan.first} {plan.calls}"]


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Faults are logged, and here there is nothing but faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
