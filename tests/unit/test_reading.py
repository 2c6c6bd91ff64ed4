"""Reading: over any division of a log into pieces it is what it is over the plain list of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import reading
from storage.errors import AboveUpper, CorruptBlock, Hole, Refetch
from storage.limits import ROW_WIRE_OVERHEAD_BYTES
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.reading import LoadedRows, LogView, Piece, ReadResult, ReadSource, read
from storage.rows import wire_sizes
from tests.unit.builders import offsets, rows

CHUNK = 700
SOURCES = list(ReadSource)


@dataclass(frozen=True)
class Log:
    """Rows in a plain list: where they stand, and how large they are on the wire."""

    at: list[LogOffset]
    texts: list[str]
    wire_start: int = 0

    @property
    def batch(self) -> pa.RecordBatch:
        batches = [rows([at], text=text) for at, text in zip(self.at, self.texts, strict=True)]
        joined: pa.RecordBatch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        return joined

    @property
    def wire_before(self) -> list[int]:
        """W(r) of docs/storage-format.md."""
        before = [self.wire_start]
        for at, text in zip(self.at, self.texts, strict=True):
            before.append(before[-1] + ROW_WIRE_OVERHEAD_BYTES + len(f"{at.tx}.{at.op}") + len(text))
        return before

    def read(self, after: LogOffset, visible: LogOffset, max_bytes: int | None) -> tuple[list[LogOffset], bool]:
        """The rows that a read must return, and whether no visible row follows them."""
        wanted = [row for row, at in enumerate(self.at) if after < at <= visible]
        if not wanted:
            return [], True
        start = self.wire_before[wanted[0]]
        if max_bytes is None:
            fitting = [row for row in wanted if self.wire_before[row] // CHUNK == start // CHUNK]
        else:
            fitting = [row for row in wanted if self.wire_before[row] < start + max(1, max_bytes)]
        return [self.at[row] for row in fitting], fitting == wanted

    def pieces(self, cuts: Sequence[int], inner_cuts: Sequence[int] = ()) -> list[Piece]:
        """The log cut into pieces at these rows, and the pieces into batches."""
        whole, before = self.batch, self.wire_before
        bounds = sorted({0, len(self.at), *(cut for cut in cuts if cut < len(self.at))})
        return [
            piece_of(
                _split(whole, start, stop, inner_cuts),
                previous=self.at[start - 1] if start else SNAPSHOT_END,
                wire_end=before[stop],
                source=SOURCES[number % len(SOURCES)],
            )
            for number, (start, stop) in enumerate(pairwise(bounds))
        ]


def _split(whole: pa.RecordBatch, start: int, stop: int, cuts: Sequence[int]) -> list[pa.RecordBatch]:
    bounds = sorted({start, stop, *(cut for cut in cuts if start < cut < stop)})
    return [whole.slice(one, other - one) for one, other in pairwise(bounds)]


def piece_of(
    batches: list[pa.RecordBatch],
    *,
    previous: LogOffset = SNAPSHOT_END,
    wire_end: int | None = None,
    source: ReadSource = ReadSource.SEGMENT,
) -> Piece:
    at = offsets(batches)
    if wire_end is None:
        wire_end = sum(int(wire_sizes(batch).sum()) for batch in batches)
    return Piece(source, previous, at[0], at[-1], len(at), wire_end, lambda: LoadedRows(batches))


def view(pieces: Sequence[Piece], *, visible: LogOffset | None = None, **facts: object) -> LogView:
    found = LogView(
        log=1,
        handle="a-handle",
        visible=visible or max((piece.last for piece in pieces), default=SNAPSHOT_END),
        durable=SNAPSHOT_END,
        chunk_bytes=CHUNK,
        base=None,
        floor=SNAPSHOT_END,
        retired=SNAPSHOT_END,
        pieces=list(pieces),
    )
    return replace(found, **facts)  # type: ignore[arg-type]  # fields of a view


def comparable(result: ReadResult) -> tuple[list[LogOffset], LogOffset, bool, bool]:
    return offsets(result.rows), result.next, result.at_end, result.chunk_ended


@st.composite
def logs(draw: st.DrawFn) -> Log:
    steps = draw(st.lists(st.sampled_from(["row", "row", "transaction"]), max_size=14))
    at, tx, op = [], 1, 0
    for step in steps:
        if step == "transaction":
            tx, op = tx + draw(st.integers(1, 3)), 0
        at.append(LogOffset(tx, op))
        op += 2
    sizes = draw(st.lists(st.sampled_from([0, 1, 50, 300, 1500]), min_size=len(at), max_size=len(at)))
    return Log(at, ["x" * size for size in sizes], draw(st.sampled_from([0, 699, 700, 12_345])))


cuts = st.lists(st.integers(1, 13), max_size=6)
limits = st.none() | st.integers(-5, 3000)
any_offset = st.builds(LogOffset, st.integers(1, 30), st.integers(0, 9)) | st.just(SNAPSHOT_END)


@given(logs(), cuts, cuts, any_offset, any_offset, limits)
def test_a_read_is_what_the_plain_list_says(
    log: Log, divided: list[int], batched: list[int], after: LogOffset, visible: LogOffset, max_bytes: int | None
) -> None:
    if not log.at or after > visible:
        return
    result = read(view(log.pieces(divided, batched), visible=visible), after, max_bytes)
    expected, at_end = log.read(after, visible, max_bytes)
    assert comparable(result) == (
        expected,
        expected[-1] if expected else after,
        at_end,
        not at_end and max_bytes is None,
    )
    assert result.count == sum(result.sources.values()) == len(expected)
    assert (result.visible, result.durable) == (visible, SNAPSHOT_END)


@given(logs(), cuts, cuts, limits)
def test_reading_on_meets_every_row_once(
    log: Log, divided: list[int], batched: list[int], max_bytes: int | None
) -> None:
    """R1, R10: and it comes to an end."""
    if not log.at:
        return
    pieces = log.pieces(divided, batched)
    seen: list[LogOffset] = []
    after = SNAPSHOT_END
    for _ in range(len(log.at) + 1):
        result = read(view(pieces), after, max_bytes)
        seen += offsets(result.rows)
        after = result.next
        if result.at_end:
            break
    assert seen == log.at


@given(logs(), cuts, cuts, any_offset)
def test_chunks_do_not_know_how_flushes_divided_the_log(
    log: Log, one: list[int], other: list[int], after: LogOffset
) -> None:
    if not log.at or after > log.at[-1]:
        return
    first, second = (read(view(log.pieces(division, division[::-1])), after, None) for division in (one, other))
    assert comparable(first) == comparable(second)


@given(logs(), cuts)
def test_a_chunk_that_ended_stays_as_it_is(log: Log, divided: list[int]) -> None:
    """What was read up to a chunk's end is read again when the log has grown; caches rely on that."""
    for count in range(1, len(log.at)):
        short = Log(log.at[:count], log.texts[:count], log.wire_start)
        before = read(view(short.pieces(divided)), SNAPSHOT_END, None)
        after = read(view(log.pieces([])), SNAPSHOT_END, None)
        if before.chunk_ended:
            assert comparable(before) == comparable(after)
        else:
            assert offsets(after.rows)[: before.count] == offsets(before.rows)


