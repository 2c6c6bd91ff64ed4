"""Journal blocks: shares of many logs, sources and schemas come back as they were, described by one directory."""

from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.block import BlockFlag
from storage.errors import CorruptBlock
from storage.journal_block import (
    Directory,
    EncodedJournal,
    JournalPart,
    decode_directory,
    encode_journal,
    part_of_share,
    rows_of,
)
from storage.offset import SNAPSHOT_END, LogOffset
from storage.parts import Part, encode_batches
from storage.rows import wire_sizes
from storage.share import Share, Source
from tests.unit.builders import COLUMNS, rows, transaction

OLD = LogOffset(1, 1)
NEW = LogOffset(99, 1)


def bytes_of(part: Part) -> memoryview:
    return memoryview(b"".join(bytes(buffer) for buffer in part.buffers))


def part_of(log: int, *shares: Share, wire_start: int = 0) -> JournalPart:
    previous = SNAPSHOT_END
    for share in shares:
        share.previous, previous = previous, share.last
    return JournalPart(log, shares, SNAPSHOT_END, NEW, OLD, wire_start)


def values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def plain(directory: Directory) -> list[list[object]]:
    """Each share's row as an entry has it, from the columns as they are."""
    rows = [[int(values[row]) for values in directory.columns.values()] for row in range(len(directory))]
    return [[*row[:2], *zip(row[2:10:2], row[3:10:2], strict=True), *row[10:]] for row in rows]


def check(encoded: EncodedJournal, parts: list[JournalPart]) -> None:
    """The directory and the rows, decoded, are the shares."""
    decoded = [bytes_of(part) for part in encoded.parts]
    directory = decode_directory(decoded[0])
    nothing: list[Share | None] = [None]
    wanted = [(part, share) for part in parts for share in part.shares or nothing]
    assert len(directory) == len(encoded.directory) == len(wanted)
    packed = directory.packed()
    assert directory.logs() == packed.logs() == [part.log for part, _ in wanted]
    numbers = plain(directory)
    wire_end = {part.log: part.wire_start for part in parts}
    for some in (np.arange(len(wanted)), np.arange(len(wanted))[::-3]):  # many rows as arrays, few one by one
        assert packed.table(some).tolist() == [packed.numbers(row) for row in some.tolist()]
    for row, (part, share) in enumerate(wanted):
        entry = packed.entry(row)
        assert list(entry) == numbers[row]
        assert entry == encoded.directory.packed().entry(row)
        assert packed.has_rows(row) == (share is not None)
        if share is None:
            assert (entry.rows, entry.aligned, entry.wire_end) == (0, part.aligned, part.wire_start)
            assert entry.previous == entry.first == entry.last == part.previous
            continue
        found = rows_of(decoded[part_of_share(entry)], entry)
        assert values(found) == values(share.batch())
        assert found.schema == share.batch().schema
        assert (entry.previous, entry.first, entry.last) == (share.previous, share.first, share.last)
        assert entry.rows == share.count
        assert entry.aligned == (part.aligned if share is part.shares[-1] else part.durable)
        assert entry.flags == (BlockFlag.GAP if share.gap else BlockFlag.NONE)
        wire_end[part.log] += int(wire_sizes(share.batch()).sum())
        assert entry.wire_end == wire_end[part.log]


SCHEMAS = [COLUMNS, (*COLUMNS, "more"), ("other",)]


