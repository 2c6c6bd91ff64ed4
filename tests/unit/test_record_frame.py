"""Frames: what was written is read; what is cut or damaged is a prefix or an error, and never another record."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptRecord, UnknownFormat
from storage.record_frame import MAGIC, encode_mark, encode_records, scan

payloads = st.lists(st.binary(max_size=40), max_size=4)


def appended(*appends: list[bytes]) -> tuple[bytes, list[int]]:
    """A file as the log writes it, each append with its mark; and where each append's records end."""
    data = b""
    ends: list[int] = []
    for records in appends:
        data += encode_records(records, synced_before=ends[-1] if ends else 0)
        ends.append(len(data))
        data += encode_mark(len(data))
    return data, ends


@given(st.lists(payloads, max_size=4))
def test_what_was_written_is_read(appends: list[list[bytes]]) -> None:
    data, ends = appended(*appends)
    found = scan(data)
    assert found.records == found.proven_records() == [record for records in appends for record in records]
    assert found.end == len(data)
    assert found.proven == (ends[-1] if ends else 0)
    assert found.is_marked is bool(appends)


@given(st.lists(payloads, min_size=1, max_size=4), st.data())
def test_a_reader_can_go_on_where_it_was_proven(appends: list[list[bytes]], data: st.DataObject) -> None:
    whole, _ = appended(*appends)
    first = scan(whole[: data.draw(st.integers(0, len(whole)))])
    second = scan(whole[first.proven :], first.proven)
    assert first.proven_records() + second.proven_records() == scan(whole).records


@given(payloads, payloads, st.data())
def test_every_truncation_leaves_a_prefix(first: list[bytes], second: list[bytes], data: st.DataObject) -> None:
    whole, ends = appended(first, second)
    size = data.draw(st.integers(0, len(whole)))
    found = scan(whole[:size])
    records = first + second
    assert found.records == records[: len(found.records)]
    assert found.end <= size
    if size >= ends[0]:
        assert found.records[: len(first)] == first


@given(payloads.filter(bool), payloads.filter(bool), st.data())
def test_damage_is_an_error_or_a_torn_tail(first: list[bytes], second: list[bytes], data: st.DataObject) -> None:
    whole, ends = appended(first, second)
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start + 1, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(min_size=stop - start, max_size=stop - start)) + whole[stop:]
    if damaged == whole:
        return
    try:
        found = scan(damaged)
    except CorruptRecord:
        assert start < ends[1]  # nothing proves the last mark
        return
    assert found.records == (first + second)[: len(found.records)]
    assert found.end <= start or found.end >= stop
    # A whole mark stands behind all that it proves, so what was overlooked must have taken the last mark with it.
    assert len(found.records) == len(first + second) or stop > ends[1]


def test_a_record_that_was_synced_and_is_damaged_is_an_error() -> None:
    whole, ends = appended([b"first"], [b"second"])
    with pytest.raises(CorruptRecord, match="whole once"):
        scan(whole[:10] + b"?" + whole[11:])
    last_mark_gone = whole[: ends[1]]
    assert scan(last_mark_gone[:-1] + b"?").records == [b"first"]  # nobody can know that it was synced


def test_a_hole_in_an_append_that_was_under_way_is_a_torn_tail() -> None:
    """A power cut may take one sector and leave the next; nothing was acknowledged."""
    synced, _ = appended([b"first"])
    under_way = encode_records([b"lost", b"left"], len(encode_records([b"first"], 0)))
    found = scan(synced + bytes(len(under_way) // 2) + under_way[len(under_way) // 2 :])
    assert found.records == [b"first"]
    assert found.end == len(synced)


@pytest.mark.parametrize(("version", "kind"), [(2, 1), (1, 3)])
def test_another_versions_frame_is_refused(version: int, kind: int) -> None:
    head = struct.pack("<8sHBxIQI", MAGIC, version, kind, 0, 0, 0)
    with pytest.raises(UnknownFormat):
        scan(head + struct.pack("<I", zlib.crc32(head)))
