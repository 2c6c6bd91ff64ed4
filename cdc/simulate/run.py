"""Simulations by their seeds: run, and told as a value; many of them in several processes, in the seeds' order."""

import logging
import multiprocessing
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from cdc.simulate.oracle import Violation
from cdc.simulate.standing_in import standing_in
from cdc.simulate.virtual_loop import Stuck, VirtualLoop
from cdc.simulate.world import World

STEPS: Final = 40
"""Deeds of a story: enough for several lives of the process, few enough to be read when one goes wrong."""

_CHUNK: Final = 10
"""Stories that a process gets at a time."""


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
    return play(seed, lambda world: world.run(steps))


def play(seed: int, story: Callable[[World], Awaitable[None]]) -> Outcome:
    """Let a story be lived through in the world of a seed."""
    random = Random(seed)  # noqa: S311 - a seed that repeats a run is the point
    trace: list[str] = []
    loop = VirtualLoop(random)
    loop.set_exception_handler(lambda _loop, _context: None)  # what tasks raise is known from their results
    violation, cause = None, ""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # faults are the point; the program's word on each would fill the screen
    try:
        loop.run_until_complete(_lived(random, story, trace))
    except (Violation, Stuck) as found:
        violation = str(found)
        cause = "".join(traceback.format_exception(found.__cause__)) if found.__cause__ is not None else ""
    finally:
        logging.disable(level)
        loop.close()
    return Outcome(seed, violation, tuple(trace), cause)


def simulations(seeds: range, steps: int = STEPS, jobs: int = 1) -> Iterator[Outcome]:
    """Run many."""
    run = partial(simulate, steps=steps)
    if jobs == 1 or len(seeds) == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run, seeds, chunksize=_CHUNK)


async def _lived(random: Random, story: Callable[[World], Awaitable[None]], trace: list[str]) -> None:
    world = World(random, trace)
    with standing_in(world.around):
        try:
            await story(world)
            server, memory = world.around.server, world.around.memory
            trace.append(f"-- at rest: {len(server.wal)} commits up to {server.insert_lsn}, {memory.operations} writes")
        finally:
            world.around.memory.cut_power()
            await world.process.bury()