@st.composite
def journals(draw: st.DrawFn) -> list[JournalPart]:
    """Some sources of several schemas, and logs that each take some rows of some of them."""
    sources = [
        Source(
            rows(transaction(10 + number, draw(st.integers(1, 6))), columns=draw(st.sampled_from(SCHEMAS)), text="é")
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    parts = []
    for log in range(1, 1 + draw(st.integers(1, 5))):
        shares = []
        for source in sources:
            count = source.batch.num_rows
            selected = draw(st.none() | st.sets(st.integers(0, count - 1), max_size=count).map(sorted))
            if selected is None or selected:
                shares.append(Share(source, None if selected is None else np.array(selected), at=0.0))
                shares[-1].gap = draw(st.booleans())
        parts.append(part_of(log, *shares, wire_start=draw(st.integers(0, 2**62))))
    return parts


@given(journals())
def test_round_trip(parts: list[JournalPart]) -> None:
    encoded = encode_journal(parts)
    check(encoded, parts)
    shares = [share for part in parts for share in part.shares]
    assert encoded.rows == sum(share.count for share in shares)
    if shares:
        assert encoded.first == min(share.first for share in shares)
        assert encoded.last == max(share.last for share in shares)


@given(journals())
def test_one_table_for_each_schema(parts: list[JournalPart]) -> None:
    """Ten thousand logs of one table are one Arrow batch."""
    schemas = {share.source.batch.schema for part in parts for share in part.shares}
    encoded = encode_journal(parts)
    assert len(encoded.tables) == len(encoded.parts) - 1 == len(schemas)


@given(journals(), st.integers(1, 2_000))
def test_long_tables_are_cut_between_shares(parts: list[JournalPart], part_bytes: int) -> None:
    """Whatever the order of the shares is, each has its rows in one part, and parts are as long as they should be."""
    with mock.patch("storage.journal_block.JOURNAL_PART_BYTES", part_bytes):
        encoded = encode_journal(parts)
    check(encoded, parts)
    check_places(encoded)
    whole = encode_journal(parts)
    count = sum(1 + -(-table.nbytes // part_bytes) for table in whole.tables)
    assert len(whole.tables) <= len(encoded.tables) <= count
    if part_bytes == 1:
        assert len(encoded.tables) == sum(len(part.shares) for part in parts)


@given(journals())
def test_shares_do_not_overlap_in_their_table(parts: list[JournalPart]) -> None:
    check_places(encode_journal(parts))


def check_places(encoded: EncodedJournal) -> None:
    """The shares of each table fill it, one behind the other."""
    entries = [encoded.directory.packed().entry(row) for row in range(len(encoded.directory))]
    for table in range(len(encoded.tables)):
        places = sorted((entry.row, entry.row + entry.rows) for entry in entries if entry.table == table and entry.rows)
        assert all(stop == start for (_, stop), (start, _) in pairwise(places))
        assert places[0][0] == 0
        assert places[-1][1] == encoded.tables[table].num_rows


def test_what_is_long_already_is_not_copied_together() -> None:
    """Two long sources would be in memory once more; two short ones are one part, whatever lies between them."""
    counts = (40, 2, 40, 2)
    sources = [Source(rows(transaction(10 + number, count))) for number, count in enumerate(counts)]
    parts = [
        part_of(log, *(Share(source, np.arange(log, source.batch.num_rows, 2), at=0.0) for source in sources))
        for log in (0, 1)
    ]
    with mock.patch("storage.journal_block.JOURNAL_PART_BYTES", sources[0].batch.nbytes // 2):
        encoded = encode_journal(parts)
    check(encoded, parts)
    check_places(encoded)
    transactions = [set(table.column("tx").to_pylist()) for table in encoded.tables]
    assert {11, 13} in transactions
    assert all(found in ({10}, {12}, {11, 13}) for found in transactions)


def test_a_thousand_logs_of_one_source() -> None:
    source = Source(rows(transaction(10, 1000)))
    parts = [part_of(log, Share(source, np.array([log]), at=0.0)) for log in range(1000)]
    encoded = encode_journal(parts)
    assert len(encoded.tables) == 1
    check(encoded, parts)


def test_only_the_last_share_of_a_log_claims_what_is_new() -> None:
    """A tear between two shares of one log must not leave the claim of both with the first."""
    part = part_of(1, *(Share(Source(rows([(tx, 0)])), None, at=0.0) for tx in (10, 11, 12)))
    directory = encode_journal([part]).directory
    assert [directory.packed().entry(row).aligned for row in range(3)] == [OLD, OLD, part.aligned]


def test_commits_alone_need_no_table() -> None:
    parts = [JournalPart(log, [], LogOffset(5, 0), LogOffset(5, 3), OLD, 77) for log in (1, 2)]
    encoded = encode_journal(parts)
    assert encoded.tables == []
    assert (encoded.rows, encoded.first, encoded.last) == (0, LogOffset(5, 0), LogOffset(5, 0))
    check(encoded, parts)


def test_the_greatest_numbers_fit() -> None:
    last = LogOffset(2**63 - 1, 2**63 - 1)
    share = Share(Source(rows([last])), None, at=0.0)
    share.previous = SNAPSHOT_END
    parts = [JournalPart(2**63, [share], SNAPSHOT_END, last, SNAPSHOT_END, 2**62)]
    check(encode_journal(parts), parts)


def test_another_table_is_no_directory() -> None:
    with pytest.raises(CorruptBlock, match="does not start with a directory"):
        decode_directory(bytes_of(encode_batches([rows([(1, 0)])])))
    with pytest.raises(CorruptBlock):
        decode_directory(memoryview(b"no stream"))
