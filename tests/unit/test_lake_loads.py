"""Runs of a base that overlap, cut into ranges of keys: every row of every run is read for the one range it is in."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from storage.lake.keys import Key
from storage.lake.loads import _sorted
from storage.lake.parquet_files import NewFile
from storage.lake.table_schema import TableSchema
from storage.lake.tasks import Done, SortRange, TableWork, Work

SCHEMA = TableSchema.of_definition({"version": 1, "columns": [["id", 1, 23, -1]], "key": ["id"], "log": "full"})
TABLE = TableWork("", "/nowhere", "", "orders", 1, 0, SCHEMA)

keys_of_a_run = st.sets(st.integers(0, 99), min_size=1, max_size=30).map(sorted)
runs_of_keys = st.lists(keys_of_a_run, min_size=2, max_size=8)


def is_in(key: int, part: SortRange) -> bool:
    """Whether a range of numbers has it."""
    least, end = part.low or 0, 100 if part.high is None else part.high
    assert isinstance(least, int)
    assert isinstance(end, int)
    return least <= key < end


@given(runs_of_keys, st.integers(1, 3))
def test_ranges_of_runs_have_all_their_rows(runs: list[list[int]], sample_rows: int) -> None:
    """Also a row that stands alone at the end of its run, where a range begins with its key."""
    files = [NewFile(f"run-{number}", len(keys), 0, keys[0], keys[-1]) for number, keys in enumerate(runs)]
    done = [Done(state=[file], samples=list[Key](keys[::sample_rows])) for file, keys in zip(files, runs, strict=True)]
    ranges = list[SortRange]()

    def run(work: Sequence[Work]) -> list[Done]:
        ranges.extend(one for one in work if isinstance(one, SortRange))
        return []

    _sorted(TABLE, done, files, run)
    for file, keys in zip(files, runs, strict=True):
        for key in keys:
            found = [one for one in ranges if is_in(key, one)]
            assert len(found) == 1
            assert file.name in found[0].runs, f"{key} of {file.name}"
