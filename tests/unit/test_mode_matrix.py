"""What an append, a flush and a commit do to a log: by its mode and by what it holds. One table, on the real disk.

A log that is not empty holds a row at 10_0, of a transaction that ends at 10_1; it is on disk or in memory.
"""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage.disk import LocalDisk
from storage.errors import SourceGap, StorageError, WentBackwards
from storage.faulty_disk import Fault, FaultyDisk, NoFaults, Rule, Script
from storage.limits import FAULT_RETRY_SECONDS
from storage.metrics import Metric
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.shape_log import Mode, Placement
from storage.store import StoreOptions
from tests.unit.builders import BOTH_FILES, Rig, rows, to_segments

APPEND, COMPACTED = Mode.APPEND, Mode.COMPACTED
ROW, END = LogOffset(10, 0), LogOffset(10, 1)
NEXT_ROW, NEXT_END = LogOffset(20, 0), LogOffset(20, 1)

# What the log holds.


def empty(rig: Rig) -> None:
    """As it was born."""


def flushed(rig: Rig) -> None:
    """All on disk, nothing in memory."""
    rig.write(10)
    rig.store.flush_all()


def buffered(rig: Rig) -> None:
    """All in memory."""
    rig.write(10)


# What is done to it.


def write(*offsets: tuple[int, int], after: LogOffset | None = None) -> Callable[[Rig], Any]:
    """Append the rows of whole transactions, said to follow `after`, or else what the log has."""
    aligned = LogOffset(offsets[-1][0], offsets[-1][1] + 1)

    def action(rig: Rig) -> Any:
        start = rig.upper() if after is None else after
        return rig.store.append(1, rows(offsets), after=start, aligned=aligned)

    return action


AT = write((20, 0))
ABOVE = write((20, 0), after=LogOffset(15, 0))
BELOW_EMPTY = write((0, 3), after=BEFORE_ALL)  # what the base has
BELOW = write((10, 0), after=SNAPSHOT_END)
FAR_BELOW = write((5, 0), after=SNAPSHOT_END)
OVERLAPPING = write((10, 0), (20, 0), after=SNAPSHOT_END)
BACKWARDS_INSIDE = write((30, 0), (20, 0))
BACKWARDS_CLAIM = write((20, 0), after=LogOffset(25, 0))
TWICE_THE_SAME = write((20, 0), (20, 0))


def ends_too_early(rig: Rig) -> Any:
    return rig.store.append(1, rows([(20, 0), (20, 2)]), after=rig.upper(), aligned=LogOffset(20, 1))


def flush(rig: Rig) -> list[LogOffset]:
    return [one.aligned for one in rig.store.flush(demand=[1])]


def commit_again(rig: Rig) -> bool:
    return rig.store.commit(1, END)


class Case(NamedTuple):
    mode: Mode
    state: Callable[[Rig], None]
    action: Callable[[Rig], Any]
    outcome: Any
    """What the action returns, or raises."""
    upper: LogOffset
    """Nothing at or below it is taken again: the next append follows it."""
    rows: list[LogOffset]


