"""The G log: G grows within an incarnation and starts anew with the next; what is kept can be asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidIncarnation, Misuse, SharedDiskFault, UnknownFormat, WentBackwards
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.memory_disk import MemoryDisk
from storage.progress import Incarnation, ProgressHistory, ProgressLog, ProgressReader, ProgressRecord
from storage.record_log import RecordLog

OLD = Incarnation(7301234567890123456, 1, 1_700_000_000_000_000)
NEW = Incarnation(7301234567890123456, 2, 1_700_000_000_000_001)

unsigned = st.integers(0, 2**64 - 1)
incarnations = st.builds(Incarnation, unsigned, st.integers(0, 2**32 - 1), unsigned)


@st.composite
def lawful(draw: st.DrawFn) -> list[ProgressRecord]:
    """Records as a source makes them: G starts anew with an incarnation, catalog versions go on."""
    records, version = [], 0
    for incarnation in draw(st.lists(incarnations, max_size=3, unique=True)):
        lsns = sorted(draw(st.lists(st.integers(0, 20), min_size=1, max_size=8)))
        for lsn in lsns:
            version += draw(st.integers(0, 1))
            records.append(ProgressRecord(incarnation, lsn, version, draw(st.integers(-10, 10))))
    return records


def news(records: list[ProgressRecord]) -> list[ProgressRecord]:
    """The plain model: what differs from the one before in what counts."""
    kept: list[ProgressRecord] = []
    for record in records:
        facts = [(old.incarnation, old.lsn, old.catalog_version) for old in kept[-1:]]
        if facts != [(record.incarnation, record.lsn, record.catalog_version)]:
            kept.append(record)
    return kept


@given(incarnations)
def test_an_incarnation_is_read_from_its_text(incarnation: Incarnation) -> None:
    assert Incarnation.parse(str(incarnation)) == incarnation


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "1-2-x", " 1-2-3", "-1-2-3", f"1-{2**32}-3", f"{2**64}-1-3"])
def test_what_is_no_incarnation_is_refused(text: str) -> None:
    with pytest.raises(InvalidIncarnation):
        Incarnation.parse(text)


@given(incarnations, unsigned, unsigned, st.integers(-(2**63), 2**63 - 1))
def test_a_record_is_read_from_its_bytes(incarnation: Incarnation, lsn: int, version: int, time: int) -> None:
    record = ProgressRecord(incarnation, lsn, version, time)
    assert ProgressRecord.decode(record.encode()) == record


def test_numbers_that_do_not_fit_are_refused_before_they_are_written() -> None:
    disk = MemoryDisk()
    log = ProgressLog(disk)
    with pytest.raises(Misuse):
        log.append(ProgressRecord(OLD, -1, 0, 0))
    assert log.history.latest is None
    assert RecordLog(disk, "progress").read() == []


@pytest.mark.parametrize("data", [b"", b"\x02\x00" + bytes(44), b"\x01\x00" + bytes(45)])
def test_another_programs_record_is_refused(data: bytes) -> None:
    disk = MemoryDisk()
    RecordLog(disk, "progress").append([data])
    with pytest.raises(UnknownFormat):
        ProgressLog(disk)
    reader = ProgressReader(disk)
    for _ in range(2):  # it does not skip the record the second time
        with pytest.raises(UnknownFormat):
            reader.refresh()


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        (ProgressRecord(NEW, 9, 5, 0), "G fell"),
        (ProgressRecord(NEW, 11, 4, 0), "catalog version"),
        (ProgressRecord(Incarnation(1, 1, 1), 11, 4, 0), "catalog version"),
        (ProgressRecord(OLD, 1000, 6, 0), "had ended"),
    ],
)
def test_nothing_goes_backwards(record: ProgressRecord, wrong: str) -> None:
    log = ProgressLog(MemoryDisk())
    assert log.append(ProgressRecord(OLD, 1000, 4, 0))
    assert log.append(ProgressRecord(NEW, 10, 5, 0))
    with pytest.raises(WentBackwards, match=wrong):
        log.append(record)
    assert log.history.latest == ProgressRecord(NEW, 10, 5, 0)


def test_the_same_g_counts_again_with_a_higher_catalog_version_only() -> None:
    disk = MemoryDisk()
    log = ProgressLog(disk)
    assert log.append(ProgressRecord(OLD, 10, 4, 0))
    syncs = disk.syncs
    assert not log.append(ProgressRecord(OLD, 10, 4, 7))
    assert disk.syncs == syncs
    assert log.append(ProgressRecord(OLD, 10, 5, 0))


@given(lawful(), st.integers(-1, 21), st.integers(-10, 10))
def test_questions_are_answered_as_a_plain_list_would(records: list[ProgressRecord], lsn: int, time: int) -> None:
    log = ProgressLog(MemoryDisk())
    for record in records:
        log.append(record)
    history, kept = log.history, news(records)
    assert list(history.newest_first()) == kept[::-1]
    assert history.latest == (kept[-1] if kept else None)
    for newest in (1, 2, 3, 100):
        versions = [record.catalog_version for record in kept[-newest:]]
        assert history.oldest_catalog_version(newest) == min(versions, default=0)
    on_time = [record for record in kept if record.commit_time <= time]
    assert history.newest_where(lambda record: record.commit_time <= time) == (on_time[-1] if on_time else None)
    for incarnation in {record.incarnation for record in records} | {OLD}:
        of_it = [record for record in kept if record.incarnation == incarnation]
        below = [record for record in of_it if record.lsn <= lsn]
        assert history.greatest_at_or_below(incarnation, lsn) == (below[-1] if below else None)
        assert history.last_of(incarnation) == (of_it[-1] if of_it else None)


@given(lawful(), st.integers(0, 5))
def test_a_rewrite_keeps_the_newest_and_each_incarnations_last(records: list[ProgressRecord], newest: int) -> None:
    disk = MemoryDisk()
    log, reader = ProgressLog(disk, records_kept=newest, bytes_max=500), ProgressReader(disk)
    for record in records:
        log.append(record)
        assert reader.refresh() or log.history.latest == reader.history.latest
        assert list(reader.history.newest_first()) == list(log.history.newest_first())
    kept = news(records)
    lasts = {record.incarnation: record for record in kept}
    history = ProgressHistory.of(kept)
    assert history.kept(newest) == [
        record
        for index, record in enumerate(kept)
        if len(kept) - index <= newest or record is lasts[record.incarnation]
    ]
    assert [log.history.last_of(incarnation) for incarnation in lasts] == list(lasts.values())
    again = ProgressLog(disk)
    assert list(again.history.newest_first()) == list(log.history.newest_first())


def test_a_long_log_becomes_short() -> None:
    disk = MemoryDisk()
    log = ProgressLog(disk, records_kept=3, bytes_max=2_000)
    for lsn in range(200):
        log.append(ProgressRecord(OLD, lsn, 1, lsn))
        assert disk.size(disk.names("")[0]) < 2_000 + 200
    assert log.history.latest == ProgressRecord(OLD, 199, 1, 199)
    assert len(list(log.history.newest_first())) < 30


def test_a_g_that_was_not_written_is_not_the_latest() -> None:
    disk = MemoryDisk()
    log = ProgressLog(FaultyDisk(disk, Script(Rule("sync", Fault(), path="progress.000001"))))
    reader = ProgressReader(disk)
    with pytest.raises(SharedDiskFault):
        log.append(ProgressRecord(OLD, 10, 1, 0))
    reader.refresh()
    assert log.history.latest is reader.history.latest is None
    assert log.append(ProgressRecord(OLD, 10, 1, 0))
    assert reader.refresh()
    assert reader.history.latest == log.history.latest


def test_a_disk_that_cannot_read_what_it_failed_to_write_keeps_nothing_from_being_written_elsewhere() -> None:
    disk, first = MemoryDisk(), "progress.000001"
    rules = Rule("sync", Fault(), path=first, first=2), Rule("read", Fault(), path=first, calls=None)
    log = ProgressLog(FaultyDisk(disk, Script(*rules)))
    log.append(ProgressRecord(OLD, 10, 1, 0))
    with pytest.raises(SharedDiskFault):
        log.append(ProgressRecord(OLD, 20, 1, 0))
    assert log.append(ProgressRecord(OLD, 20, 1, 0))
    assert [record.lsn for record in ProgressLog(disk.crash_image(lambda _: 0)).history.newest_first()] == [20, 10]
