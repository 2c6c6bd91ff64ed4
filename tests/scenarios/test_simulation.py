"""The whole program in made-up worlds: nothing is lost, nothing comes twice, and all comes to rest.

A failure names its seed; `shapelog simulate --seed N` repeats it, with all that happened.
"""

import pytest

from cdc.simulate.run import simulate, simulations
from tests.scenarios.defects import DEFECTS, LATE

pytestmark = pytest.mark.timeout(600)  # seconds: on a busy machine a story takes ten times as long

CHUNK = 50
"""Stories of one test: so many that starting it costs nothing, so few that those who run tests at a time share well."""
SEEDS = 2_000
"""Of every test run."""
NEMESIS_SEEDS = 20_000
DEFECT_SEEDS = 600
"""A defect is found within so many stories, or the simulator is not worth its time."""
JOBS = 2


def assert_sound(seeds: range, jobs: int = 1) -> None:
    found = [(one.seed, one.violation, one.cause) for one in simulations(seeds, jobs=jobs) if one.violation is not None]
    assert not found, "\n\n".join(f"seed {seed}: {violation}\n{cause}" for seed, violation, cause in found[:3])


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_stories_end_well(start: int) -> None:
    assert_sound(range(start, start + CHUNK))


@pytest.mark.nemesis
def test_many_stories_end_well() -> None:
    assert_sound(range(SEEDS, SEEDS + NEMESIS_SEEDS), JOBS)


@pytest.mark.nemesis
def test_long_stories_end_well() -> None:
    found = [one for one in simulations(range(500), 1_000, JOBS) if one.violation is not None]
    assert not found, [(one.seed, one.violation) for one in found[:3]]


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str) -> None:
    with DEFECTS[name]():
        if any(simulate(seed).violation is not None for seed in (LATE.get(name, 0), *range(DEFECT_SEEDS))):
            return
    pytest.fail(f"{DEFECT_SEEDS} stories, and nobody noticed")


def test_a_seed_repeats_its_story() -> None:
    here = [simulate(seed) for seed in range(20)]
    assert here == list(simulations(range(20), jobs=2)), (
        "in another process, with other hashes, something else happened"
    )
    assert len({one.trace for one in here}) == len(here), "seeds do not tell stories apart"
