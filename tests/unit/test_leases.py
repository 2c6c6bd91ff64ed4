"""Leases: who holds what, until when; and what is no lease.

Invariants:
    a lease that was taken is there after a crash, and one taken before it under the same name is not
    rows are held above the least offset of the leases that have not expired
    whatever is in a lease's file, the answer is a lease or a named error
"""

import contextlib
import errno
import threading
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage import small_file
from storage.disk import Disk
from storage.errors import InvalidLease, SharedDiskFault, StorageError, UnknownFormat, UnknownLog
from storage.faulty_disk import Fault, FaultyDisk, Operation, Rule, Script
from storage.leases import Lease, end_lease, held_from, leases, take_lease
from storage.limits import LEASE_SECONDS_MAX
from storage.log_facts import LogFacts, remove_log, write_log
from storage.memory_disk import MemoryDisk
from storage.offset import BEFORE_ALL, OP_INFINITE, SNAPSHOT_END, LogOffset
from tests.crash.harness import Acknowledge, for_each_crash
from tests.unit.hooked_disk import Once, hooked

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
HANG_SECONDS = 60.0
LONGEST = int(LEASE_SECONDS_MAX * SECOND)


def disk_with_log(disk: MemoryDisk | None = None) -> MemoryDisk:
    disk = disk or MemoryDisk()
    disk.make_folder("logs")
    write_log(disk, LogFacts(1, "handle"))
    disk.sync_folder("")
    return disk


def lease(offset: LogOffset = SNAPSHOT_END, reader: str = "lake", *, seconds: float = 60) -> Lease:
    return Lease(1, reader, offset, NOW + int(seconds * SECOND))


def take(disk: Disk, *taken: Lease) -> None:
    for one in taken:
        take_lease(disk, one, now=NOW)


OFFSETS = [BEFORE_ALL, LogOffset(0, 3), SNAPSHOT_END, LogOffset(5, 0), LogOffset(2**62, OP_INFINITE)]


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_lease_is_found_as_it_was_taken(offset: LogOffset) -> None:
    disk = disk_with_log()
    take(disk, lease(offset))
    assert leases(disk, 1, now=NOW) == [lease(offset)]
    assert held_from(disk, 1, now=NOW) == offset


def test_the_least_offset_holds() -> None:
    disk = disk_with_log()
    assert held_from(disk, 1, now=NOW) is None
    take(disk, lease(LogOffset(9, 0), "a"), lease(LogOffset(5, 2), "b"), lease(LogOffset(7, 0), "c"))
    assert held_from(disk, 1, now=NOW) == LogOffset(5, 2)
    assert len(leases(disk, 1, now=NOW)) == 3


def test_a_reader_renews_its_lease_and_gives_it_back() -> None:
    disk = disk_with_log()
    take(disk, lease(LogOffset(5, 0)), lease(LogOffset(9, 0)))
    assert leases(disk, 1, now=NOW) == [lease(LogOffset(9, 0))]
    end_lease(disk, 1, "lake")
    assert held_from(disk, 1, now=NOW) is None
    end_lease(disk, 1, "lake")


def test_an_expired_lease_holds_nothing() -> None:
    disk = disk_with_log()
    take(disk, lease(LogOffset(5, 0), "short", seconds=1), lease(LogOffset(9, 0), "long", seconds=2))
    assert held_from(disk, 1, now=NOW + SECOND - 1) == LogOffset(5, 0)
    assert held_from(disk, 1, now=NOW + SECOND) == LogOffset(9, 0)
    assert held_from(disk, 1, now=NOW + 2 * SECOND) is None


@pytest.mark.parametrize("reader", ["", "a/b", "..", ".hidden", "a b", "é", "x" * 101, "a\n", "../2/lake"])
def test_a_name_that_is_no_plain_file_name_is_refused(reader: str) -> None:
    disk = disk_with_log()
    before = disk.contents()
    with pytest.raises(InvalidLease):
        take(disk, lease(reader=reader))
    assert disk.contents() == before


