"""The record log, the G log and the catalog after a power cut at any place.

What was acknowledged is there, in order, and behind it nothing but a first part of the append that was under way.
The scenarios cross their limits, so that rewrites are cut as well.
"""

import contextlib

import pytest

from storage.catalog import Catalog, CatalogReader
from storage.catalog_records import Born, Ended, Ready, Rebased, Record, Snapshot
from storage.errors import SharedDiskFault
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.memory_disk import MemoryDisk
from storage.offset import LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressReader, ProgressRecord
from storage.record_frame import FRAME_SIZE
from storage.record_log import RecordLog, RecordLogReader
from tests.crash.harness import Acknowledge, Places, for_each_crash

SECTOR_RECORD = 512 - FRAME_SIZE
"""A record's size that makes its frame fill a sector: a crash can take it and leave the next."""

APPENDS = [
    [b"first"],
    [b"a" * SECTOR_RECORD, b"b" * SECTOR_RECORD, b"c" * SECTOR_RECORD],
    [b""],
    [b"d" * 700],
    [b"e", b"f", b"g"],
]


def records_of(appends: list[list[bytes]]) -> list[bytes]:
    return [record for records in appends for record in records]


def open_and_append(disk: MemoryDisk, acknowledge: Acknowledge[int]) -> None:
    log = RecordLog(disk, "log")
    for number, records in enumerate(APPENDS):
        log.append(records)
        acknowledge(number)


def open_again_and_append(disk: MemoryDisk, acknowledge: Acknowledge[int]) -> None:
    for number, records in enumerate(APPENDS):
        RecordLog(disk, "log").append(records)
        acknowledge(number)


def append_and_rewrite(disk: MemoryDisk, acknowledge: Acknowledge[int]) -> None:
    log = RecordLog(disk, "log")
    for number, records in enumerate(APPENDS):
        log.append(records)
        acknowledge(number)
        log.rewrite(log.read())


def append_on_a_failing_disk(disk: MemoryDisk, acknowledge: Acknowledge[int]) -> None:
    """Each append fails once: its write in the middle, or its sync, or a rewrite that should mend that."""
    rules = [
        Rule("append", Fault(happens=True, appended=20), path="log.000001", first=3),
        Rule("sync", Fault(), path="log.000001", first=3),
        Rule("rename", Fault(), first=2),
        Rule("sync_folder", Fault(), first=2),
    ]
    log = RecordLog(FaultyDisk(disk, Script(*rules)), "log")
    for number, records in enumerate(APPENDS):
        for _ in rules:
            with contextlib.suppress(SharedDiskFault):
                log.append(records)
                acknowledge(number)
                break
        else:
            pytest.fail("the log does not recover")


def check_records(disk: MemoryDisk, acknowledged: list[int]) -> None:
    """Twice, since an opening may itself write; a reader sees the same."""
    count = len(acknowledged)
    found = RecordLog(disk, "log").read()
    rest = found[len(records_of(APPENDS[:count])) :]
    assert found == records_of(APPENDS[:count]) + rest
    assert rest == records_of(APPENDS[count : count + 1])[: len(rest)]
    assert RecordLogReader(disk, "log").refresh().records == found
    again = RecordLog(disk, "log")
    again.append([b"more"])
    assert RecordLog(disk, "log").read() == [*found, b"more"]
    assert len(disk.names("")) == 1


SCENARIOS = [open_and_append, open_again_and_append, append_and_rewrite, append_on_a_failing_disk]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("place", ["syncs", "operations"])
def test_acknowledged_records_survive(scenario: object, place: Places) -> None:
    assert callable(scenario)
    for_each_crash(scenario, check_records, place=place, images=30 if place == "syncs" else 10)


