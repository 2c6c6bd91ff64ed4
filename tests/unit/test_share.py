"""Shares of a source: offsets, sizes and rows are those of the selected rows, and nothing is copied too early."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.limits import ROW_WIRE_OVERHEAD_BYTES
from storage.offset import BEFORE_ALL, LogOffset
from storage.parts import decode_batches
from storage.rows import XID_FIELD, Integers
from storage.share import Share, Source, gathered, merged
from tests.unit.builders import offsets, rows, transaction

AT = [(1, 0), (1, 4), (3, 0), (3, 1), (3, 8), (9, 2)]
TEXTS = ["", "a", "bc", "ü", "x" * 300, "y"]
BATCH = (
    pa.Table.from_batches([rows([at], text=text) for at, text in zip(AT, TEXTS, strict=True)])
    .combine_chunks()
    .to_batches()[0]
)

selections = st.none() | st.sets(st.integers(0, len(AT) - 1), min_size=1).map(sorted).map(np.array)


def wire(row: int) -> int:
    """A row's wire size, as docs/storage-format.md has it."""
    tx, op = AT[row]
    return ROW_WIRE_OVERHEAD_BYTES + len(f"{tx}.{op}") + len(TEXTS[row].encode())


@given(selections)
def test_a_share_is_its_selected_rows(selected: Integers | None) -> None:
    share = Share(Source(BATCH), selected, at=2.5)
    numbers = list(range(len(AT))) if selected is None else [int(row) for row in selected]
    expected = [LogOffset(*AT[row]) for row in numbers]
    assert offsets([share.batch()]) == expected
    assert (share.first, share.last, share.count) == (expected[0], expected[-1], len(expected))
    assert share.wire == sum(wire(row) for row in numbers)
    assert share.at == 2.5
    assert not share.gap


@given(selections, st.builds(LogOffset, st.integers(0, 10), st.integers(0, 9)) | st.just(BEFORE_ALL))
def test_rows_up_to_an_offset(selected: Integers | None, offset: LogOffset) -> None:
    share = Share(Source(BATCH), selected, at=0.0)
    known = share.rows_up_to(offset)
    everything = offsets([share.batch()])
    assert known == sum(one <= offset for one in everything)
    if known < share.count:
        rest = share.without_first(known)
        assert offsets([rest.batch()]) == everything[known:]
        assert (rest.first, rest.at, rest.source) == (everything[known], share.at, share.source)


@given(st.lists(selections, min_size=1, max_size=5))
def test_sizes_of_shares_are_parts_of_their_source(selected: list[Integers | None]) -> None:
    source = Source(BATCH)
    for one in selected:
        share = Share(source, one, at=0.0)
        assert 0 < share.size <= source.size
        assert share.batch().nbytes <= share.size + share.count


def test_a_share_is_as_large_as_its_own_rows() -> None:
    """An average would make the one large row small, and nine small ones large."""
    source = Source(rows([(1, 0)], text="x" * 100_000))
    batch = pa.concat_batches([rows(transaction(1, 9)), rows([(2, 0)], text="x" * 100_000)])
    large, small = Share(Source(batch), np.array([9]), at=0.0), Share(Source(batch), np.arange(9), at=0.0)
    assert abs(large.size - source.size) < 100
    assert small.size < 1_000


@given(st.lists(selections, min_size=1, max_size=9), st.lists(st.booleans(), min_size=9, max_size=9))
def test_rows_of_many_shares_are_gathered_together(selected: list[Integers | None], others: list[bool]) -> None:
    sources = [Source(BATCH), Source(BATCH)]
    shares = [Share(sources[other], one, at=0.0) for one, other in zip(selected, others, strict=False)]
    assert [batch.to_pylist() for batch in gathered(shares)] == [share.batch().to_pylist() for share in shares]


@pytest.mark.parametrize("text", ["", "x" * 100_000], ids=["small", "large"])
def test_what_is_prepared_is_what_is_written(text: str) -> None:
    source = Source(rows(transaction(1, 2), text=text))
    source.prepare()
    written = b"".join(bytes(buffer) for buffer in source.part.buffers)
    assert source.part.size == len(written)
    assert decode_batches(memoryview(written)) == [rows(transaction(1, 2), text=text)] == [source.batch]
    assert [source.offset(0), source.offset(1)] == transaction(1, 2)


def test_what_is_worked_out_is_kept() -> None:
    source = Source(BATCH)
    source.prepare()
    part, sums = source.part, source.wire_sums
    source.prepare()
    assert source.part is part
    assert source.wire_sums is sums
    assert list(np.diff(sums)) == [wire(row) for row in range(len(AT))]
    whole = b"".join(bytes(buffer) for buffer in part.buffers)
    assert offsets(decode_batches(memoryview(whole))) == [LogOffset(*at) for at in AT]


def test_a_source_knows_its_rows_places() -> None:
    source = Source(BATCH)
    assert [source.offset(row) for row in range(len(AT))] == [LogOffset(*at) for at in AT]
    assert source.offset(-1) == LogOffset(*AT[-1])


@pytest.mark.parametrize("selected", [None, np.array([2, 3, 4])], ids=["all", "neighbours"])
def test_neighbouring_rows_are_not_copied(selected: Integers | None) -> None:
    batch = Share(Source(BATCH), selected, at=0.0).batch()
    assert batch.column("tx").buffers()[1].address == BATCH.column("tx").buffers()[1].address


def test_loose_shares_become_one() -> None:
    shares = [Share(Source(rows([(tx, 0)], text=f"text {tx}")), None, at=float(tx)) for tx in range(1, 9)]
    for share, previous in pairwise(shares):
        previous.previous = share.last
    shares[0].gap = True
    one = merged(shares)
    assert one is not None
    assert offsets([one.batch()]) == [LogOffset(tx, 0) for tx in range(1, 9)]
    assert (one.previous, one.first, one.last, one.at, one.gap) == (
        shares[0].previous,
        shares[0].first,
        shares[-1].last,
        1.0,
        True,
    )
    assert one.wire == sum(share.wire for share in shares)


def test_shares_of_different_columns_and_gaps_stay_apart() -> None:
    shares = [Share(Source(rows([(tx, 0)])), None, at=0.0) for tx in (1, 2, 3)]
    other = Share(Source(rows([(4, 0)], columns=("id",))), None, at=0.0)
    assert merged([*shares, other]) is None
    known = rows([(4, 0)])
    known = known.add_column(3, XID_FIELD, pa.array([7], pa.uint32()))
    assert merged([*shares, Share(Source(known), None, at=0.0)]) is None
    shares[1].gap = True
    assert merged(shares) is None
