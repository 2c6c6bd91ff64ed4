"""The columnar decoder against a slow, plain one, on streams made up by Hypothesis: legal, damaged, and nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from cdc.source.errors import MessageTooLarge, NotText, ProtocolError, SourceError
from cdc.source.fragments import Event, Fragment, KeepAlive, Kind
from cdc.source.lsn import Lsn
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch
from storage import rows as stored
from tests.pgoutput_bytes import (
    UNCHANGED,
    Values,
    begin,
    commit,
    cuts,
    damaged,
    data_frame,
    delete,
    insert,
    keepalive_frame,
    relation,
    streams,
    truncate,
    update,
)
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
            stored.check_schema(table.rows.schema)
            assert (event.transactions.commit_lsn[table.transaction] == table.rows["tx"].to_numpy()).all()
        for index in range(event.ended_count):
            lsn = int(event.transactions.commit_lsn[index])
            assert all(offset <= event.aligned_offset(index) for offset in seen if offset[0] == lsn)


DESCRIBED = relation(5, "t", [("id", 23, True), ("body", 25, False)])


def feed(*messages: bytes) -> list[Event]:
    return decode([[data_frame(message) for message in messages]])


def rows_of(events: list[Event]) -> list[dict[str, object]]:
    tables = [table for event in events if isinstance(event, Fragment) for table in event.changes]
    return [row for table in tables for row in table.rows.to_pylist()]


def test_an_update_says_what_was_not_sent_and_what_was_before() -> None:
    events = feed(DESCRIBED, begin(9, 0, 1), update(5, ["2", UNCHANGED], ["1", None], b"K"))
    (row,) = rows_of(events)
    assert row == {
        "tx": 9,
        "op": 0,
        "kind": 2,
        "absent": b"\x02",
        "new": {"id": "2", "body": None},
        "old": {"id": "1", "body": None},
    }


def test_a_delete_of_a_key_is_a_row_with_all_but_the_key_absent() -> None:
    (row,) = rows_of(feed(DESCRIBED, begin(9, 0, 1), delete(5, ["1", None], b"K")))
    assert row == {"tx": 9, "op": 0, "kind": 3, "absent": b"\x02", "new": {"id": "1", "body": None}}


def test_a_truncate_is_a_row_without_values_in_each_relation() -> None:
    other = relation(6, "u", [])
    events = feed(DESCRIBED, other, begin(9, 0, 1), insert(5, ["1", "a"]), truncate([6, 5], 2), commit(9, 10, 0))
    offsets = [(row["op"], row["kind"], row["new"]) for row in rows_of(events)]
    assert offsets == [(0, 1, {"id": "1", "body": "a"}), (2, 4, None), (4, 4, None)]
    last = events[-1]
    assert isinstance(last, Fragment)
    assert last.transactions.changes.tolist() == [3]
    assert last.aligned_offset(0) == (9, 5)


def test_a_row_is_what_storage_says_that_it_is() -> None:
    assert {kind.name: kind.value for kind in Kind} == {kind.name: kind.value for kind in stored.Kind}
    events = feed(DESCRIBED, begin(9, 0, 1), update(5, ["2", UNCHANGED], ["1", None], b"K"), insert(5, ["3", "c"]))
    (table,) = [table for event in events if isinstance(event, Fragment) for table in event.changes]
    assert table.rows.schema == stored.row_schema(["id", "body"], old=True)
    assert stored.wire_sizes(table.rows).tolist() == [102, 102]
    assert stored.offset_at(table.rows, 1) == (9, 2)


def test_an_empty_transaction_counts() -> None:
    (fragment,) = feed(begin(9, 0, 1), commit(9, 10, 0), begin(20, 5, 2), commit(20, 30, 5))
    assert isinstance(fragment, Fragment)
    assert fragment.transactions.end_lsn.tolist() == [10, 30]
    assert fragment.aligned_offset(1) == (20, 0)
    assert fragment.transactions.commit_time.tolist() == [946_684_800_000_000, 946_684_800_000_005]


def test_small_transactions_share_a_fragment_and_a_huge_one_is_cut_by_bytes() -> None:
    small = [
        part
        for lsn in range(9, 900, 9)
        for part in (begin(lsn, 0, lsn), insert(5, ["1", "a"]), commit(lsn, lsn + 1, 0))
    ]
    fragments = [event for event in feed(DESCRIBED, *small) if isinstance(event, Fragment)]
    assert [(one.ended_count, one.changes_count) for one in fragments] == [(99, 99)]
    sizes = [900, 900, 900, 5000, 900, 900, 900, 900, 10]
    rows = [insert(5, ["1", "x" * size]) for size in sizes]
    frames = [data_frame(one) for one in (DESCRIBED, begin(9, 0, 1), *rows, commit(9, 10, 0))]
    found = [event for event in decode([frames], bytes_max=3000) if isinstance(event, Fragment)]
    cut = [[len(row["new"]["body"]) for table in one.changes for row in table.rows.to_pylist()] for one in found]
    assert [size for part in cut for size in part] == sizes
    assert [part for part in cut if sum(part) > 3000] == [[5000]], "above the bound only what cannot be divided"
    assert len(found) < len(sizes)
    assert [one.ends_open for one in found] == [True] * (len(found) - 1) + [False]


def test_sixteen_hundred_columns_are_not_too_many() -> None:
    names = [(f"c{number}", 23, False) for number in range(1600)]
    values: Values = [str(number) if number % 3 else None for number in range(1600)]
    (row,) = rows_of(feed(relation(5, "wide", names, "f"), begin(9, 0, 1), insert(5, values)))
    assert row["new"] == {name: value for (name, _, _), value in zip(names, values, strict=True)}


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([insert(5, ["1", "a"])], ProtocolError),  # outside a transaction
        ([begin(9, 0, 1), insert(6, ["1", "a"])], ProtocolError),  # never described
        ([begin(9, 0, 1), insert(5, ["1"])], ProtocolError),  # another number of columns
        ([begin(9, 0, 1), commit(8, 10, 0)], ProtocolError),  # of another transaction
        ([begin(9, 0, 1), begin(9, 0, 1)], ProtocolError),
        ([begin(9, 0, 1), update(5, ["1", "a"], ["1", UNCHANGED])], ProtocolError),  # never in an old row
        ([b"S" + bytes(5)], ProtocolError),  # streaming was not asked for
        ([b"A" + bytes(9)], ProtocolError),
        ([begin(9, 0, 1), insert(5, ["1", "a"]).replace(b"a", b"\xff")], NotText),
        ([begin(9, 0, 1), insert(5, ["1", "a" * 2000])], MessageTooLarge),
    ],
)
def test_what_cannot_be_right_is_an_error(messages: list[bytes], error: type[SourceError]) -> None:
    decoder = Decoder(Relations(), message_bytes_max=1000)
    decoder.feed(CopyBatch.join([data_frame(DESCRIBED)]))
    with pytest.raises(error):
        decoder.feed(CopyBatch.join([data_frame(message) for message in messages]))


def test_the_end_of_a_sub_transaction_that_was_never_sent_says_nothing() -> None:
    frames = [data_frame(message) for message in (DESCRIBED, b"A" + bytes(8), begin(9, 0, 1), commit(9, 10, 0))]
    _, fragment = decode([frames])
    assert isinstance(fragment, Fragment)
    assert fragment.ended_count == 1


def test_the_decoder_knows_what_it_received_and_what_is_open() -> None:
    decoder = Decoder(Relations())
    decoder.feed(CopyBatch.join([data_frame(begin(9, 0, 1), 70), keepalive_frame(50)]))
    assert decoder.received == 70
    assert decoder.in_transaction
    decoder.feed(CopyBatch.join([data_frame(commit(9, 10, 0), 60)]))
    assert decoder.received == 70
    assert not decoder.in_transaction


def test_many_keepalives_are_one_behind_the_data() -> None:
    frames = [keepalive_frame(5, wants_reply=True), data_frame(begin(9, 0, 1)), keepalive_frame(8)]
    fragment, keepalive = decode([frames])
    assert isinstance(fragment, Fragment)
    assert fragment.ends_open
    assert keepalive == KeepAlive(Lsn(8), wants_reply=True)
