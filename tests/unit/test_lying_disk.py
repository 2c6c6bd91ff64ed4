"""Every story of a store, with every operation failing in every way.

It happened or did not, or half of it did; once or for a while; for all logs or for one. Nothing acknowledged is lost,
nothing is doubled, and a healed disk is all that the store needs to go on.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import get_args

import pytest

from storage.faulty_disk import Changing, Fault, Operation, Reading
from storage.inodes import Choose
from storage.memory_disk import MemoryDisk, in_runs, luckiest, strictest
from tests.crash.scenarios import STORIES
from tests.world import World, is_thorough

Failing = Callable[[int], Fault]
"""What is wrong with a call that has so many bytes to append."""

WAYS: dict[str, tuple[int, Failing]] = {
    "does not happen": (1, lambda size: Fault(errno.EIO)),
    "happened": (1, lambda size: Fault(errno.EIO, happens=True)),
    "half of it happened": (1, lambda size: Fault(errno.ENOSPC, happens=True, appended=size // 2)),
    "fails, and what would mend it": (2, lambda size: Fault(errno.EIO)),
    "happened, and what would mend it": (2, lambda size: Fault(errno.EIO, happens=True)),
    "fails for a while": (5, lambda size: Fault(errno.ENOSPC)),
}
"""How many calls in a row are met, and how."""

SEEDS = range(20 if is_thorough() else 1)
"""Of what a crash leaves, between the strictest and the luckiest."""

EVERY = 1 if is_thorough() else 3
"""How many calls to go on by. Ways to fail begin at different calls, so that each call is met in some of them."""

each_story = pytest.mark.parametrize("name", STORIES)


@dataclass
class Calls:
    """Meets some calls in a row among those of certain kinds and paths."""

    first: int
    calls: int
    failing: Failing
    operations: tuple[Operation, ...] = get_args(Changing)
    path: str = ""
    """How the paths begin."""
    count: int = field(default=0, init=False)

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:
        if operation not in self.operations or not path.startswith(self.path):
            return None
        self.count += 1
        return self.failing(size) if self.first <= self.count < self.first + self.calls else None


def told(name: str, plan: Calls) -> World:
    """The world at a story's end, with the plan at work from its first operation on."""
    tell, options = STORIES[name]
    world = World(MemoryDisk(), options)
    world.disk.plan = plan
    world.open()
    tell(world)
    return world


def each_fault(name: str, plan: Callable[[int], Calls], start: int = 0) -> Iterator[World]:
    """The story again and again, each time with other calls failing; each world at its end."""
    counting = plan(10**9)
    told(name, counting)
    for number in range(1 + start % EVERY, counting.count + 1, EVERY):
        try:
            yield told(name, plan(number))
        except Exception as error:
            error.add_note(f"{name}, call {number}")
            raise


def check_to_the_end(world: World) -> None:
    """As it is, after a crash right now, when everything has come to rest, and after a crash then.

    And when the process is killed right now: what the next one finds is what it tells, and survives a power cut.
    """
    world.check()
    check_successor(world)
    images: list[Choose] = [strictest, luckiest, *(in_runs(Random(seed).randrange) for seed in SEEDS)]
    survivors = [world.crashed(world.memory.crash_image(image)) for image in images]
    world.finish()
    world.check_everywhere()
    for survivor in [*survivors, world.crashed(world.memory.crash_image(strictest))]:
        survivor.open().look()
        survivor.check()
        survivor.finish()


def check_successor(world: World) -> None:
    """No sync of the next process makes up for one that failed in this one."""
    successor = world.killed().open()
    successor.look()
    successor.check()
    successor.send_all()
    successor.flush_all()
    successor.confirm()
    for survivor in [successor.crashed(successor.memory.crash_image(image)) for image in (strictest, luckiest)]:
        for number, log in survivor.logs.items():
            if log.has_ended:
                log.told = world.logs[number].told  # G went on without it, so G proves nothing of it
        survivor.open().look()
        survivor.check()
        survivor.finish()


@pytest.mark.parametrize("way", WAYS)
@each_story
def test_a_fault_of_the_shared_disk_costs_nothing(name: str, way: str) -> None:
    calls, failing = WAYS[way]
    for world in each_fault(name, lambda number: Calls(number, calls, failing), list(WAYS).index(way)):
        check_to_the_end(world)
        assert not any(log.has_ended for log in world.logs.values())


@each_story
def test_a_read_that_fails_costs_nothing(name: str) -> None:
    failing = get_args(Reading)
    for world in each_fault(name, lambda number: Calls(number, 1, lambda _: Fault(errno.EIO), failing)):
        check_to_the_end(world)
        assert not any(log.has_ended for log in world.logs.values())


@pytest.mark.parametrize("calls", [1, 10**9])
@each_story
def test_a_fault_of_one_log_stops_that_log_alone(name: str, calls: int) -> None:
    first_segment = "logs/1/0000"

    def plan(number: int) -> Calls:
        return Calls(number, calls, lambda _: Fault(errno.EACCES), path=first_segment)

    for world in each_fault(name, plan):
        check_to_the_end(world)
        assert [number for number, log in world.logs.items() if log.has_ended] in ([], [1])


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Faults are logged, and here there is nothing but faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