@pytest.mark.parametrize("max_bytes", [0, -1, -(10**9), 1])
def test_the_smallest_read_is_one_row(max_bytes: int) -> None:
    log = Log([LogOffset(1, 0), LogOffset(1, 2), LogOffset(2, 0)], ["x" * 5000, "", ""])
    for cut in ([], [1], [1, 2]):
        for start, after in enumerate([SNAPSHOT_END, *log.at[:-1]]):
            result = read(view(log.pieces(cut)), after, max_bytes)
            assert offsets(result.rows) == [log.at[start]]
            assert result.at_end == (start == 2)


def test_a_read_is_bounded_whatever_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_BYTES_MAX", 250)
    log = Log([LogOffset(tx, 0) for tx in range(1, 9)], [""] * 8)
    assert read(view(log.pieces([])), SNAPSHOT_END, 10**9).count == 3


def test_an_empty_log() -> None:
    result = read(view([]), SNAPSHOT_END, None)
    assert comparable(result) == ([], SNAPSHOT_END, True, False)


def test_only_what_is_wanted_is_loaded() -> None:
    log = Log([LogOffset(tx, 0) for tx in range(1, 7)], ["x" * 400] * 6)
    loaded: list[LogOffset] = []

    def noted(piece: Piece) -> Piece:
        def load() -> LoadedRows:
            loaded.append(piece.first)
            return piece.load()

        return replace(piece, load=load)

    pieces = [noted(piece) for piece in log.pieces([1, 2, 3, 4, 5])]
    assert read(view(pieces), LogOffset(2, 0), 600).count == 2
    assert loaded == [LogOffset(3, 0), LogOffset(4, 0)]


