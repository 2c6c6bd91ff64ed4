"""Catalog records: read as they were written, or refused; nothing is guessed."""

import math
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.catalog_records import (
    Born,
    Compacted,
    Ended,
    Life,
    Ready,
    Rebased,
    Shape,
    Snapshot,
    Stored,
    Succeeded,
    decode_record,
    encode_record,
)
from storage.errors import CorruptRecord, Misuse, UnknownFormat
from storage.offset import BEFORE_ALL, OP_MAX, TX_MAX, LogOffset

numbers = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
handles = st.from_regex(r"[A-Za-z0-9_.~-]{1,100}", fullmatch=True)
offsets = st.builds(LogOffset, st.integers(0, TX_MAX), st.integers(0, OP_MAX)) | st.just(BEFORE_ALL)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
definitions = st.dictionaries(texts, json_values, max_size=4)
snapshots = st.builds(Snapshot, numbers, numbers, st.lists(numbers, max_size=3).map(tuple), numbers)
records: st.SearchStrategy[Stored] = st.one_of(
    st.builds(Born, handles, numbers, st.none() | texts, definitions, snapshots),
    st.builds(Ready, handles, numbers),
    st.builds(Rebased, numbers, handles, handles, numbers, offsets, texts),
    st.builds(Ended, handles, offsets, texts),
    st.builds(Succeeded, handles, handles),
    st.builds(Compacted, numbers, numbers, st.lists(handles, max_size=3).map(tuple)),
    st.builds(
        Shape,
        handle=handles,
        log=numbers,
        name=st.none() | texts,
        definition=definitions,
        snapshot=snapshots,
        life=st.sampled_from(Life),
        listed_from=st.none() | numbers,
        floor=st.none() | offsets,
        ended_at=st.none() | offsets,
        successor=st.none() | handles,
    ),
)

SNAPSHOT = Snapshot(700, 705, (701, 703), 26_800_584)
BORN = Born("1-a", 1, "orders", {"table": "orders"}, SNAPSHOT)


@given(numbers, records)
def test_a_record_is_read_as_it_was_written(version: int, record: Stored) -> None:
    assert decode_record(encode_record(version, record)) == (version, record)


def test_shapes_of_one_table_share_their_columns() -> None:
    """Of ten thousand of them, those are most of the memory that a catalog takes."""
    columns = [["id", 20, "bigint"], ["body", 25, "text"]]
    records = [replace(BORN, definition={"columns": columns, "where": f"id = {number}"}) for number in range(2)]
    (_, first), (_, second) = (decode_record(encode_record(1, record)) for record in records)
    assert isinstance(first, Born)
    assert isinstance(second, Born)
    assert first.definition["columns"] is second.definition["columns"]
    assert first.definition != second.definition


def test_the_stored_form() -> None:
    """What is on people's disks: a change here needs a new type."""
    assert orjson.loads(encode_record(3, BORN)) == {
        "type": "born",
        "version": 3,
        "handle": "1-a",
        "log": 1,
        "name": "orders",
        "definition": {"table": "orders"},
        "snapshot": {"xmin": 700, "xmax": 705, "xip": [701, 703], "birth": 26_800_584},
    }
    assert orjson.loads(encode_record(4, Rebased(1, "1-a", "1-b", 2, LogOffset(9, 4), "fold"))) == {
        "type": "rebased",
        "version": 4,
        "log": 1,
        "old": "1-a",
        "new": "1-b",
        "base": 2,
        "floor": "9_4",
        "why": "fold",
    }


@pytest.mark.parametrize(
    "record",
    [
        Ready("", 1),
        Ready("a/b", 1),
        Ready("a" * 101, 1),
        Ready("a", -1),
        Ready("a", 2**64),
        Born("a", 1, None, {"x": object()}, SNAPSHOT),
        Born("a", 1, None, {"x": math.nan}, SNAPSHOT),
        Born("a", 1, None, {"x": (1, 2)}, SNAPSHOT),
        Born("a", 1, None, {"x": "\ud800"}, SNAPSHOT),
        Succeeded("a", None),  # type: ignore[arg-type]  # what a caller without types may do
    ],
)
def test_what_could_not_be_read_back_is_refused(record: Stored) -> None:
    with pytest.raises(Misuse):
        encode_record(1, record)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "forked", "version": 1},
        {"type": 5, "version": 1},
        {"type": "ready", "version": 1, "handle": "a", "base": 1, "colour": "red"},
    ],
)
def test_what_a_later_program_wrote_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(UnknownFormat):
        decode_record(orjson.dumps(content))


@pytest.mark.parametrize(
    "content",
    [
        [],
        7,
        {},
        {"type": "ready"},
        {"version": 1},
        {"type": "ready", "version": "1", "handle": "a", "base": 1},
        {"type": "ready", "version": 1, "handle": "a"},
        {"type": "ready", "version": 1, "handle": 5, "base": 1},
        {"type": "ready", "version": 1, "handle": "a", "base": True},
        {"type": "ended", "version": 1, "handle": "a", "at": "yesterday", "reason": ""},
        {"type": "born", "version": 1, "handle": "a", "log": 1, "name": None, "definition": [], "snapshot": {}},
        {"type": "born", "version": 1, "handle": "a", "log": 1, "name": None, "definition": {}, "snapshot": {}},
        {"type": "compacted", "version": 1, "kept_from": 1, "next_log": 1, "tombstones": "abc"},
    ],
)
def test_nonsense_is_damage(content: object) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(orjson.dumps(content))
    with pytest.raises(CorruptRecord):
        decode_record(b"{")
