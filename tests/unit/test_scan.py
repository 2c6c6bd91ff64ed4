"""The scan of a file of blocks: every verdict of the table in docs/storage-format.md.

What a power cut can leave is torn and may be cut; what it cannot leave is damage; and what a later header proves to
have been durable is never just missing.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import scan as scan_module
from storage.block import HEADER_SIZE, BlockFlag, BlockHeader, BlockKind
from storage.errors import CorruptBlock, UnknownFormat
from storage.file_write import FileWrite, Stage
from storage.memory_disk import MemoryDisk, in_runs
from storage.offset import SNAPSHOT_END, LogOffset
from storage.parts import encode_batches
from storage.scan import BlockRef, Scan, read_batches, read_part, read_parts, scan
from tests.unit.builders import offsets, rows

PATH = "file"
WRITES = [[10], [20, 30], [40, 50]]
"""Transactions, a block each; the blocks of a list are written and synced together."""

EVERYTHING = 10**6
"""As G: all that is here was confirmed."""


def header(tx: int, *, kind: BlockKind = BlockKind.ROWS) -> BlockHeader:
    return BlockHeader(
        kind=kind,
        flags=BlockFlag.NONE,
        rows=1,
        payload_size=0,
        previous=SNAPSHOT_END,
        first=LogOffset(tx, 0),
        last=LogOffset(tx, 0),
        aligned=LogOffset(tx, 1),
        wire_end=100 * tx,
        synced_before=0,
        log=1,
        written_at=0,
    )


def write(disk: MemoryDisk, writes: list[list[int]] = WRITES, *, sync_last: bool = True) -> list[BlockRef]:
    refs: list[BlockRef] = []
    for number, transactions in enumerate(writes):
        size = refs[-1].end if refs else 0
        blocks = [(header(tx), [encode_batches([rows([(tx, 0)])])]) for tx in transactions]
        file = FileWrite(PATH, not size, size, size, [], shared=False)
        file.put(disk, blocks, sync=sync_last or number < len(writes) - 1)
        assert file.stage is Stage.DONE
        refs += file.refs
    return refs


@pytest.fixture(scope="module")
def whole() -> tuple[bytes, list[BlockRef]]:
    """The bytes of a small file, and its blocks."""
    disk = MemoryDisk()
    refs = write(disk)
    return disk.contents()[PATH], refs


def disk_with(content: bytes | bytearray) -> MemoryDisk:
    disk = MemoryDisk()
    disk.create(PATH)
    disk.append(PATH, [content])
    return disk


def found_in(content: bytes | bytearray, *, confirmed_tx: int = 0) -> tuple[MemoryDisk, Scan]:
    disk = disk_with(content)
    return disk, scan(disk, PATH, confirmed_tx=confirmed_tx)


def sound(refs: list[BlockRef], end: int) -> Scan:
    """What a scan says of blocks with nothing wrong behind them."""
    proven = max((ref.header.synced_before for ref in refs), default=0)
    return Scan(refs, end, proven, None, None)


def transactions_of(disk: MemoryDisk, refs: list[BlockRef]) -> list[int]:
    """Read them, so that their payloads are checked."""
    return [offset.tx for ref in refs for offset in offsets(read_batches(disk, ref))]


# What is sound.


def test_a_whole_file(whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    disk, found = found_in(content)
    assert found == sound(refs, len(content))
    assert transactions_of(disk, found.refs) == [10, 20, 30, 40, 50]


def test_an_empty_file() -> None:
    assert found_in(b"")[1] == sound([], 0)


def test_from_the_middle(whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    disk = disk_with(content)
    for index, ref in enumerate(refs):
        assert scan(disk, PATH, start=ref.position) == sound(refs[index:], len(content))
    assert scan(disk, PATH, start=len(content)) == sound([], len(content))


def test_every_write_knows_what_was_synced_before_it(whole: tuple[bytes, list[BlockRef]]) -> None:
    _, refs = whole
    synced = [refs[0].position, refs[1].position, refs[1].position, refs[3].position, refs[3].position]
    assert [ref.header.synced_before for ref in refs] == synced


# What a power cut leaves.


def test_a_tail_torn_at_every_length(whole: tuple[bytes, list[BlockRef]]) -> None:
    """The end of the file, or fewer bytes than a header, or a good header with a short payload: cut."""
    content, refs = whole
    for size in range(len(content)):
        _, found = found_in(content[:size])
        kept = [ref for ref in refs if ref.end <= size]
        assert (found.refs, found.damage) == (kept, None)
        assert found.end == (kept[-1].end if kept else 0)
        assert (found.torn is None) == (found.end == size)


def test_zeros_where_a_header_should_be(whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    for count in (1, 127, 128, 129, 5000):
        _, found = found_in(content + bytes(count))
        assert (found.refs, found.end, found.damage) == (refs, len(content), None)
        assert found.torn is not None


@given(st.integers(0, 2**32))
def test_any_part_of_an_unsynced_write(seed: int) -> None:
    """Any sectors of it, in any order, and any size between: the synced blocks are there, and nothing is damage."""
    disk = MemoryDisk()
    disk.sync_folder("")
    refs = write(disk, sync_last=False)
    disk.sync_folder("")
    image = disk.crash_image(in_runs(Random(seed).randrange))
    found = scan(image, PATH)
    assert found.damage is None
    assert found.refs == refs[: len(found.refs)]
    assert len(found.refs) >= 3
    assert transactions_of(image, found.refs) == [10, 20, 30, 40, 50][: len(found.refs)]


@pytest.mark.parametrize("confirmed_tx", [41, EVERYTHING])
def test_a_torn_block_below_g_is_damage(confirmed_tx: int, whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    for size in range(refs[3].position + HEADER_SIZE, refs[3].end):
        _, found = found_in(content[:size], confirmed_tx=confirmed_tx)
        assert (found.refs, found.torn) == (refs[:3], None)
        assert isinstance(found.damage, CorruptBlock)


def test_a_torn_block_at_or_above_g_is_torn(whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    _, found = found_in(content[:-1], confirmed_tx=50)
    assert (found.refs, found.damage) == (refs[:4], None)


def test_a_torn_block_whose_rows_are_elsewhere_too_is_torn(whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    disk = disk_with(content[:-1])
    asked: list[BlockHeader] = []

    def is_elsewhere(found: BlockHeader) -> bool:
        asked.append(found)
        return True

    found = scan(disk, PATH, confirmed_tx=EVERYTHING, is_elsewhere=is_elsewhere)
    assert (found.refs, found.damage) == (refs[:4], None)
    assert asked == [refs[4].header]


def test_a_torn_commit_below_g_has_no_rows_to_miss(whole: tuple[bytes, list[BlockRef]]) -> None:
    """A commit alone in a segment is a header without a payload: whole, or not there."""
    content, refs = whole
    disk = disk_with(content)
    commit = replace(header(50), rows=0, first=LogOffset(50, 0), synced_before=0)
    FileWrite(PATH, False, len(content), len(content), [], shared=False).put(disk, [(commit, [])])
    assert disk.size(PATH) == len(content) + HEADER_SIZE
    for size in range(len(content), disk.size(PATH)):
        _, found = found_in(disk.contents()[PATH][:size], confirmed_tx=EVERYTHING)
        assert (found.refs, found.damage) == (refs, None)


# What a power cut cannot leave.


def test_one_flipped_bit_in_every_byte(whole: tuple[bytes, list[BlockRef]]) -> None:
    """Never silently fewer rows than later headers prove to have been durable, and never other rows."""
    content, refs = whole
    random = Random(1)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.randrange(8)
        disk, found = found_in(damaged)
        hit = next(index for index, ref in enumerate(refs) if position < ref.end)
        in_header = position < refs[hit].position + HEADER_SIZE
        proven = refs[hit].position < refs[3].position
        if in_header:
            assert (found.refs, found.torn) == (refs[:hit], None)
            assert isinstance(found.damage, CorruptBlock | UnknownFormat)
        elif proven:
            assert found == sound(refs, len(content))
            if position % 16 == 0:  # all others are as they were
                assert len(transactions_of(disk, refs[:hit] + refs[hit + 1 :])) == len(refs) - 1
            with pytest.raises(CorruptBlock) as told:
                read_batches(disk, refs[hit])
            assert told.value.facts["path"] == PATH
            assert told.value.facts["position"] == refs[hit].position
        else:  # nothing proves that the last write was ever synced
            assert (found.refs, found.damage) == (refs[:hit], None)
            assert found.torn is not None


def test_one_flipped_bit_where_all_was_confirmed(whole: tuple[bytes, list[BlockRef]]) -> None:
    """With G above everything, no block is given up, wherever the bit."""
    content, refs = whole
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 1
        disk, found = found_in(damaged, confirmed_tx=EVERYTHING)
        assert found.torn is None
        if found.damage is None:
            assert found.refs == refs
            with pytest.raises(CorruptBlock):
                transactions_of(disk, refs)


def test_zeros_where_a_synced_block_was(whole: tuple[bytes, list[BlockRef]]) -> None:
    """A header behind them proves it, whatever its distance."""
    content, refs = whole
    for index, ref in enumerate(refs[:3]):
        damaged = bytearray(content)
        damaged[ref.position : ref.position + HEADER_SIZE] = bytes(HEADER_SIZE)
        _, found = found_in(damaged)
        assert (found.refs, found.torn) == (refs[:index], None)
        assert isinstance(found.damage, CorruptBlock)


@pytest.mark.parametrize("probe_bytes", [128, 256, 640])
def test_the_proof_is_found_piece_by_piece(
    probe_bytes: int, whole: tuple[bytes, list[BlockRef]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_PROBE_BYTES", probe_bytes)
    test_zeros_where_a_synced_block_was(whole)


def test_zeros_in_an_unsynced_write_prove_nothing(whole: tuple[bytes, list[BlockRef]]) -> None:
    """The other blocks of the same write know only what was synced before all of it."""
    content, refs = whole
    damaged = bytearray(content)
    damaged[refs[3].position : refs[3].end] = bytes(refs[3].header.size)
    _, found = found_in(damaged)
    assert (found.refs, found.damage) == (refs[:3], None)
    assert found.torn is not None


@pytest.mark.parametrize("tail", [b"x" * 128, b"\0" * 127 + b"x", b"{}" + bytes(200)])
def test_other_bytes_behind_the_last_block(tail: bytes, whole: tuple[bytes, list[BlockRef]]) -> None:
    content, refs = whole
    _, found = found_in(content + tail)
    assert (found.refs, found.end, found.torn) == (refs, len(content), None)
    assert isinstance(found.damage, CorruptBlock)
    assert found.damage.facts["position"] == len(content)


def test_no_file_of_ours() -> None:
    _, found = found_in(b"#!/bin/sh\n" * 100)
    assert (found.refs, found.end) == ([], 0)
    assert isinstance(found.damage, CorruptBlock)


def test_a_missing_file_is_the_disks_error() -> None:
    with pytest.raises(FileNotFoundError):
        scan(MemoryDisk(), PATH)


# Reading.


def test_a_part_is_read_and_checked_without_the_others() -> None:
    disk = MemoryDisk()
    parts = [encode_batches([rows([(tx, 0)])]) for tx in (1, 2, 3)]
    file = FileWrite(PATH, True, 0, 0, [], shared=False)
    file.put(disk, [(header(1), parts)])
    ref = file.refs[0]
    everything = [bytes(part) for part in read_parts(disk, ref)]
    content = bytearray(disk.contents()[PATH])
    content[content.index(b"2.0")] ^= 1
    damaged = disk_with(content)
    for number in (0, 2):
        assert bytes(read_part(damaged, ref, number)) == everything[number]
    with pytest.raises(CorruptBlock) as told:
        read_part(damaged, ref, 1)
    assert told.value.facts["path"] == PATH
    with pytest.raises(CorruptBlock):
        read_parts(damaged, ref)
