"""Joining small files of changes: days of batches of any size, played in numbers alone."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.lake.joins import ALL_SMALL, joins
from storage.lake.limits import CHANGES_TIERS_BYTES, JOINED_BYTES_MAX
from storage.limits import MIB

(LARGE, LARGE_COUNT), (SMALL, _), (TINY, TINY_COUNT) = CHANGES_TIERS_BYTES


def step(files: list[int], new: list[int]) -> tuple[list[int], int]:
    """Sizes after a cut, and the bytes that were written again."""
    runs = {run.start: run for run in joins(files)}
    after, number, again = list[int](), 0, 0
    while number < len(files):
        run = runs.get(number, range(number, number + 1))
        after.append(sum(files[run.start : run.stop]))
        again += after[-1] if len(run) > 1 else 0
        number = run.stop
    return after + new, again


SIZES = st.sampled_from([1_000, TINY, 100_000, SMALL - 1, SMALL, 8 * MIB, LARGE - 1])


@given(st.lists(st.tuples(SIZES, st.integers(1, 60)), max_size=12))
def test_files_are_bounded_whatever_comes(batches: list[tuple[int, int]]) -> None:
    files: list[int] = []
    for size, count in batches:
        for _ in range(count):
            files, _ = step(files, [size])
    assert len(files) <= LARGE_COUNT + 1 + 2 * sum(files) / JOINED_BYTES_MAX


@pytest.mark.parametrize("size", [2_000, 50_000, 1 * MIB])
def test_a_day_of_small_batches_leaves_tens_of_files(size: int) -> None:
    """Every five seconds one; a row is rewritten a few times only."""
    files, again, most = list[int](), 0, 0
    for _ in range(24 * 3600 // 5):
        files, more = step(files, [size])
        again += more
        most = max(most, len(files) - sum(file >= LARGE for file in files))
    assert most <= LARGE_COUNT + 1
    assert again <= 7 * sum(files)


@given(st.lists(st.integers(0, 2 * LARGE), max_size=200))
def test_joins_are_neighbours_and_of_a_size(sizes: list[int]) -> None:
    found = joins(sizes)
    assert all(one.stop <= other.start for one, other in pairwise(found))
    for run in found:
        assert len(run) > 1
        assert sum(sizes[number] for number in run) < JOINED_BYTES_MAX + LARGE


@pytest.mark.parametrize(("sizes", "count"), [([], 0), ([1] * 7, 0), ([1] * 8, 1), ([2 * LARGE, *[1] * 9], 1)])
def test_a_tier_is_joined_once_it_is_full(sizes: list[int], count: int) -> None:
    assert len(joins(sizes)) == count
    assert TINY_COUNT == 8


@given(st.lists(st.integers(0, 2 * LARGE), max_size=200))
def test_on_demand_nothing_small_is_left_beside_something_small(sizes: list[int]) -> None:
    files, again = sizes, list[int]()
    while files != again:
        again, runs = files, {run.start: run for run in joins(files, ALL_SMALL)}
        number, files = 0, []
        while number < len(again):
            run = runs.get(number, range(number, number + 1))
            files.append(sum(again[run.start : run.stop]))
            number = run.stop
    assert not any(one < JOINED_BYTES_MAX and other < JOINED_BYTES_MAX for one, other in pairwise(files))
