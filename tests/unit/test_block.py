"""Blocks: what was encoded is decoded, and no damage of any kind passes for a block."""

import zlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.block import (
    FORMAT_VERSION,
    HEADER_SIZE,
    MAGIC,
    BlockFlag,
    BlockHeader,
    BlockKind,
    check_payload,
    encode_block,
)
from storage.errors import CorruptBlock, UnknownFormat
from storage.limits import BLOCK_ALIGNMENT_BYTES, BLOCK_PAYLOAD_BYTES_MAX
from storage.offset import BEFORE_ALL, OP_INFINITE, OP_MAX, TX_MAX, LogOffset
from storage.parts import PART_ALIGNMENT, decode_batches, encode_batches, part_of

offsets = st.builds(LogOffset, st.integers(0, TX_MAX), st.integers(0, OP_MAX) | st.just(OP_INFINITE))
words = st.integers(0, 2**64 - 1)
headers = st.builds(
    BlockHeader,
    kind=st.sampled_from(BlockKind),
    flags=st.sampled_from([BlockFlag.NONE, BlockFlag.GAP, BlockFlag.OPEN, BlockFlag.GAP | BlockFlag.OPEN]),
    rows=st.integers(0, 2**32 - 1),
    payload_size=st.just(0),
    previous=offsets | st.just(BEFORE_ALL),
    first=offsets,
    last=offsets,
    aligned=offsets | st.just(BEFORE_ALL),
    wire_end=words,
    synced_before=words,
    log=st.integers(0, 2**32 - 1),
    written_at=words,
)
SMALL = BlockHeader(
    kind=BlockKind.ROWS,
    flags=BlockFlag.OPEN,
    rows=2,
    payload_size=0,
    previous=BEFORE_ALL,
    first=LogOffset(5, 0),
    last=LogOffset(5, 2),
    aligned=LogOffset(0, OP_INFINITE),
    wire_end=230,
    synced_before=1024,
    log=7,
    written_at=1_700_000_000_000_000,
)
PAYLOAD = b"a small payload"


def block(header: BlockHeader, *parts: bytes) -> bytes:
    return b"".join(encode_block(header, [part_of(part) for part in parts]))


def decode(data: bytes) -> tuple[BlockHeader, list[bytes]]:
    header = BlockHeader.decode(data)
    return header, [bytes(part) for part in check_payload(header, data[HEADER_SIZE:])]


def with_header(data: bytes, position: int, new: bytes) -> bytes:
    """The block as another program would have written it: changed, and with the right checksum for that."""
    changed = data[:position] + new + data[position + len(new) : HEADER_SIZE - 4]
    return changed + zlib.crc32(changed).to_bytes(4, "little") + data[HEADER_SIZE:]


@given(headers, st.lists(st.binary(max_size=300), max_size=3))
def test_round_trip(header: BlockHeader, parts: list[bytes]) -> None:
    data = block(header, *parts)
    found, content = decode(data)
    assert content == parts
    size = len(data) - HEADER_SIZE
    assert found == replace(header, payload_size=size, parts=len(parts), table_crc=found.table_crc)
    assert found.size == len(data)
    assert len(data) % BLOCK_ALIGNMENT_BYTES == 0
    assert len(data) <= HEADER_SIZE + sum(map(len, parts)) + (len(parts) + 1) * PART_ALIGNMENT + BLOCK_ALIGNMENT_BYTES
    assert decode(memoryview(data)) == (found, content)  # type: ignore[arg-type]  # readers have either


@pytest.mark.parametrize(
    ("sizes", "payload_size"),
    [([], 0), ([0], 128), ([1], 128), ([64], 128), ([65], 256), ([1, 1], 256), ([64, 64], 256), ([65, 64], 256)],
)
def test_padding(sizes: list[int], payload_size: int) -> None:
    assert len(block(SMALL, *[b"x" * size for size in sizes])) == HEADER_SIZE + payload_size


def test_the_header_is_never_astride_two_sectors() -> None:
    assert HEADER_SIZE == BLOCK_ALIGNMENT_BYTES
    assert 512 % BLOCK_ALIGNMENT_BYTES == 0


def test_the_bytes_are_those_of_version_1() -> None:
    # A changed layout needs another version: blocks on disk do not change with the program.
    assert block(SMALL, PAYLOAD)[: HEADER_SIZE - 8].hex(" ", 8) == (
        "935348504c4f470a 0100010202000000 8000000000000000 ffffffffffffffff 0000000000000000 0000000000000005 "
        "0000000000000000 0000000000000005 0000000000000002 0000000000000000 ffffffffffffffff e600000000000000 "
        "0004000000000000 0700000001000000 00401e18240a0600"
    )


