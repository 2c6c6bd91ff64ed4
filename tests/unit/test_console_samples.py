"""The console's curves: rates between readings, bounded, and nothing where nobody knows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdc.http.console.samples import COLUMNS, Reading, Samples

READING = Reading(
    at=100.0,
    seen_lsn=1000,
    flushed_bytes=0,
    read_rows=0,
    lag_bytes=None,
    lag_seconds=0.0,
    buffered_bytes=0,
    retained_bytes=None,
)
counters = st.none() | st.integers(0, 2**63)


@given(st.lists(st.tuples(st.floats(0.5, 60), counters, st.integers(0, 2**40)), max_size=30), st.integers(1, 10))
def test_each_point_is_what_came_since_the_reading_before(
    steps: list[tuple[float, int | None, int]], kept: int
) -> None:
    samples, at = Samples(kept), 0.0
    plain: list[tuple[float, float | None, float | None]] = []
    before: tuple[float, int | None, int] | None = None
    for seconds, seen, flushed in steps:
        at += seconds
        samples.add(replace(READING, at=at, seen_lsn=seen, flushed_bytes=flushed, lag_bytes=flushed))
        received = written = None
        if before is not None:
            elapsed = at - before[0]
            if seen is not None and before[1] is not None and seen >= before[1]:
                received = round((seen - before[1]) / elapsed, 1)
            if flushed >= before[2]:
                written = round((flushed - before[2]) / elapsed, 1)
        before = (at, seen, flushed)
        plain.append((at, received, written))

    columns = samples.columns(0)
    assert set(columns) == set(COLUMNS)
    assert {len(column) for column in columns.values()} == {min(len(steps), kept)}
    names = ("at", "received_bytes_per_second", "flushed_bytes_per_second")
    assert list(zip(*(columns[name] for name in names), strict=True)) == plain[-kept:]
    for after, *_ in plain:
        assert samples.columns(after)["at"] == [time for time in columns["at"] if time > after]


def test_a_clock_that_goes_back_begins_anew() -> None:
    samples = Samples()
    for at in (100.0, 102.0, 50.0, 52.0):
        samples.add(replace(READING, at=at, flushed_bytes=int(at)))
    assert samples.columns(0)["at"] == [50.0, 52.0]
    assert samples.columns(0)["flushed_bytes_per_second"] == [None, 1.0]
