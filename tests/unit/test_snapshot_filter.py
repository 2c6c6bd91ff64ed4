"""Which transactions a snapshot has, against whole ids and sets of them, also where 32 bits turn over."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shapes.snapshot_filter import halves, is_seen, is_to_append, parse_snapshot
from storage.catalog_records import Snapshot

EPOCH = 1 << 32


@st.composite
def moments(draw: st.DrawFn) -> tuple[Snapshot, list[int]]:
    """A snapshot, and whole ids from around it."""
    xmax = draw(st.sampled_from([3, 1000, EPOCH - 3, EPOCH, EPOCH + 5, 7 * EPOCH + 2**31, 9 * EPOCH - 1])) + draw(
        st.integers(0, 10)
    )
    low = max(xmax - 20, 3)
    xip = sorted(draw(st.sets(st.integers(low, xmax - 1)))) if low < xmax else []
    birth = draw(st.integers(0, 100))
    near = st.integers(max(low - 5, 3), xmax + 20)
    far = st.integers(max(3, xmax - 2**31 + 1), xmax + 2**31 - 1)
    return Snapshot(xip[0] if xip else xmax, xmax, tuple(xip), birth), draw(st.lists(near | far, max_size=30))


@given(moments(), st.data())
def test_a_row_is_in_the_base_or_in_the_log(moment: tuple[Snapshot, list[int]], data: st.DataObject) -> None:
    snapshot, whole = moment
    lsns = data.draw(st.lists(st.integers(0, 120), min_size=len(whole), max_size=len(whole)))
    seen = [xid < snapshot.xmax and xid not in snapshot.xip for xid in whole]
    for xids in (halves(np.array(whole, np.uint64)), np.array(whole, np.uint64)):
        assert is_seen(snapshot, xids).tolist() == seen
        appended = is_to_append(snapshot, np.array(lsns, np.uint64), xids)
        expected = [lsn >= snapshot.birth or not has for lsn, has in zip(lsns, seen, strict=True)]
        assert appended.tolist() == expected


@given(moments())
def test_what_postgres_says_is_read_as_it_is(moment: tuple[Snapshot, list[int]]) -> None:
    snapshot = moment[0]
    text = f"{snapshot.xmin}:{snapshot.xmax}:{','.join(map(str, snapshot.xip))}"
    assert parse_snapshot(text, snapshot.birth) == snapshot


def test_nothing_is_asked_of_nothing() -> None:
    snapshot = Snapshot(10, 10, (), 5)
    assert is_seen(snapshot, np.array([], np.uint32)).tolist() == []
    assert is_to_append(snapshot, np.array([], np.uint64), np.array([], np.uint64)).tolist() == []
