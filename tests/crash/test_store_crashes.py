"""Every story of a store, with the power cut at every operation: what was acknowledged is there once, what was not
confirmed can be sent again, and then nothing is missing and nothing is there twice.

The power goes a second time while the store recovers. And a process may end without the power going: what the next one
relies on then has to survive a power cut as well.
"""

import logging
from collections.abc import Callable, Iterator

import pytest

from storage.memory_disk import MemoryDisk, strictest
from storage.offset import SNAPSHOT_END
from tests.crash.harness import Acknowledge, Crash, for_each_crash
from tests.crash.scenarios import STORIES
from tests.model import rows_in
from tests.world import Fact, World, copy_of, is_thorough

each_story = pytest.mark.parametrize("name", STORIES)

IMAGES_COUNT = 10 if is_thorough() else 1
"""Of each crash, between the strictest and the luckiest."""


class Crashes:
    """Runs a story until its crash, and checks the same sight of a disk only once."""

    def __init__(self, name: str) -> None:
        self.tell, self.options = STORIES[name]
        self.world: World
        self.seen: set[object] = set()

    def scenario(self, disk: MemoryDisk, acknowledge: Acknowledge[Fact]) -> None:
        self.world = World(disk, self.options, acknowledge=acknowledge)
        self.world.open()
        self.tell(self.world)

    def is_new(self, disk: MemoryDisk) -> bool:
        told = [(log.number, log.told, log.visible, len(log.rows)) for log in self.world.logs.values()]
        sight = (tuple(disk.contents().items()), tuple(told), self.world.stream.confirmed, len(self.world.doomed))
        is_new = sight not in self.seen
        self.seen.add(sight)
        return is_new

    def survivor(self, disk: MemoryDisk) -> World:
        return self.world.crashed(disk)


def check_survivor(world: World) -> None:
    """Open what a crash left; compare; send again; compare."""
    world.open()
    world.look()
    world.check()
    check_bases(world)
    world.finish()
    world.check_everywhere()


def check_bases(world: World) -> None:
    for number in world.with_base & set(world.logs):
        (base,) = world.store.log(number).files.bases
        assert base.is_complete
        for index in range(2):
            chunk = world.reader.read_chunk(number, base.number, index)
            assert chunk is not None
            values = [row.values for row in rows_in([chunk])]
            assert values == [row.values for row in world.stream.of_log(world.logs[number])]
    assert all(world.logs[number].told >= SNAPSHOT_END for number in world.with_base & set(world.logs))


@each_story
def test_after_a_crash_everything_is_there_once(name: str) -> None:
    crashes = Crashes(name)

    def check(disk: MemoryDisk, acknowledged: list[Fact]) -> None:
        if crashes.is_new(disk):
            check_survivor(crashes.survivor(disk))

    assert for_each_crash(crashes.scenario, check, images=IMAGES_COUNT) > 0


@each_story
def test_a_story_ends_well_and_is_told_from_the_disk_alone(name: str) -> None:
    tell, options = STORIES[name]
    world = World(MemoryDisk(), options).open()
    tell(world)
    world.check_everywhere()
    world.finish()
    check_survivor(world.crashed(world.memory.crash_image(strictest)))


@each_story
def test_what_a_process_found_after_another_was_killed_survives_a_power_cut(name: str) -> None:
    crashes = Crashes(name)

    def check(disk: MemoryDisk, acknowledged: list[Fact]) -> None:
        left = copy_of(crashes.world.memory)
        if crashes.is_new(left):
            world = crashes.survivor(left).open()
            world.look()
            world.check()
            check_survivor(world.crashed(left.crash_image(strictest)))
            check_survivor(world)

    assert for_each_crash(crashes.scenario, check, images=0) > 0


@each_story
def test_a_second_crash_while_the_store_recovers(name: str) -> None:
    crashes = Crashes(name)
    again_at = range(0, 10_000, 1 if is_thorough() else 5)

    def check(disk: MemoryDisk, acknowledged: list[Fact]) -> None:
        if crashes.is_new(disk) and len(crashes.seen) in again_at:
            crash_again(crashes, disk)

    assert for_each_crash(crashes.scenario, check, images=IMAGES_COUNT, place="syncs") > 0


def crash_again(crashes: Crashes, disk: MemoryDisk) -> None:
    survivors = Crashes.__new__(Crashes)
    survivors.seen = set()

    def recover(start: MemoryDisk, acknowledge: Acknowledge[Fact]) -> None:
        survivors.world = crashes.survivor(start)
        survivors.world.acknowledge = acknowledge
        survivors.world.open()
        survivors.world.look()

    def check(left: MemoryDisk, acknowledged: list[Fact]) -> None:
        if survivors.is_new(left):
            check_survivor(survivors.survivor(left))

    for_each_crash(recover, check, images=0, disk=lambda: copy_of(disk))


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Torn tails are logged, and here there is little else."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