@pytest.mark.parametrize("parts", [[], [PAYLOAD], [b"x" * 64], [PAYLOAD, b"", b"y" * 70]], ids=repr)
def test_every_flipped_bit_is_detected(parts: list[bytes]) -> None:
    data = block(SMALL, *parts)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptBlock, UnknownFormat)):
            decode(bytes(damaged))


def test_every_cut_is_detected() -> None:
    data = block(SMALL, PAYLOAD)
    for size in range(len(data)):
        with pytest.raises(CorruptBlock):
            decode(data[:size])
    with pytest.raises(CorruptBlock):
        decode(data + b"\0")


@given(headers, st.binary(min_size=1, max_size=600), st.data())
def test_sectors_that_were_not_written_are_detected(header: BlockHeader, payload: bytes, data: st.DataObject) -> None:
    whole = block(header, payload)
    start = data.draw(st.integers(0, len(whole) - 1))
    size = data.draw(st.integers(1, len(whole)))
    torn = whole[:start] + bytes(len(whole[start : start + size])) + whole[start + size :]
    if torn != whole:
        with pytest.raises(CorruptBlock):
            decode(torn)


@given(st.binary(max_size=3 * HEADER_SIZE) | st.binary(max_size=2 * HEADER_SIZE).map(lambda rest: MAGIC + rest))
def test_other_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        decode(data)


def test_zeros_are_no_block() -> None:
    with pytest.raises(CorruptBlock):
        decode(bytes(HEADER_SIZE))


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, 2**16 - 1])
def test_another_version_is_named(version: int) -> None:
    data = with_header(block(SMALL, PAYLOAD), 8, version.to_bytes(2, "little"))
    with pytest.raises(UnknownFormat, match=f"format version {version}, this program reads {FORMAT_VERSION}"):
        decode(data)


@pytest.mark.parametrize(("position", "value"), [(10, 0), (10, 6), (10, 255), (11, 4), (11, 7), (11, 128)])
def test_unknown_kinds_and_flags_are_refused(position: int, value: int) -> None:
    with pytest.raises(UnknownFormat, match="does not know"):
        decode(with_header(block(SMALL, PAYLOAD), position, bytes([value])))


def test_a_size_beyond_the_limit_is_damage() -> None:
    data = block(SMALL, PAYLOAD)
    for size in (BLOCK_PAYLOAD_BYTES_MAX + 1, 2**64 - 1):
        with pytest.raises(CorruptBlock, match="at most"):
            decode(with_header(data, 16, size.to_bytes(8, "little")))


def test_the_payload_is_not_copied() -> None:
    data = block(SMALL, PAYLOAD)
    payload = memoryview(data)[HEADER_SIZE:]
    (part,) = check_payload(BlockHeader.decode(data), payload)
    assert part.obj is data


def test_damage_says_where() -> None:
    data = bytearray(block(SMALL, PAYLOAD))
    data[HEADER_SIZE + PART_ALIGNMENT] ^= 1
    with pytest.raises(CorruptBlock) as found:
        decode(bytes(data))
    assert found.value.facts == {"part_at": PART_ALIGNMENT}


# The payload of rows.

BATCH = pa.RecordBatch.from_pydict({"text": ["one", None, ""], "number": [1, 2, 3]})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_batches_round_trip(slices: list[tuple[int, int]]) -> None:
    batches = [BATCH.slice(start, length) for start, length in slices]
    data = b"".join(encode_block(SMALL, [encode_batches(batches)]))
    (part,) = check_payload(BlockHeader.decode(data), data[HEADER_SIZE:])
    found = decode_batches(part)
    assert [batch.to_pylist() for batch in found] == [batch.to_pylist() for batch in batches]
    assert all(batch.schema == BATCH.schema for batch in found)


def test_batches_keep_their_payload_alive() -> None:
    batches = decode_batches(memoryview(bytearray(b"".join(encode_batches([BATCH]).buffers))))
    assert [row["text"] for row in batches[0].to_pylist()] == ["one", None, ""]


def test_a_payload_that_is_no_stream_is_damage() -> None:
    stream = b"".join(encode_batches([BATCH]).buffers)

    def decoded(data: bytes) -> list[Any] | None:
        try:
            return decode_batches(memoryview(data))
        except CorruptBlock:
            return None

    assert decoded(b"") is None
    assert decoded(b"no stream") is None
    cut = [decoded(stream[:size]) for size in range(len(stream))]
    assert cut.count(None) > len(cut) - 3  # but where a stream may end
    for bit in range(len(stream) * 8):
        damaged = bytearray(stream)
        damaged[bit // 8] ^= 1 << bit % 8
        decoded(bytes(damaged))  # right or damage: no other error comes out
