"""Shares of a source: offsets, sizes and rows are those of the selected rows, and nothing is copied too early."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.limits import ROW_WIRE_OVERHEAD_BYTES
from storage.offset import BEFORE_ALL, LogOffset
from storage.parts import decode_batches
from storage.rows import Integers
from storage.share import Share, Source
from tests.unit.builders import offsets, rows

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
        assert share.size == source.size * share.count // BATCH.num_rows


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
