"""The columnar decoder against a slow, plain one, on streams made up by Hypothesis: legal, damaged, and nonsense."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from cdc.source.errors import SourceError
from cdc.source.fragments import Event, Fragment, KeepAlive
from cdc.source.lsn import Lsn
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch
from tests.pgoutput_bytes import begin, cuts, damaged, data_frame, keepalive_frame, streams
from tests.plain_pgoutput import Item, items_of, plain_items

SMALL = st.sampled_from([1, 2, 3, 1000])


def decode(batches: list[list[bytes]], changes_max: int = 1000, bytes_max: int = 1_000_000) -> list[Event]:
    decoder = Decoder(Relations(), fragment_changes_max=changes_max, fragment_bytes_max=bytes_max)
    return [event for batch in batches for event in decoder.feed(CopyBatch.join(batch))]


def outcome(frames: list[bytes]) -> list[Item] | None:
    try:
        return plain_items(frames)
    except SourceError:
        return None


@given(streams(), st.data(), SMALL, st.sampled_from([1, 100, 100_000]))
def test_a_stream_has_the_same_events_however_it_is_cut(
    frames: list[bytes], data: DataObject, changes_max: int, bytes_max: int
) -> None:
    events = decode(data.draw(cuts(frames)), changes_max, bytes_max)
    assert items_of(events) == plain_items(frames)
    check_fragments(events)
    assert all(event.changes_count <= changes_max or event.truncates for event in events if isinstance(event, Fragment))


@given(streams(), st.data())
def test_damage_is_an_error_or_another_stream(frames: list[bytes], data: DataObject) -> None:
    broken = data.draw(damaged(frames))
    batches = data.draw(cuts(broken))
    expected = outcome(broken)
    try:
        found = items_of(decode(batches))
    except SourceError:
        found = None
    assert found == expected


def check_nonsense(frames: list[bytes]) -> None:
    try:
        decode([frames])
    except SourceError:
        assert outcome(frames) is None


@given(st.lists(st.binary(max_size=40)))
def test_nonsense_is_an_error_and_nothing_else(frames: list[bytes]) -> None:
    check_nonsense(frames)


@given(st.lists(st.binary(max_size=40)))
def test_nonsense_in_data_frames_is_an_error_and_nothing_else(messages: list[bytes]) -> None:
    check_nonsense([data_frame(message) for message in messages])


def check_fragments(events: list[Event]) -> None:
    """The invariants of fragments.py."""
    is_open = False
    seen: set[tuple[int, int]] = set()
    for event in events:
        if not isinstance(event, Fragment):
            continue
        count = len(event.transactions)
        assert event.begins_open == is_open
        assert event.ends_open <= bool(count)
        is_open = event.ends_open
        assert (event.transactions.end_lsn > 0).tolist() == [True] * event.ended_count + [False] * event.ends_open
        for table in event.changes:
            offsets = list(zip(table.rows["tx"].to_pylist(), table.rows["op"].to_pylist(), strict=True))
            assert offsets == sorted(offsets)
            assert not seen & set(offsets)
            seen |= set(offsets)
            table.rows.validate(full=True)
            assert (event.transactions.commit_lsn[table.transaction] == table.rows["tx"].to_numpy()).all()
        for index in range(event.ended_count):
            lsn = int(event.transactions.commit_lsn[index])
            assert all(offset <= event.aligned_offset(index) for offset in seen if offset[0] == lsn)


def test_many_keepalives_are_one_behind_the_data() -> None:
    frames = [keepalive_frame(5, wants_reply=True), data_frame(begin(9, 0, 1)), keepalive_frame(8)]
    fragment, keepalive = decode([frames])
    assert isinstance(fragment, Fragment)
    assert fragment.ends_open
    assert keepalive == KeepAlive(Lsn(8), wants_reply=True)
