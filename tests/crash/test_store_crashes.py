"""Every story of a store, with the power cut at every operation.

What was acknowledged is there once; what was not confirmed can be sent again, and then nothing is missing and nothing
is there twice. The power goes a second time while the store recovers. And a process may end without the power going:
what the next one relies on then has to survive a power cut as well.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from storage.inodes import Choose
from storage.limits import SECTOR_BYTES
from storage.memory_disk import MemoryDisk, strictest
from tests.crash.harness import Acknowledge, for_each_crash
from tests.crash.scenarios import STORIES
from tests.model import rows_in
from tests.world import Fact, World, copy_of, is_thorough

each_story = pytest.mark.parametrize("name", STORIES)

IMAGES_COUNT = 40 if is_thorough() else 4
"""Of each crash, between the strictest and the luckiest."""


def all_but_the_end(random: Random) -> Choose:
    """Everything arrived but the end of what was being written, as most disks would have it."""
    return lambda count: random.randrange(count) if count > SECTOR_BYTES else count - 1


@dataclass
class Crashes:
    """Runs a story until its crash, and checks the same sight of a disk only once."""

    begin: Callable[[MemoryDisk], World]
    tell: Callable[[World], object]
    world: World = field(init=False)
    """As it was when the power went."""
    seen: set[object] = field(default_factory=set)

    @classmethod
    def of(cls, name: str) -> "Crashes":
        tell, options = STORIES[name]
        return cls(lambda disk: World(disk, options), lambda world: tell(world.open()))

    def scenario(self, disk: MemoryDisk, acknowledge: Acknowledge[Fact]) -> None:
        self.world = self.begin(disk)
        self.world.acknowledge = acknowledge
        self.tell(self.world)

    def is_new(self, disk: MemoryDisk) -> bool:
        world = self.world
        told = [(log.number, log.told, log.visible, len(log.rows)) for log in world.logs.values()]
        sight = (tuple(disk.contents().items()), tuple(told), world.stream.confirmed, tuple(world.doomed))
        is_new = sight not in self.seen
        self.seen.add(sight)
        return is_new


def check_survivor(world: World) -> None:
    """Open what a crash left; compare; send again; compare; and once more from what is on the disk then."""
    world.open()
    world.look()
    world.check()
    check_bases(world)
    world.finish()
    world.check_everywhere()
    again = world.crashed(world.memory.crash_image(strictest)).open()
    again.look()
    again.check()


def check_bases(world: World) -> None:
    """A snapshot that was finished is there; and what is left of others is gone."""
    for number in world.logs:
        bases = [base.number for base in world.store.log(number).files.bases]
        assert bases == bases[-1:], "what was not finished goes"
        if number in world.with_base:
            assert bases == [world.with_base[number]]
        for base in bases:
            for index in range(2):
                chunk = world.reader.read_chunk(number, base, index)
                assert chunk is not None
                values = [row.values for row in rows_in([chunk])]
                assert values == [row.values for row in world.stream.of_log(world.logs[number])]


@each_story
def test_after_a_crash_everything_is_there_once(name: str) -> None:
    crashes = Crashes.of(name)

    def check(disk: MemoryDisk, acknowledged: list[Fact]) -> None:
        cut_short = [crashes.world.memory.crash_image(all_but_the_end(Random(seed))) for seed in range(IMAGES_COUNT)]
        for image in [disk, *cut_short]:
            if crashes.is_new(image):
                check_survivor(crashes.world.crashed(image))

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
    crashes = Crashes.of(name)

    def check(disk: MemoryDisk, acknowledged: list[Fact]) -> None:
        left = copy_of(crashes.world.memory)
        if crashes.is_new(left):
            world = crashes.world.crashed(left).open()
            world.look()
            world.check()
            check_survivor(world.crashed(left.crash_image(strictest)))
            check_survivor(world)

    assert for_each_crash(crashes.scenario, check, images=0) > 0


@each_story
def test_a_second_crash_while_the_store_recovers(name: str) -> None:
    crashes = Crashes.of(name)
    every = 1 if is_thorough() else 5

    def check(disk: MemoryDisk, acknowledged: list[Fact]) -> None:
        if crashes.is_new(disk) and len(crashes.seen) % every == 0:
            crash_again(crashes, disk)

    assert for_each_crash(crashes.scenario, check, images=IMAGES_COUNT, place="syncs") > 0


def crash_again(first: Crashes, disk: MemoryDisk) -> None:
    second = Crashes(first.world.crashed, lambda world: world.open().look())

    def check(left: MemoryDisk, acknowledged: list[Fact]) -> None:
        if second.is_new(left):
            check_survivor(second.world.crashed(left))

    for_each_crash(second.scenario, check, images=0, disk=lambda: copy_of(disk))


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Torn tails are logged, and here there is little else."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