# Rows that are in two places, or invisible.


def test_rows_found_twice_count_once() -> None:
    """A share that the segments have too, after a crash."""
    log = Log([LogOffset(tx, 0) for tx in range(1, 5)], [""] * 4)
    segment = log.pieces([])[0]
    share = replace(log.pieces([2])[0], source=ReadSource.JOURNAL)
    result = read(view([segment, share]), SNAPSHOT_END, 10**6)
    assert offsets(result.rows) == log.at
    assert result.sources == {ReadSource.SEGMENT: 4}


def test_rows_above_v_are_not_loaded() -> None:
    log = Log([LogOffset(1, 0), LogOffset(2, 0)], ["", ""])
    pieces = log.pieces([1])
    damaged = replace(pieces[1], load=lambda: _raise(CorruptBlock("nobody may look")))
    result = read(view([pieces[0], damaged], visible=LogOffset(1, 1)), SNAPSHOT_END, None)
    assert comparable(result) == ([LogOffset(1, 0)], LogOffset(1, 0), True, False)


def _raise(error: Exception) -> LoadedRows:
    raise error


# What is missing.


def test_above_v() -> None:
    log = Log([LogOffset(1, 0)], [""])
    with pytest.raises(AboveUpper):
        read(view(log.pieces([]), visible=LogOffset(1, 1)), LogOffset(1, 2), None)


def test_who_stands_above_a_log_that_stopped_hears_why() -> None:
    """It let go of rows that were visible and not durable; the reader has some of them."""
    fault = CorruptBlock("stopped")
    log = Log([LogOffset(1, 0)], [""])
    with pytest.raises(CorruptBlock):
        read(replace(view(log.pieces([]), visible=LogOffset(1, 1)), fault=fault), LogOffset(2, 0), None)


def test_a_read_is_bounded_even_where_chunks_are_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_BYTES_MAX", 250)
    log = Log([LogOffset(tx, 0) for tx in range(1, 7)], [""] * 6)
    found = read(view(log.pieces([])), SNAPSHOT_END, None)
    assert (found.count, found.at_end, found.chunk_ended) == (3, False, False)


def test_a_hole_is_met_by_the_read_that_begins_there() -> None:
    """The disk ends with 1763, memory begins with 1800: what lies before is returned, what lies behind is not."""
    log = Log([LogOffset(tx, 0) for tx in (1762, 1763, 1764, 1800)], [""] * 4)
    first, _, last = log.pieces([2, 3])
    result = read(view([first, last]), SNAPSHOT_END, 10**6)
    assert comparable(result) == (log.at[:2], LogOffset(1763, 0), False, False)
    for after in (LogOffset(1763, 0), LogOffset(1763, 5)):
        with pytest.raises(Hole, match="1764_0 are missing"):
            read(view([first, last]), after, 10**6)
    assert offsets(read(view([first, last]), LogOffset(1764, 0), None).rows) == [LogOffset(1800, 0)]