CASES = {
    "append, empty, at": Case(APPEND, empty, AT, Placement.AT, NEXT_END, [NEXT_ROW]),
    "append, empty, above": Case(APPEND, empty, ABOVE, SourceGap, SNAPSHOT_END, []),
    "append, empty, below": Case(APPEND, empty, BELOW_EMPTY, Placement.BELOW, SNAPSHOT_END, []),
    "append, empty, backwards inside": Case(APPEND, empty, BACKWARDS_INSIDE, WentBackwards, SNAPSHOT_END, []),
    "append, empty, backwards claim": Case(APPEND, empty, BACKWARDS_CLAIM, WentBackwards, SNAPSHOT_END, []),
    "append, empty, twice the same": Case(APPEND, empty, TWICE_THE_SAME, WentBackwards, SNAPSHOT_END, []),
    "append, empty, end too early": Case(APPEND, empty, ends_too_early, WentBackwards, SNAPSHOT_END, []),
    "append, empty, flush": Case(APPEND, empty, flush, [], SNAPSHOT_END, []),
    "append, flushed, at": Case(APPEND, flushed, AT, Placement.AT, NEXT_END, [ROW, NEXT_ROW]),
    "append, flushed, above": Case(APPEND, flushed, ABOVE, SourceGap, END, [ROW]),
    "append, flushed, below": Case(APPEND, flushed, BELOW, Placement.BELOW, END, [ROW]),
    "append, flushed, far below": Case(APPEND, flushed, FAR_BELOW, Placement.BELOW, END, [ROW]),
    "append, flushed, overlapping": Case(APPEND, flushed, OVERLAPPING, Placement.OVERLAP, NEXT_END, [ROW, NEXT_ROW]),
    "append, flushed, backwards inside": Case(APPEND, flushed, BACKWARDS_INSIDE, WentBackwards, END, [ROW]),
    "append, flushed, backwards claim": Case(APPEND, flushed, BACKWARDS_CLAIM, WentBackwards, END, [ROW]),
    "append, flushed, end too early": Case(APPEND, flushed, ends_too_early, WentBackwards, END, [ROW]),
    "append, flushed, flush": Case(APPEND, flushed, flush, [], END, [ROW]),
    "append, flushed, commit again": Case(APPEND, flushed, commit_again, False, END, [ROW]),
    "append, buffered, at": Case(APPEND, buffered, AT, Placement.AT, NEXT_END, [ROW, NEXT_ROW]),
    "append, buffered, above": Case(APPEND, buffered, ABOVE, SourceGap, END, [ROW]),
    "append, buffered, below": Case(APPEND, buffered, BELOW, Placement.BELOW, END, [ROW]),
    "append, buffered, far below": Case(APPEND, buffered, FAR_BELOW, Placement.BELOW, END, [ROW]),
    "append, buffered, overlapping": Case(APPEND, buffered, OVERLAPPING, Placement.OVERLAP, NEXT_END, [ROW, NEXT_ROW]),
    "append, buffered, backwards inside": Case(APPEND, buffered, BACKWARDS_INSIDE, WentBackwards, END, [ROW]),
    "append, buffered, backwards claim": Case(APPEND, buffered, BACKWARDS_CLAIM, WentBackwards, END, [ROW]),
    "append, buffered, end too early": Case(APPEND, buffered, ends_too_early, WentBackwards, END, [ROW]),
    "append, buffered, flush": Case(APPEND, buffered, flush, [END], END, [ROW]),
    "append, buffered, commit again": Case(APPEND, buffered, commit_again, False, END, [ROW]),
    "compacted, empty, at": Case(COMPACTED, empty, AT, Placement.AT, NEXT_END, [NEXT_ROW]),
    "compacted, empty, above": Case(COMPACTED, empty, ABOVE, Placement.ABOVE, NEXT_END, [NEXT_ROW]),
    "compacted, empty, below": Case(COMPACTED, empty, BELOW_EMPTY, Placement.BELOW, SNAPSHOT_END, []),
    "compacted, empty, backwards inside": Case(COMPACTED, empty, BACKWARDS_INSIDE, WentBackwards, SNAPSHOT_END, []),
    "compacted, empty, backwards claim": Case(COMPACTED, empty, BACKWARDS_CLAIM, WentBackwards, SNAPSHOT_END, []),
    "compacted, empty, flush": Case(COMPACTED, empty, flush, [], SNAPSHOT_END, []),
    "compacted, flushed, at": Case(COMPACTED, flushed, AT, Placement.AT, NEXT_END, [ROW, NEXT_ROW]),
    "compacted, flushed, above": Case(COMPACTED, flushed, ABOVE, Placement.ABOVE, NEXT_END, [ROW, NEXT_ROW]),
    "compacted, flushed, below": Case(COMPACTED, flushed, BELOW, Placement.BELOW, END, [ROW]),
    "compacted, flushed, overlapping": Case(
        COMPACTED, flushed, OVERLAPPING, Placement.OVERLAP, NEXT_END, [ROW, NEXT_ROW]
    ),
    "compacted, flushed, backwards inside": Case(COMPACTED, flushed, BACKWARDS_INSIDE, WentBackwards, END, [ROW]),
    "compacted, flushed, backwards claim": Case(COMPACTED, flushed, BACKWARDS_CLAIM, WentBackwards, END, [ROW]),
    "compacted, flushed, flush": Case(COMPACTED, flushed, flush, [], END, [ROW]),
    "compacted, buffered, at": Case(COMPACTED, buffered, AT, Placement.AT, NEXT_END, [ROW, NEXT_ROW]),
    "compacted, buffered, above": Case(COMPACTED, buffered, ABOVE, Placement.ABOVE, NEXT_END, [ROW, NEXT_ROW]),
    "compacted, buffered, below": Case(COMPACTED, buffered, BELOW, Placement.BELOW, END, [ROW]),
    "compacted, buffered, overlapping": Case(
        COMPACTED, buffered, OVERLAPPING, Placement.OVERLAP, NEXT_END, [ROW, NEXT_ROW]
    ),
    "compacted, buffered, backwards inside": Case(COMPACTED, buffered, BACKWARDS_INSIDE, WentBackwards, END, [ROW]),
    "compacted, buffered, backwards claim": Case(COMPACTED, buffered, BACKWARDS_CLAIM, WentBackwards, END, [ROW]),
    "compacted, buffered, flush": Case(COMPACTED, buffered, flush, [END], END, [ROW]),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LocalDisk]:
    local = LocalDisk(tmp_path)
    yield local
    local.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_matrix(case: Case, disk: LocalDisk) -> None:
    """R25: backwards is refused in every mode and state, and what is refused leaves the log as it was."""
    rig = Rig(disk, mode=case.mode)
    case.state(rig)
    if isinstance(case.outcome, type):
        with pytest.raises(case.outcome) as refused:
            case.action(rig)
        assert isinstance(refused.value, StorageError)
    else:
        assert case.action(rig) == case.outcome
    assert rig.upper() == case.upper
    assert rig.read_all() == case.rows
    assert rig.store.gauges()[Metric.BUFFERED_BYTES] > 0 or not rig.store.log(1).state.pending

    # And the log goes on from there, in this process and in the next.
    rig.write(30)
    rig.store.flush_all()
    assert rig.read_all() == [*case.rows, LogOffset(30, 0)]
    again = rig.reopened()
    assert again.read_all() == [*case.rows, LogOffset(30, 0)]
    assert again.store.marks(1) == (LogOffset(30, 1), LogOffset(30, 1))


