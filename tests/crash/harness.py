"""Run a scenario, cut the power at every place where it can matter, and look at what may be left each time.

A scenario is a function of a fresh disk and of `acknowledge`, which it calls with each fact that somebody outside may
rely on from then on: "row 7 is durable". The check gets a disk as the next start could find it and the facts that had
been acknowledged by then, and raises (or fails an `assert`) if one of them does not hold. Usually it opens the store
on that disk, reads everything and compares.

    def scenario(disk: MemoryDisk, acknowledge: Callable[[int], None]) -> None: ...
    def check(disk: MemoryDisk, acknowledged: list[int]) -> None: ...

    for_each_crash(scenario, check)

A failure names its crash; `for_each_crash(scenario, check, only=Crash(...))` repeats that one alone.
A scenario must do the same each time: what chance it needs comes from a seed that it makes itself.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, TypeVar

from storage.inodes import Choose
from storage.memory_disk import Crashed, MemoryDisk, in_runs, luckiest, strictest

Fact = TypeVar("Fact")
Acknowledge = Callable[[Fact], None]
Scenario = Callable[[MemoryDisk, Acknowledge[Fact]], Any]
Check = Callable[[MemoryDisk, list[Fact]], Any]

Places = Literal["syncs", "operations"]
"""Where the power is cut. Syncs are enough for the strictest images; between them, more of what was not synced may
have been lucky, and scenarios with many operations between two syncs have much to see there."""

SEEDED_IMAGES_COUNT = 3
"""Images between the strictest and the luckiest, for each crash."""


@dataclass(frozen=True)
class Crash:
    """Where the power was cut and what was left, enough to repeat it. Its text can be pasted into a call."""

    place: Places
    number: int
    """Counts from 1; one more than there are means that the power was cut when all was done."""
    after: bool
    """Whether that operation took effect, without the scenario learning of it."""
    image: Literal["strictest", "luckiest"] | int
    """An integer is the seed of the choices."""

    @property
    def choose(self) -> Choose:
        match self.image:
            case "strictest":
                return strictest
            case "luckiest":
                return luckiest
            case seed:
                return in_runs(Random(seed).randrange)


class CrashFound(AssertionError):
    """A crash after which the check failed."""


def for_each_crash(
    scenario: Scenario[Fact],
    check: Check[Fact],
    *,
    images: int = SEEDED_IMAGES_COUNT,
    place: Places = "operations",
    disk: Callable[[], MemoryDisk] = MemoryDisk,
    only: Crash | None = None,
) -> int:
    """Returns how many images were checked. `disk` may give the scenario another start than an empty disk."""
    checked_count = 0
    for crash, image, acknowledged in _crashes(scenario, images, place, disk, only):
        checked_count += 1
        try:
            check(image, list(acknowledged))
        except Exception as error:
            raise CrashFound(
                f"only={crash}\nafter {acknowledged!r} was acknowledged: {type(error).__name__}: {error}"
            ) from error
    return checked_count


def _crashes(
    scenario: Scenario[Fact], images: int, place: Places, disk: Callable[[], MemoryDisk], only: Crash | None
) -> Iterator[tuple[Crash, MemoryDisk, list[Fact]]]:
    place = only.place if only else place
    for number in itertools.count(only.number if only else 1):
        for after in [only.after] if only else [False, True]:
            crashed = disk()
            setattr(crashed, {"syncs": "crash_at_sync", "operations": "crash_at_operation"}[place], number)
            crashed.crash_after = after
            acknowledged = _run(scenario, crashed)
            kinds: list[Literal["strictest", "luckiest"] | int] = ["strictest", "luckiest", *range(images)]
            for image in [only.image] if only else kinds:
                crash = Crash(place, number, after, image)
                yield crash, crashed.crash_image(crash.choose), acknowledged
            if only or not crashed.crashed:  # it came to its end before the number: all places were visited
                return


def _run(scenario: Scenario[Fact], disk: MemoryDisk) -> list[Fact]:
    acknowledged: list[Fact] = []

    def acknowledge(fact: Fact) -> None:
        if disk.crashed:  # a thread of a process that has no power any more
            raise Crashed
        acknowledged.append(fact)

    try:
        scenario(disk, acknowledge)
    except Crashed:
        assert disk.crashed
    return acknowledged