@given(st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", fullmatch=True))
def test_every_plain_name_will_do(reader: str) -> None:
    """Also those that look like other files of the folder."""
    disk = disk_with_log()
    take(disk, lease(LogOffset(5, 0), reader))
    assert leases(disk, 1, now=NOW) == [lease(LogOffset(5, 0), reader)]


@pytest.mark.parametrize("reader", ["log.json", "0", "0.base", "a.lease", "a.lease.tmp", "x.segment"])
def test_names_of_other_files_do_not_get_in_the_way(reader: str) -> None:
    disk = disk_with_log()
    before = disk.contents()
    take(disk, lease(LogOffset(5, 0), reader))
    assert [one.reader for one in leases(disk, 1, now=NOW)] == [reader]
    end_lease(disk, 1, reader)
    assert disk.contents() == before


@pytest.mark.parametrize("expires_at", [0, NOW - 1, NOW, NOW + LONGEST + 1, NOW * 10])
def test_an_end_that_is_past_or_too_far_is_refused(expires_at: int) -> None:
    disk = disk_with_log()
    with pytest.raises(InvalidLease):
        take(disk, Lease(1, "lake", SNAPSHOT_END, expires_at))
    take(disk, Lease(1, "lake", SNAPSHOT_END, NOW + LONGEST))


def test_only_a_log_can_be_leased() -> None:
    disk = disk_with_log()
    with pytest.raises(UnknownLog):
        take(disk, Lease(2, "lake", SNAPSHOT_END, NOW + 1))
    assert leases(disk, 2, now=NOW) == []
    assert held_from(disk, 2, now=NOW) is None
    end_lease(disk, 2, "lake")


def test_who_renews_the_lease_of_a_log_that_goes_is_told_so() -> None:
    for place in range(1, 100):
        inner = disk_with_log()
        hook = Once(place, partial(remove_log, inner, 1), armed=True)
        with contextlib.suppress(UnknownLog):
            take(hooked(inner, hook), lease())
        if not hook.came:
            break
        assert inner.names("logs/1") == []
    assert place > 5


@pytest.mark.parametrize("act", [take_lease, end_lease])
def test_a_log_goes_whatever_becomes_of_its_leases_meanwhile(act: Callable[..., None]) -> None:
    def meanwhile() -> None:
        with contextlib.suppress(UnknownLog):
            if act is take_lease:
                take(inner, lease())
            else:
                end_lease(inner, 1, lease().reader)

    for place in range(1, 100):
        inner = disk_with_log()
        take(inner, lease(LogOffset(5, 0)), lease(reader="other"))
        hook = Once(place, meanwhile, armed=True)
        remove_log(hooked(inner, hook), 1)
        if not hook.came:
            break
        assert inner.names("logs") == []
    assert place > 5


class Stepped:
    """A lease that is taken on a thread, one operation of the disk for each `step`."""

    def __init__(self, disk: Disk) -> None:
        self.outcome = ""
        self._goes, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._take, args=(hooked(disk, self._stop),), daemon=True)
        self._thread.start()
        self._wait()

    def step(self) -> None:
        if not self.outcome:
            self._goes.release()
            self._wait()

    def end(self) -> None:
        while not self.outcome:
            self.step()
        self._thread.join(HANG_SECONDS)

    def _wait(self) -> None:
        assert self._stands.acquire(timeout=HANG_SECONDS)

    def _stop(self, *_: object) -> None:
        self._stands.release()
        assert self._goes.acquire(timeout=HANG_SECONDS)

    def _take(self, disk: Disk) -> None:
        try:
            take(disk, lease())
            self.outcome = "taken"
        except UnknownLog:
            self.outcome = "unknown"
        except BaseException as failure:  # noqa: BLE001 - told to the test
            self.outcome = repr(failure)
        self._stands.release()