def test_a_crash_after_a_crash_loses_nothing() -> None:
    """The second scenario starts from what the first one's last append left torn, with its mark lost."""

    def start() -> MemoryDisk:
        disk = MemoryDisk()
        open_and_append(disk, lambda _: None)
        name = disk.names("")[0]
        disk.truncate(name, disk.size(name) - FRAME_SIZE)
        disk.append(name, [b"t" * 600])
        return disk.crash_image(lambda count: count - 1)

    def scenario(disk: MemoryDisk, acknowledge: Acknowledge[bytes]) -> None:
        log = RecordLog(disk, "log")
        for record in (b"one", b"two"):
            log.append([record])
            acknowledge(record)

    def check(disk: MemoryDisk, acknowledged: list[bytes]) -> None:
        known = records_of(APPENDS) + acknowledged
        found = RecordLog(disk, "log").read()
        assert found in ([*known, *more] for more in ([], [b"one"], [b"two"]))

    for_each_crash(scenario, check, disk=start, images=20)


OLD, NEW = Incarnation(1, 1, 1), Incarnation(1, 2, 2)
PROGRESS = [ProgressRecord(OLD if lsn < 10 else NEW, lsn % 10, lsn // 4, lsn) for lsn in range(20)]


def confirm(disk: MemoryDisk, acknowledge: Acknowledge[ProgressRecord]) -> None:
    log = ProgressLog(disk, records_kept=3, bytes_max=600)
    for record in PROGRESS:
        assert log.append(record)
        acknowledge(record)


def check_progress(disk: MemoryDisk, acknowledged: list[ProgressRecord]) -> None:
    log, reader = ProgressLog(disk), ProgressReader(disk)
    reader.refresh()
    assert list(reader.history.newest_first()) == list(log.history.newest_first())
    found = list(log.history.newest_first())[::-1]
    assert found == [record for record in PROGRESS if record in found]
    possible = PROGRESS[: len(acknowledged) + 1]
    assert found[-3:] in (acknowledged[-3:], possible[-3:])
    for incarnation in {record.incarnation for record in acknowledged}:
        lasts = [
            max((r for r in some if r.incarnation == incarnation), key=lambda r: r.lsn)
            for some in (acknowledged, possible)
        ]
        assert log.history.last_of(incarnation) in lasts


def test_a_confirmed_g_survives() -> None:
    for_each_crash(confirm, check_progress)


SNAPSHOT = Snapshot(700, 705, (701,), 1_000)


def catalog_life() -> list[list[Record]]:
    appends: list[list[Record]] = []
    for log in range(1, 11, 2):
        a, b, c = f"{log}-a", f"{log}-b", f"{log}-c"
        appends += [
            [Born(a, log, f"table {log % 4}", {"columns": ["c"] * log}, SNAPSHOT), Ready(a, 0)],
            [Rebased(log, a, b, 1, LogOffset(log, 1), "fold")],
            [Ended(b, LogOffset(log, 9), "dropped"), Born(c, log + 1, None, {}, SNAPSHOT)],
            [Ended(c, LogOffset(log, 10), "idle")],
        ]
    return appends


CATALOG = catalog_life()


def change_catalog(disk: MemoryDisk, acknowledge: Acknowledge[int]) -> None:
    catalog = Catalog(disk, bytes_max=1_500)
    for records in CATALOG:
        version = catalog.append(*records)
        catalog.forget_below(version - 4)
        acknowledge(version)


def check_catalog(disk: MemoryDisk, acknowledged: list[int]) -> None:
    state = Catalog(disk).state
    reader = CatalogReader(disk)
    reader.refresh()
    count = len(acknowledged)
    version = acknowledged[-1] if acknowledged else 0
    under_way = len(CATALOG[count]) if count < len(CATALOG) else 0
    assert version <= state.version <= version + under_way
    model = Catalog(MemoryDisk())
    records = [record for records in CATALOG for record in records]
    for record in records[: state.version]:
        model.append(record)
    for found in (state, reader.state):
        assert found.version == state.version
        assert found.next_log == model.state.next_log
        assert found.living() == model.state.living()
        assert found.kept_from <= max(version - 4, 0)
        for asked in range(found.kept_from, found.version + 1):
            assert found.listed_at(asked) == model.state.listed_at(asked)


def test_the_catalog_survives() -> None:
    for_each_crash(change_catalog, check_catalog, images=2)