# Gaps in compacted mode.

GAPPED = [LogOffset(tx, 0) for tx in (461, 466, 470)]


@BOTH_FILES
@pytest.mark.parametrize("flush_each", [True, False], ids=["flush each", "flush all"])
def test_gap_after_gap(options: StoreOptions, flush_each: bool, disk: LocalDisk) -> None:
    """The first at the start, the others in the middle of the stream, with rows in the buffer and without."""
    rig = Rig(disk, options, mode=COMPACTED)
    for offset in GAPPED:
        assert rig.write(offset.tx, after=LogOffset(offset.tx - 1, 0)) is Placement.ABOVE
        if flush_each:
            rig.store.flush_all()
        assert rig.read_all()[-1] == offset
    rig.write(471)
    rig.store.flush_all()
    assert rig.store.metrics.value(Metric.GAPS) == 3
    for reader in (rig, rig.reopened()):
        assert reader.read_all() == [*GAPPED, LogOffset(471, 0)]
        assert reader.read_all(SNAPSHOT_END, 0) == [*GAPPED, LogOffset(471, 0)]
        assert reader.read_all(LogOffset(463, 0)) == [*GAPPED[1:], LogOffset(471, 0)]


def test_gaps_survive_the_way_from_the_journal_to_a_segment(disk: LocalDisk) -> None:
    rig = Rig(disk, mode=COMPACTED)
    for offset in GAPPED:
        rig.write(offset.tx, after=LogOffset(offset.tx - 1, 0))
        rig.store.flush_all()
    moved = Rig(disk, to_segments(), mode=COMPACTED)
    moved.write(480)
    moved.store.flush_all()
    assert not moved.store.logs.index.holds(1)
    for reader in (moved, moved.reopened()):
        assert reader.read_all() == [*GAPPED, LogOffset(480, 0)]


def test_a_gap_survives_a_failed_flush(disk: LocalDisk) -> None:
    faulty = FaultyDisk(disk, NoFaults())
    rig = Rig(faulty, mode=COMPACTED)
    rig.write(461, after=LogOffset(460, 0))
    faulty.plan = Script(Rule("sync", Fault(errno.EIO)))
    rig.store.flush(demand=[1])
    rig.clock.seconds += FAULT_RETRY_SECONDS
    rig.store.flush_all()
    assert rig.reopened().read_all() == GAPPED[:1]


def test_a_gap_in_an_open_transaction_is_no_gap_when_that_is_sent_whole(disk: LocalDisk) -> None:
    rig = Rig(disk, mode=COMPACTED)
    rig.write(10)
    rig.store.append(1, rows([(20, 4)]), after=LogOffset(20, 2))
    rig.store.flush(demand=[1])
    rig.store.abandon()
    rig.store.append(1, rows([(20, 0), (20, 4)]), after=END, aligned=LogOffset(20, 5))
    rig.store.flush_all()
    assert rig.reopened().read_all() == [ROW, LogOffset(20, 0), LogOffset(20, 4)]


@pytest.mark.parametrize("mode", Mode)
def test_what_the_stream_has_covered_is_no_gap(mode: Mode, disk: LocalDisk) -> None:
    """A quiet log has all there is up to where the stream has come, though its last row lies far below."""
    rig = Rig(disk, mode=mode)
    rig.write(10)
    rig.store.resume(LogOffset(50, 7))
    assert rig.write(60, after=LogOffset(50, 7)) is Placement.AT
    assert rig.store.metrics.value(Metric.GAPS) == 0
    assert rig.read_all() == [ROW, LogOffset(60, 0)]
