"""From offsets to places: a walk that follows the answers meets every chunk once, in order, then the log."""

from hypothesis import given
from hypothesis import strategies as st

from shapes.http.positions import BaseFacts, ChunkPlace, LogPlace, NotWritten, bound_of, place_of
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset


@given(chunks=st.integers(0, 9), floor=st.sampled_from([SNAPSHOT_END, LogOffset(9, 3)]))
def test_a_walk_meets_each_chunk_once_then_the_log(chunks: int, floor: LogOffset) -> None:
    base, after, met = BaseFacts(chunks, True, floor), BEFORE_ALL, []
    while isinstance(place := place_of(after, base), ChunkPlace):
        met.append((place.number, place.is_last))
        after = LogOffset.of_snapshot_chunk(place.number)
    count = max(chunks, 1)
    assert met == [(number, number == count - 1) for number in range(count)]
    assert place == LogPlace(floor)


@given(written=st.integers(0, 5), more=st.integers(1, 3), asked=st.integers(-1, 7))
def test_what_is_told_while_a_base_is_written_is_still_true_after(written: int, more: int, asked: int) -> None:
    after = BEFORE_ALL if asked < 0 else LogOffset.of_snapshot_chunk(asked)
    early = place_of(after, BaseFacts(written, False, SNAPSHOT_END))
    assert early == NotWritten() or early == place_of(after, BaseFacts(written + more, True, SNAPSHOT_END))


@given(tx=st.integers(1, 99), op=st.integers(0, 9), seen=st.integers(0, 120))
def test_a_reader_of_events_is_in_bounds_behind_what_was_seen(tx: int, op: int, seen: int) -> None:
    bound = bound_of(LogOffset(tx, op), seen)
    assert bound >= LogOffset(tx + 1, 0)
    assert bound >= LogOffset(seen + 1, 0)
    assert bound <= LogOffset(max(tx, seen) + 1, 0)
