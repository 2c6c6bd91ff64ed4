"""Which files of a state become fewer: in numbers alone, for any sizes of files."""

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage.lake.limits import (
    STATE_FILE_BYTES,
    STATE_FILE_ROWS,
    STATE_JOINED_BYTES_MAX,
    STATE_JOINED_FILES_MAX,
)
from storage.lake.state import StateFile, files_for, packed
from storage.lake.state_joins import is_scattered, share_of, state_joins

GROUP = STATE_FILE_ROWS // 8
FILES_MAX = 64
ROWS = 10_000_000

COUNTS = st.integers(1, STATE_FILE_ROWS * 5 // 4)
SHARES = st.sampled_from([0.01, 0.2, 0.5, 0.63, 0.88, 0.9, 1.0, 1.25]).map(lambda share: int(share * STATE_FILE_ROWS))


def listed(rows: list[int], size: int = 0) -> list[StateFile]:
    return [StateFile(f"f{number}", 10 * number, count, count * size) for number, count in enumerate(rows)]


def joined(files: list[StateFile]) -> list[int]:
    """Rows of the files after they were joined, by the rule that row groups are packed by."""
    by_path, parts = {file.path: file for file in files}, {one.paths[0]: one for one in state_joins(files)}
    found, skip = list[int](), set[str]()
    for file in files:
        if file.path in skip:
            continue
        part = parts.get(file.path)
        if part is None:
            found.append(file.rows)
            continue
        skip |= {*part.paths}
        groups = [rows for path in part.paths for rows in groups_of(by_path[path].rows)]
        made = packed([(rows, 1) for rows in groups], is_tail=part.high is None)
        found += [sum(groups[number] for number in one) for one in made]
    return found


def groups_of(rows: int) -> list[int]:
    """Of about equal size, none above a full file's."""
    count = -(-rows // GROUP)
    bounds = [rows * number // count for number in range(count + 1)]
    return [stop - start for start, stop in pairwise(bounds)]


@given(st.lists(COUNTS | SHARES, max_size=60))
def test_ranges_are_apart_bounded_and_become_fewer(rows: list[int]) -> None:
    files = listed(rows)
    by_path, places = {file.path: file for file in files}, {file.path: n for n, file in enumerate(files)}
    last = -1
    for part in state_joins(files):
        numbers = [places[path] for path in part.paths]
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]
        assert numbers[0] > last
        last = numbers[-1]
        total = sum(share_of(by_path[path]) for path in part.paths)
        assert total <= STATE_JOINED_FILES_MAX
        assert files_for(total) < len(part.paths)
        assert (part.low, part.high) == (
            files[numbers[0]].low if numbers[0] else None,
            files[last + 1].low if last + 1 < len(files) else None,
        )
    after = joined(files)
    assert sum(after) == sum(rows)
    assert len(after) <= len(files)


@given(st.lists(COUNTS | SHARES, min_size=1, max_size=200))
def test_after_joins_a_state_has_few_files_for_its_rows(rows: list[int]) -> None:
    after = joined(listed(rows))
    assert len(after) <= sum(rows) / (0.9 * STATE_FILE_ROWS) + 3
    assert not is_scattered(listed(after)), "a writer that joined would join again"


def test_ten_million_rows_are_in_few_files_whatever_was_deleted() -> None:
    chance = random.Random(1)
    for low, high in ((0.26, 0.26), (0.3, 0.6), (0.1, 1.25), (0.62, 0.64), (0.7, 0.8)):
        files = list[int]()
        while sum(files) < ROWS:
            files.append(int(chance.uniform(low, high) * STATE_FILE_ROWS))
        assert len(joined(listed(files))) <= FILES_MAX, (low, high)
        assert is_scattered(listed(files)) == (len(files) > FILES_MAX), (low, high)
    full_and_empty = [5 * GROUP * 2, 100] * (ROWS // (GROUP * 10))
    assert len(joined(listed(full_and_empty))) <= FILES_MAX


@given(st.lists(COUNTS, max_size=30), st.integers(1, 4000))
def test_what_a_task_reads_is_bounded_for_wide_rows_too(rows: list[int], size: int) -> None:
    files = listed(rows, size)
    by_path = {file.path: file for file in files}
    for part in state_joins(files):
        *_, largest = sorted(by_path[path].bytes for path in part.paths)
        assert sum(by_path[path].bytes for path in part.paths) <= max(STATE_JOINED_BYTES_MAX, largest)


def test_full_files_are_left_alone() -> None:
    assert state_joins(listed([STATE_FILE_ROWS] * 50)) == []
    wide = [StateFile(f"f{number}", number, 10, STATE_FILE_BYTES) for number in range(50)]
    assert state_joins(wide) == []
    assert not is_scattered(wide)
    fullest = STATE_FILE_ROWS * 5 // 4
    (one,) = state_joins(listed([fullest, 10, 10, fullest]))
    assert one.paths == ("f1", "f2")
