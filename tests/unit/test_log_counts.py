"""What a log has, counted beside whoever writes, folds, removes: at each place between two operations of the look.

Invariants:
    the rows are those below the `visible` that is told with them
    a file that goes meanwhile ends no look; a log that is removed is unknown
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pytest

from cdc.inspect.listing import listing_of
from storage.disk import Disk
from storage.errors import UnknownLog
from storage.folder_reader import FolderReader
from storage.log_counts import LogCounts, counts_in_folder, counts_of
from storage.memory_disk import MemoryDisk
from tests.unit.hooked_disk import Once, hooked
from tests.unit.test_folder_reader import STARTS, Writer

Act = Callable[[Writer], None]

LARGE: list[Act] = [Writer.large_ones]
MEANWHILE: dict[str, tuple[list[Act], Act]] = {
    "compacted": (LARGE, Writer.compact),
    "retired": (LARGE, Writer.retire),
    "the journal emptied": (STARTS["both"], Writer.small_ones),
    "segments closed": (STARTS["both"], Writer.large_ones),
    "restarted": (STARTS["both"], Writer.restart_and_write),
}
PLACES_MIN = 5


def check(found: LogCounts, writer: Writer) -> None:
    assert found.rows == sum(at <= found.visible for at in writer.appended)
    assert found.visible in writer.ends
    assert found.bytes > 0
    assert found.fault is None


def beside(starts: Iterable[Act], act: Act) -> Iterator[tuple[Writer, Disk]]:
    """A writer and a disk to look at, on which it acts once: before each operation of the look in turn."""
    for place in range(1, 1000):
        inner = MemoryDisk()
        writer = Writer(inner)
        for start in starts:
            start(writer)
        hook = Once(place, partial(act, writer), armed=True)
        yield writer, hooked(inner, hook)
        if not hook.came:
            assert place > PLACES_MIN
            return


def counted(disk: Disk) -> LogCounts:
    return counts_in_folder(disk, FolderReader(disk, pause=lambda _: None), 1)


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_folder_is_counted_beside_its_writer(what: str) -> None:
    for writer, disk in beside(*MEANWHILE[what]):
        check(counted(disk), writer)


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_folder_is_listed_beside_its_writer(what: str) -> None:
    for _, disk in beside(*MEANWHILE[what]):
        found = listing_of(disk)
        assert (found.faults, [one.log for one in found.logs]) == ({}, [1, 2])


def test_a_log_that_is_removed_meanwhile_is_unknown() -> None:
    outcomes = set[object]()
    for writer, disk in beside(LARGE, Writer.remove):
        try:
            outcomes.add(counted(disk).rows == len(writer.appended))
        except UnknownLog:
            outcomes.add("unknown")
    assert outcomes == {True, "unknown"}


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "first look"])
@pytest.mark.parametrize("act", [Writer.compact, Writer.retire])
def test_a_log_is_counted_while_it_is_folded(act: Act, is_open: bool) -> None:
    for place in range(1, 1000):
        hook = Once(place, lambda: act(writer))  # noqa: B023 - called before the loop goes on
        writer = Writer(hooked(MemoryDisk(), hook))
        writer.large_ones()
        if not is_open:
            writer.restart()
        writer.rig.store.marks(1)
        hook.armed = True
        check(counts_of(writer.rig.store, 1), writer)
        if not hook.came:
            break
    assert place > PLACES_MIN - 1
