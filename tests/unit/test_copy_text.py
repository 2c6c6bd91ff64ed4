"""Rows of COPY as columns, against a plain reader of the same text, however they are framed and split."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.source.errors import MessageTooLarge, NotText, ProtocolError
from cdc.source.framing import HEAD_BYTES, find_messages
from cdc.source.walsender import CopyBatch
from shapes.copy_text import find_rows, parse_rows
from shapes.snapshot_copy import Chunks
from storage.rows import NEW, OP, TX, wire_sizes

ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}

values = st.none() | st.text(
    st.sampled_from("abdN\\\t\n\r\b\f\v0\x01é€ ") | st.characters(exclude_characters="\0", codec="utf-8"), max_size=12
)
tables = st.integers(1, 4).flatmap(lambda columns: st.lists(st.lists(values, min_size=columns, max_size=columns)))


def escaped(value: str | None) -> str:
    return "\\N" if value is None else "".join(ESCAPES.get(one, one) for one in value)


def message(tag: bytes, body: bytes) -> bytes:
    return tag + struct.pack(">I", len(body) + 4) + body


def sent(rows: list[list[str | None]]) -> list[bytes]:
    return ["\t".join(map(escaped, row)).encode() + b"\n" for row in rows]


def read(batch: CopyBatch, columns: int, head_bytes: int) -> list[list[str | None]]:
    kind = pa.struct([pa.field(f"c{i}", pa.string()) for i in range(columns)])
    struct_array = parse_rows(batch, kind, head_bytes)
    struct_array.validate(full=True)
    return [list(row.values()) for row in struct_array.to_pylist()]


@given(tables, st.booleans())
@example([["\\N"], [None], ["\\"], [""], ["N"]], True)
@example([["a\\\\tb", "\\\t\\"], [None, "\\N"]], False)
def test_rows_come_as_they_were(rows: list[list[str | None]], framed: bool) -> None:
    if not rows:
        return
    if framed:
        buffer = np.frombuffer(b"".join(message(b"d", row) for row in sent(rows)), np.uint8).copy()
        found = find_rows(buffer, len(buffer), 1 << 30)
        assert found.consumed == len(buffer)
        batch = CopyBatch(buffer, found.starts, found.ends)
    else:
        batch = CopyBatch.join(sent(rows))
    assert read(batch, len(rows[0]), HEAD_BYTES if framed else 0) == rows


@given(st.lists(st.binary(max_size=40) | st.just(b"d\0\0\0\x09abcd\n"), max_size=30), st.data())
def test_frames_are_found_as_by_walking(bodies: list[bytes], data: st.DataObject) -> None:
    """Whatever is in them: bytes that look like heads, messages of other kinds, the end anywhere."""
    tags = data.draw(st.lists(st.sampled_from([b"d", b"d", b"d", b"N"]), min_size=len(bodies), max_size=len(bodies)))
    text = b"".join(map(message, tags, bodies)) + message(b"c", b"")
    filled = data.draw(st.integers(0, len(text)))
    buffer = np.frombuffer(text, np.uint8)
    fast, slow = find_rows(buffer, filled, 1000), find_messages(buffer, 0, filled, 1000, filled + 1)
    assert fast.starts.tolist() == slow.starts.tolist()
    assert fast.ends.tolist() == slow.ends.tolist()
    assert (fast.others, fast.consumed, fast.wanted) == (slow.others, slow.consumed, slow.wanted)


@pytest.mark.parametrize("length", [10, 9, 0x0A64, 0x640A00 // 64, 0x0909])
def test_a_length_may_look_like_anything(length: int) -> None:
    rows: list[list[str | None]] = [["d" * (length - 5)], ["x"], ["y" * (length - 5)]]
    buffer = np.frombuffer(b"".join(message(b"d", row) for row in sent(rows)), np.uint8).copy()
    found = find_rows(buffer, len(buffer), 1 << 30)
    assert read(CopyBatch(buffer, found.starts, found.ends), 1, HEAD_BYTES) == rows


def test_what_is_no_row_of_the_table_is_refused() -> None:
    kind = pa.struct([pa.field("a", pa.string()), pa.field("b", pa.string())])
    with pytest.raises(ProtocolError, match="number of values"):
        parse_rows(CopyBatch.join([b"1\t2\t3\n"]), kind, 0)
    with pytest.raises(ProtocolError, match="does not end"):
        parse_rows(CopyBatch.join([b"1\t2\n3\t", b"4\n"]), kind, 0)
    with pytest.raises(NotText):
        parse_rows(CopyBatch.join([b"1\t\xff\n"]), kind, 0)
    large = np.frombuffer(message(b"d", b"x" * 100 + b"\n"), np.uint8)
    with pytest.raises(MessageTooLarge):
        find_rows(large, len(large), 100)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 1500), st.data())
def test_chunks_have_all_rows_in_order(sizes: list[int], chunk_bytes: int, data: st.DataObject) -> None:
    chunks = Chunks(("a",), chunk_bytes)
    found: list[pa.RecordBatch] = []
    rows = [str(i).ljust(size, "x") for i, size in enumerate(sizes)]
    left = list(rows)
    while left:
        count = data.draw(st.integers(1, len(left)))
        found += chunks.add(pa.StructArray.from_arrays([pa.array(left[:count])], names=["a"]))
        left = left[count:]
    found += chunks.rest()
    assert [row["a"] for chunk in found for row in chunk.column(NEW).to_pylist()] == rows
    assert [set(chunk.column(OP).to_pylist()) for chunk in found] == [{i} for i in range(len(found))]
    assert {tx for chunk in found for tx in chunk.column(TX).to_pylist()} == {0}
    assert chunks.rows == len(rows)
    assert chunks.wire_bytes == sum(int(wire_sizes(chunk).sum()) for chunk in found)
    longest = 100 + max(map(len, rows))
    found_bytes = [int(wire_sizes(chunk).sum()) for chunk in found]
    assert max(found_bytes) < chunk_bytes + longest
    assert min(found_bytes[:-1], default=chunk_bytes) > chunk_bytes / 2 - longest - len(found), "no crumbs"