def test_a_lawful_gap_is_no_hole() -> None:
    """The writer chained the row behind it to the row before it."""
    log = Log([LogOffset(1763, 0), LogOffset(1800, 0)], ["", ""])
    assert offsets(read(view(log.pieces([1])), SNAPSHOT_END, 10**6).rows) == log.at
    assert offsets(read(view(log.pieces([1])), LogOffset(1780, 3), 10**6).rows) == log.at[1:]


def test_damage_is_met_by_the_read_that_begins_there() -> None:
    log = Log([LogOffset(1, 0), LogOffset(2, 0)], ["", ""])
    pieces = log.pieces([1])
    pieces[1] = replace(pieces[1], load=lambda: _raise(CorruptBlock("spoiled")))
    result = read(view(pieces), SNAPSHOT_END, None)
    assert comparable(result) == (log.at[:1], log.at[0], False, False)
    with pytest.raises(CorruptBlock):
        read(view(pieces), log.at[0], None)


def test_a_logs_fault_is_told_behind_its_last_row() -> None:
    log = Log([LogOffset(1, 0)], [""])
    fault = CorruptBlock("spoiled")
    result = read(view(log.pieces([]), fault=fault), SNAPSHOT_END, None)
    assert comparable(result) == (log.at, log.at[0], False, False)
    with pytest.raises(CorruptBlock):
        read(view(log.pieces([]), fault=fault), log.at[0], None)


FLOOR, LAST = LogOffset(10, 5), LogOffset(10, 2)
BEHIND = Log([LogOffset(20, 0), LogOffset(30, 0)], ["", ""])


def retired_view() -> LogView:
    """A base that has all up to its last row; of the log itself, only what follows is left."""
    first, *others = BEHIND.pieces([1])
    return view([replace(first, previous=LAST), *others], base=3, floor=FLOOR, retired=LAST)


@pytest.mark.parametrize("after", [BEFORE_ALL, LogOffset(0, 2), SNAPSHOT_END, LogOffset(10, 0)])
def test_below_the_floor_the_reader_starts_again(after: LogOffset) -> None:
    """R22: told where, and never served from the earliest row that is left."""
    for found in (retired_view(), view([], visible=FLOOR, base=3, floor=FLOOR, retired=LAST)):
        with pytest.raises(Refetch) as told:
            read(found, after, None)
        assert (told.value.facts["base"], told.value.facts["floor"]) == (3, FLOOR)


@pytest.mark.parametrize("after", [LAST, LogOffset(10, 3), FLOOR, LogOffset(15, 0)])
def test_from_the_floor_on_the_log_is_followed(after: LogOffset) -> None:
    assert offsets(read(retired_view(), after, 10**6).rows) == BEHIND.at


def test_a_log_that_keeps_its_rows_serves_them_below_a_base() -> None:
    log = Log([LogOffset(5, 0), LogOffset(10, 2)], ["", ""])
    assert offsets(read(view(log.pieces([1]), base=3, floor=FLOOR, retired=LAST), SNAPSHOT_END, 10**6).rows) == log.at


def test_a_file_missing_behind_the_floor_is_a_hole() -> None:
    first, second = BEHIND.pieces([1])
    found = replace(retired_view(), pieces=[replace(first, previous=LAST), replace(second, previous=LogOffset(25, 0))])
    with pytest.raises(Hole):
        read(found, LogOffset(20, 0), None)


@pytest.mark.parametrize("after", [BEFORE_ALL, LogOffset(0, 0), LogOffset(0, 7)])
def test_inside_the_snapshot_there_is_no_log(after: LogOffset) -> None:
    for found in (view([]), view(BEHIND.pieces([]))):
        with pytest.raises(Refetch):
            read(found, after, None)
