"""Fragments joined are what they were apart: each transaction, each row, and which belongs to which."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cdc.source.fragments import Fragment
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch
from shapes.joined_fragments import can_follow, joined
from tests.pgoutput_bytes import begin, commit, data_frame, insert, logical_message, relation, streams, truncate, update

OID = 7
ITEMS = relation(OID, "items", [("id", 23, True), ("body", 25, False)])


def fragments_of(frames: list[bytes], changes_max: int) -> list[Fragment]:
    decoder = Decoder(Relations(), fragment_changes_max=changes_max)
    return [event for event in decoder.feed(CopyBatch.join(frames)) if isinstance(event, Fragment)]


def runs(fragments: Iterable[Fragment], most: int) -> Iterator[list[Fragment]]:
    """Neighbours that can be joined, at most so many at once."""
    run: list[Fragment] = []
    for fragment in fragments:
        if run and (len(run) == most or not can_follow(run, fragment)):
            yield run
            run = []
        run.append(fragment)
    if run:
        yield run


def told(fragments: Iterable[Fragment]) -> tuple[dict[int, Any], dict[int, list[Any]]]:
    """What fragments say: of each transaction the last that is said of it, of each relation its rows in order."""
    transactions: dict[int, Any] = {}
    rows: dict[int, list[Any]] = {}
    for fragment in fragments:
        known = fragment.transactions
        columns = (known.xid, known.end_lsn, known.commit_time, known.changes)
        for index, tx in enumerate(known.commit_lsn.tolist()):
            found = transactions.setdefault(tx, {})
            found["facts"] = [values[index].item() for values in columns]
            if index in known.origins:
                found["origin"] = known.origins[index]
        for changes in fragment.changes:
            for row, ordinal, old in zip(
                changes.rows.to_pylist(), changes.transaction.tolist(), changes.old_tuple.tolist(), strict=True
            ):
                assert known.commit_lsn[ordinal] == row["tx"]
                rows.setdefault(changes.relation.oid, []).append((row, old))
    return transactions, rows


def decode(messages: list[bytes], changes_max: int = 10) -> list[Fragment]:
    return fragments_of([data_frame(message) for message in messages], changes_max)


@given(streams(), st.integers(1, 4), st.integers(2, 6))
def test_joined_fragments_say_what_they_said_apart(frames: list[bytes], changes_max: int, most: int) -> None:
    apart = fragments_of(frames, changes_max)
    together = [joined(run) for run in runs(apart, most)]
    assert told(together) == told(apart)


@given(streams(), st.integers(1, 4), st.integers(2, 6))
def test_a_joined_fragment_is_a_fragment(frames: list[bytes], changes_max: int, most: int) -> None:
    for run in runs(fragments_of(frames, changes_max), most):
        one = joined(run)
        assert (one.begins_open, one.ends_open) == (run[0].begins_open, run[-1].ends_open)
        lsns = one.transactions.commit_lsn.tolist()
        assert lsns == sorted(set(lsns))
        ended = one.transactions.end_lsn != 0
        assert ended[: one.ended_count].all()
        assert not ended[one.ended_count :].any()
        oids = [changes.relation.oid for changes in one.changes]
        assert len(oids) == len(set(oids))
        for changes in one.changes:
            offsets = [(row["tx"], row["op"]) for row in changes.rows.to_pylist()]
            assert offsets == sorted(set(offsets))


def test_a_long_transaction_is_one_again() -> None:
    rows = [insert(OID, [str(number), "x"]) for number in range(9)]
    apart = decode([ITEMS, begin(100, 5, 3), *rows, commit(100, 148, 5)], changes_max=3)
    assert len(apart) > 3
    one = joined(apart)
    (whole,) = decode([ITEMS, begin(100, 5, 3), *rows, commit(100, 148, 5)], changes_max=100)
    assert told([one]) == told([whole])
    assert one.aligned_offset(0) == whole.aligned_offset(0) == (100, 17)


def test_what_stays_apart() -> None:
    first = [ITEMS, begin(100, 5, 3), insert(OID, ["1", "x"]), commit(100, 148, 5)]
    with_old = [begin(200, 5, 4), update(OID, ["1", "y"], ["1", "x"]), commit(200, 248, 5)]
    emptied = [begin(200, 5, 4), truncate([OID]), commit(200, 248, 5)]
    noted = [begin(200, 5, 4), logical_message("a", b"b", transactional=True), commit(200, 248, 5)]
    plain = [begin(200, 5, 4), insert(OID, ["2", "x"]), commit(200, 248, 5)]
    (before,) = decode(first)
    (after,) = decode([ITEMS, *plain])
    assert can_follow([before], after)
    assert not can_follow([before], decode([ITEMS, *with_old])[0])
    assert not any(can_follow([before], one) for one in decode([ITEMS, *emptied]) if one.truncates)
    assert not can_follow([before], decode([ITEMS, *noted])[0])
    assert not can_follow([before], replace(after, begins_open=True))
    altered = relation(OID, "items", [("id", 23, True), ("text", 25, False)])
    assert not can_follow([before], decode([altered, *plain])[0])


def test_what_a_table_was_like_is_known_from_whichever_fragment_had_it_last() -> None:
    """Rows of one table with old ones and without are not of one form, and another table's may lie between them."""
    (before,) = decode([ITEMS, begin(100, 5, 3), insert(OID, ["1", "x"]), commit(100, 148, 5)])
    others = relation(OID + 1, "others", [("id", 23, True)])
    (between,) = decode([others, begin(200, 5, 4), insert(OID + 1, ["1"]), commit(200, 248, 5)])
    (after,) = decode([ITEMS, begin(300, 5, 5), update(OID, ["1", "y"], ["1", "x"]), commit(300, 348, 5)])
    assert can_follow([before], between)
    assert not can_follow([before, between], after)