@given(steps=st.lists(st.integers(0, 4), max_size=8))
@example(steps=[2, 0, 0, 3])
@example(steps=[2, 0, 0, 1, 3])
@example(steps=[2, 0, 1, 1, 1, 1])
def test_a_log_goes_beside_whoever_is_about_to_take_a_lease(steps: list[int]) -> None:
    """Who has seen that the log is there makes files in a folder that is being emptied."""
    disk = disk_with_log()
    taking, places = Stepped(disk), iter(steps)

    def meanwhile(*_: object) -> None:
        for _step in range(next(places, 0)):
            taking.step()

    try:
        remove_log(hooked(disk, meanwhile), 1)
    finally:
        taking.end()
    assert disk.names("logs") == []
    assert taking.outcome in {"taken", "unknown"}


GOOD: dict[str, object] = {"format": 1, "offset": "5_0", "expires_at": NOW + 1}
BAD: list[dict[str, object]] = [
    {"format": 2},
    {"offset": "5"},
    {"offset": "5_x"},
    {"offset": 5},
    {"offset": None},
    {"expires_at": "soon"},
    {"expires_at": None},
]
NO_LEASES = [
    *(b"", b"{", b"[]", b"null", b"\xff"),
    *(small_file.encode(GOOD | changed) for changed in BAD),
    *(small_file.encode({key: value for key, value in GOOD.items() if key != left_out}) for left_out in GOOD),
]


@pytest.mark.parametrize("data", NO_LEASES)
def test_what_is_no_lease_is_told(data: bytes) -> None:
    """And nothing is folded or dropped while nobody knows what it holds."""
    disk = disk_with_log()
    disk.create("logs/1/lake.lease")
    disk.append("logs/1/lake.lease", [data])
    with pytest.raises(UnknownFormat) as told:
        held_from(disk, 1, now=NOW)
    assert told.value.facts["path"] == "logs/1/lake.lease"
    take(disk, lease())
    assert held_from(disk, 1, now=NOW) == SNAPSHOT_END


OPERATIONS: list[Operation] = ["create", "append", "sync", "rename", "sync_folder", "remove", "read", "size", "exists"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("happens", [False, True])
def test_a_fault_leaves_the_lease_before_or_the_new_one(operation: Operation, happens: bool) -> None:
    for first in range(1, 5):
        inner = disk_with_log()
        take(inner, lease(LogOffset(5, 0)))
        disk = FaultyDisk(inner, Script(Rule(operation, Fault(errno.ENOSPC, happens), first=first)))
        with contextlib.suppress(SharedDiskFault):
            take(disk, lease(LogOffset(9, 0)))
        assert held_from(inner, 1, now=NOW) in (LogOffset(5, 0), LogOffset(9, 0))
        disk.healthy = True
        take(disk, lease(LogOffset(9, 0)))
        assert held_from(disk, 1, now=NOW) == LogOffset(9, 0)
        disk.healthy = False
        with contextlib.suppress(StorageError):
            held_from(disk, 1, now=NOW)
        with contextlib.suppress(StorageError):
            end_lease(disk, 1, "lake")


def test_a_lease_survives_a_crash() -> None:
    taken = [lease(LogOffset(number, 0)) for number in range(1, 5)]

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[Lease]) -> None:
        for one in taken:
            take(disk, one)
            acknowledge(one)

    def check(disk: MemoryDisk, acknowledged: list[Lease]) -> None:
        found = leases(disk, 1, now=NOW)
        allowed = taken[: len(acknowledged) + 1][-2:] if acknowledged else taken[:1]
        assert found == [] if not acknowledged and not found else found[0] in allowed
        take(disk, lease(LogOffset(100, 0)))
        assert held_from(disk, 1, now=NOW) == LogOffset(100, 0)

    start = disk_with_log()
    assert for_each_crash(scenario, check, disk=lambda: start.crash_image(lambda count: count - 1)) > 100
