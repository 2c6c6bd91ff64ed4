"""Simulations by their seeds: run, and told as a value."""

import asyncio
import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from cdc.simulate.oracle import Violation
from cdc.simulate.standins import standing_in
from cdc.simulate.virtual_loop import Stuck, VirtualLoop
from cdc.simulate.world import World

STEPS: Final = 60
"""Deeds of a story: enough for several lives of the process, few enough to be read when one goes wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed."""

    seed: int
    violation: str | None
    trace: tuple[str, ...]
    cause: str = ""
    """The traceback of what ended the process, if that is the violation."""


def simulate(seed: int, steps: int = STEPS) -> Outcome:
    """Run one."""
    random = Random(seed)  # noqa: S311 - a seed that repeats a run is the point
    trace: list[str] = []
    loop = VirtualLoop(random)
    loop.set_exception_handler(lambda _loop, _context: None)  # what tasks raise is known from their results
    violation, cause = None, ""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        loop.run_until_complete(_story(random, steps, trace))
    except (Violation, Stuck) as found:
        violation = str(found)
        cause = "".join(traceback.format_exception(found.__cause__)) if found.__cause__ is not None else ""
    finally:
        logging.disable(level)
        loop.close()
    return Outcome(seed, violation, tuple(trace), cause)


def simulations(seeds: range, steps: int = STEPS) -> Iterator[Outcome]:
    """Run many, one after the other."""
    return (simulate(seed, steps) for seed in seeds)


async def _story(random: Random, steps: int, trace: list[str]) -> None:
    world = World(random, trace)
    with standing_in(world.around):
        try:
            await world.run(steps)
        finally:
            world.around.memory.cut_power()
            await world.process.bury()
