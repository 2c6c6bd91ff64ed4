"""The segments of a log: which files count, in which order, what they end with, and where the next block goes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.bases import Base
from storage.block import BlockFlag, BlockHeader, BlockKind
from storage.errors import CorruptBlock
from storage.file_write import FileWrite
from storage.layout import SegmentName, segment_path
from storage.memory_disk import MemoryDisk
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.parts import encode_batches
from storage.repair import Repair
from storage.scan import BlockRef
from storage.segments import LogFiles, Segment, list_segments, living_names
from tests.unit.builders import rows
from tests.unit.hooked_disk import hooked

HEADER = BlockHeader(
    kind=BlockKind.ROWS,
    flags=BlockFlag.NONE,
    rows=1,
    payload_size=0,
    previous=SNAPSHOT_END,
    first=SNAPSHOT_END,
    last=SNAPSHOT_END,
    aligned=SNAPSHOT_END,
    wire_end=0,
    synced_before=0,
    log=1,
    written_at=0,
)


def ref_of(tx: int, *, position: int = 0, kind: BlockKind = BlockKind.ROWS) -> BlockRef:
    at = LogOffset(tx, 0)
    header = replace(HEADER, kind=kind, first=at, last=at, aligned=LogOffset(tx, 1), wire_end=100 * tx)
    return BlockRef("a path", position, header)


def live(tx: int) -> SegmentName:
    return SegmentName(LogOffset(tx, 0), None, 0)


def compacted(first: int, last: int, generation: int) -> SegmentName:
    return SegmentName(LogOffset(first, 0), LogOffset(last, 0), generation)


def segment(name: SegmentName, *transactions: int, **facts: bool) -> Segment:
    made = Segment(name, segment_path(1, name), loaded=True, **facts)  # type: ignore[arg-type]  # flags only
    made.add([ref_of(tx, position=128 * index) for index, tx in enumerate(transactions)])
    return made


# Which files count.


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[SegmentName], list[SegmentName]]:
    """Live segments, compactions of neighbours of what was alive, and some of the replaced files left behind."""
    count = draw(st.integers(0, 6))
    alive = [live(10 * number) for number in range(1, count + 1)]
    last_of = {name: name.first.tx + 9 for name in alive}
    left_behind = []
    for _ in range(draw(st.integers(0, 4))):
        if len(alive) < 2:
            break
        start = draw(st.integers(0, len(alive) - 2))
        stop = draw(st.integers(start + 1, len(alive) - 1))
        taken = alive[start:stop]
        name = compacted(taken[0].first.tx, last_of[taken[-1]], 1 + max(one.generation for one in taken))
        last_of[name] = last_of[taken[-1]]
        alive[start:stop] = [name]
        # Removed one after another, the oldest first: a crash leaves the later ones.
        left_behind += taken[draw(st.integers(0, len(taken))) :]
    return alive, left_behind


@given(histories(), st.randoms())
def test_of_two_generations_the_higher_counts(
    history: tuple[list[SegmentName], list[SegmentName]], random: Random
) -> None:
    alive, left_behind = history
    names = alive + left_behind
    random.shuffle(names)
    living, dead = living_names(names)
    assert living == alive
    assert sorted(dead, key=str) == sorted(left_behind, key=str)


@given(histories())
def test_living_segments_do_not_overlap(history: tuple[list[SegmentName], list[SegmentName]]) -> None:
    living, _ = living_names([*history[0], *history[1]])
    for one, following in pairwise(living):
        assert one.first < following.first
        assert one.last is None or one.last < following.first


def test_the_live_segment_behind_a_compaction_counts() -> None:
    names = [live(10), live(20), live(30), compacted(10, 29, 1)]
    assert living_names(names) == ([compacted(10, 29, 1), live(30)], [live(10), live(20)])


def test_segments_are_listed_from_the_folder() -> None:
    disk = MemoryDisk()
    disk.make_folder("logs/1")
    for name in (live(20), live(10), compacted(10, 10, 1)):
        disk.create(segment_path(1, name))
    for other in ("log.json", "0.base", "a.lease", f"{live(30)}.tmp", "20.segment"):
        disk.create(f"logs/1/{other}")
    found, dead = list_segments(disk, 1)
    assert [one.name for one in found] == [compacted(10, 10, 1), live(20)]
    assert dead == [segment_path(1, live(10))]


# One segment.


def test_blocks_are_added_in_order_and_a_ledger_apart() -> None:
    one = Segment(compacted(10, 20, 1), "a path")
    ledger = ref_of(9, kind=BlockKind.LEDGER)
    one.add([ledger, ref_of(10, position=128), ref_of(20, position=256)])
    assert one.ledger is ledger
    assert [ref.header.last.tx for ref in one.refs] == [10, 20]
    assert (one.first, one.last, one.size) == (LogOffset(10, 0), LogOffset(20, 0), 384)


@pytest.mark.parametrize(
    ("made", "takes_more"),
    [
        pytest.param(segment(live(10), 10), True, id="live"),
        pytest.param(segment(live(10), 10, 20, 30), False, id="full"),
        pytest.param(segment(live(10), 10, closed=True), False, id="closed"),
        pytest.param(segment(compacted(10, 10, 1), 10), False, id="compacted"),
    ],
)
def test_what_a_segment_takes(made: Segment, takes_more: bool) -> None:
    assert made.takes_more(bytes_max=300) is takes_more


def write_blocks(disk: MemoryDisk, path: str, *transactions: int) -> None:
    disk.make_folder("logs/1")
    blocks = [(ref_of(tx).header, [encode_batches([rows([(tx, 0)])])]) for tx in transactions]
    FileWrite(path, True, 0, 0, [], shared=False).put(disk, blocks)


def test_a_segment_is_loaded_once_and_whole() -> None:
    disk = MemoryDisk()
    one = Segment(live(10), segment_path(1, live(10)))
    write_blocks(disk, one.path, 10, 20)
    one.load(disk)
    found = one.refs
    disk.remove(one.path)
    one.load(disk)
    assert one.refs is found
    assert [ref.header.last.tx for ref in found] == [10, 20]
    assert one.damage is None


class Watched(Segment):
    """A segment that readers look at, so that it must not be seen half filled."""

    def add(self, refs: Sequence[BlockRef]) -> None:
        assert not self.loaded, "its blocks were there, and somebody reads them"
        super().add(refs)


def test_who_loads_a_segment_takes_nothing_from_another_who_did() -> None:
    """Two threads look for the blocks, and the second is done before the first."""
    disk = MemoryDisk()
    one = Watched(live(10), segment_path(1, live(10)))
    write_blocks(disk, one.path, 10, 20)
    one.load(hooked(disk, lambda name, path: one.load(disk)))
    assert [ref.header.last.tx for ref in one.refs] == [10, 20]


@pytest.mark.parametrize("lost", [1, 128, 1000])
def test_a_closed_segment_with_a_torn_tail_is_damaged(lost: int) -> None:
    disk = MemoryDisk()
    one = Segment(live(10), segment_path(1, live(10)))
    write_blocks(disk, one.path, 10, 20)
    disk.truncate(one.path, disk.size(one.path) - lost)
    one.load(disk)
    assert isinstance(one.damage, CorruptBlock)
    assert [ref.header.last.tx for ref in one.refs] == [10]
    assert not one.takes_more(bytes_max=10**9)


# All of a log.


def test_the_next_block_goes_to_the_last_segment_or_a_new_one() -> None:
    files = LogFiles(1, [segment(live(10), 10)], [])
    assert files.target(LogOffset(20, 0)) is files.segments[0]
    files.segments[0].closed = True
    target = files.target(LogOffset(20, 0))
    assert (target.name, target.path, target.refs) == (live(20), segment_path(1, live(20)), [])
    assert files.segments[-1] is not target  # only when something is in it
    assert LogFiles(1, [], []).target(LogOffset(5, 0)).name == live(5)


def test_a_commit_alone_needs_a_segment_that_is_there() -> None:
    assert not LogFiles(1, [], []).takes_commits
    assert LogFiles(1, [segment(live(10), 10)], []).takes_commits
    assert not LogFiles(1, [segment(live(10), 10, closed=True)], []).takes_commits


def test_what_was_written_is_taken_up() -> None:
    files = LogFiles(1, [], [])
    files.repairs.append(Repair("a path", 0))
    target = files.target(LogOffset(10, 0))
    files.took(target, [ref_of(10)])
    files.took(files.target(LogOffset(20, 0)), [ref_of(20, position=128)])
    assert files.segments == [target]
    assert [ref.header.last.tx for ref in target.refs] == [10, 20]
    assert files.repairs == []


@pytest.mark.parametrize("sync_failed", [True, False])
def test_what_failed_is_repaired_and_given_up_after_a_failed_sync(sync_failed: bool) -> None:
    files = LogFiles(1, [segment(live(10), 10)], [])
    target = files.target(LogOffset(20, 0))
    repair = Repair(target.path, target.size)
    files.lost(target, repair, sync_failed=sync_failed)
    assert files.repairs == [repair]
    assert (files.target(LogOffset(20, 0)) is target) is not sync_failed
    files.lost(target, None, sync_failed=False)
    assert files.repairs == [repair]
    assert target.closed is sync_failed


def base(number: int, *, floor: int | None) -> Base:
    end = None
    if floor is not None:
        end = replace(HEADER, last=LogOffset(floor, 0), aligned=LogOffset(floor, 1), wire_end=7 * floor)
    return Base(number, "a path", end=end)


def test_the_end_of_what_is_on_disk() -> None:
    files = LogFiles(1, [], [])
    assert files.tail() == (SNAPSHOT_END, SNAPSHOT_END, 0)
    files.bases = [base(0, floor=10), base(1, floor=None)]
    assert files.base is files.bases[0]
    assert files.tail() == (LogOffset(10, 0), LogOffset(10, 1), 70)
    files.segments = [segment(live(20), 20, 30)]
    assert files.tail() == (LogOffset(30, 0), LogOffset(30, 1), 3000)


@given(st.lists(st.integers(1, 30), unique=True, max_size=6).map(sorted), st.integers(-1, 35), st.integers(0, 3))
def test_the_segments_that_may_hold_rows_above_an_offset(starts: list[int], tx: int, op: int) -> None:
    """At least all that do: those whose following segment starts above it."""
    after = LogOffset(tx, op) if tx >= 0 else BEFORE_ALL
    files = LogFiles(1, [segment(live(start), start) for start in starts], [])
    found = files.overlapping(after)
    assert found == files.segments[len(files.segments) - len(found) :]
    for one, following in pairwise(files.segments):
        if following.first > after:
            assert one in found
    assert all(one.last > after for one in found[1:])
