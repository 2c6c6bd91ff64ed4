"""Which stream a folder's data came from: claims, incarnations, and a file that a crash or damage may meet.

Invariants: those at the head of `shapes.lineage` and `shapes.stream_record`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.identity import Identity, compare_histories
from cdc.source.lsn import Lsn
from cdc.source.publication import Member, PublicationState
from shapes.errors import StreamRecordDamaged
from shapes.lineage import Lineage
from shapes.stream_record import PATH, StreamRecord, forget_stream, read_stream_record, write_stream_record
from storage import small_file
from storage.memory_disk import Crashed, MemoryDisk, luckiest, strictest
from storage.progress import ProgressLog, ProgressRecord

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
oids = st.integers(1, 2**32 - 1)
members = st.builds(Member, oids, oids, texts, st.none() | texts, st.none() | st.lists(texts, max_size=3).map(tuple))
states = st.builds(
    PublicationState,
    texts,
    st.none() | oids,
    oids,
    texts,
    st.booleans(),
    st.booleans(),
    st.lists(texts, max_size=3).map(tuple),
    texts,
    st.dictionaries(oids, members, max_size=3),
    st.dictionaries(oids, members, max_size=3),
    st.dictionaries(texts, st.dictionaries(texts, texts, max_size=3), max_size=3),
)
identities = st.builds(
    Identity,
    st.integers(1, 2**64 - 1).map(str),
    st.integers(1, 2**32 - 1),
    texts,
    texts,
    st.dictionaries(texts, texts, max_size=3),
    states,
)
records = st.builds(StreamRecord, texts, st.none() | identities, st.integers(0, 2**53), st.integers(0, 2**63 - 1))

OURS = Identity("7301234567890123456", 1, "postgres", "ours", {"proto_version": "1"}, PublicationState("ours", 5, 7))


class Folder:
    """A data folder as one start after the other finds it; its clock is in the test's hands."""

    def __init__(self, disk: MemoryDisk | None = None, at: int = 1_000_000) -> None:
        self.disk = disk or MemoryDisk()
        self.at = at

    def lineage(self, slot: str = "ours") -> Lineage:
        self.progress = ProgressLog(self.disk)
        return Lineage(self.disk, self.progress, slot, lambda: self.at)


@given(records)
def test_a_record_is_read_as_it_was_written(record: StreamRecord) -> None:
    disk = MemoryDisk()
    write_stream_record(disk, record)
    assert read_stream_record(disk) == record
    assert read_stream_record(disk.crash_image(strictest)) == record
    forget_stream(disk)
    assert read_stream_record(disk.crash_image(strictest)) is None


@given(records, st.data())
def test_a_damaged_record_is_named_and_never_taken_for_another(record: StreamRecord, data: st.DataObject) -> None:
    disk = MemoryDisk()
    write_stream_record(disk, record)
    content = bytearray(disk.read(PATH, 0, disk.size(PATH)))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StreamRecordDamaged) as caught:
        read_stream_record(_holding(bytes(content)))
    assert caught.value.hint


@given(st.dictionaries(texts | st.sampled_from(["format", "slot", "identity", "epoch"]), st.integers(0, 1) | st.none()))
def test_a_whole_file_of_another_content_is_damage_too(facts: dict[str, object]) -> None:
    with pytest.raises(StreamRecordDamaged):
        read_stream_record(_holding(small_file.encode(facts)))


def _holding(content: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.create(PATH)
    disk.append(PATH, [content])
    return disk


def test_a_claim_makes_the_slot_ours_when_a_crash_comes_between_slot_and_record() -> None:
    folder = Folder()
    first = folder.lineage()
    assert not first.is_claimed
    assert first.known() is None
    assert first.incarnation is None
    first.claim()
    # Here the slot is made, and the process ends.
    again = Folder(folder.disk.crash_image(strictest)).lineage()
    assert again.is_claimed
    assert again.known() is None, "a claim says nothing of the stream"
    assert not Folder(folder.disk.crash_image(strictest)).lineage("another").is_claimed


def test_who_has_begun_claims_no_other_slot() -> None:
    folder = Folder()
    folder.lineage().begin(OURS, 500)
    again = folder.lineage()
    assert not again.is_claimed
    again.claim()
    known = again.known()
    assert known is not None
    assert (known.identity, known.durable) == (OURS, 500)


def test_g_is_that_of_the_present_incarnation() -> None:
    folder = Folder()
    lineage = folder.lineage()
    first = lineage.begin(OURS, 500)
    assert lineage.g == (500, 0), "before the first record: where the stream began"
    folder.progress.append(ProgressRecord(first, 900, 3, 77))
    assert folder.lineage().g == (900, 77)
    second = lineage.begin(replace(OURS, timeline=2), 100)
    assert lineage.g == (100, 0), "G is set, and may fall: another incarnation"
    folder.progress.append(ProgressRecord(second, 120, 3, 78))
    assert folder.lineage().g == (120, 78)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8))
def test_epochs_grow_whatever_the_clock_does(steps: list[int]) -> None:
    folder = Folder(at=10**7)
    epochs = []
    for step in steps:
        folder.at += step
        lineage = folder.lineage()
        incarnation = lineage.begin(OURS, 500)
        folder.progress.append(ProgressRecord(incarnation, 500, 0, 0))
        epochs.append(incarnation.slot_epoch)
    assert epochs == sorted(set(epochs))


def test_what_we_published_ourselves_is_known_at_the_next_start() -> None:
    folder = Folder()
    lineage = folder.lineage()
    altered = PublicationState("ours", 5, 8, tables={7: Member(7, 9, "t")})
    lineage.published(altered)
    assert lineage.known() is None, "there is nothing to be known before the first connection"
    began = lineage.begin(OURS, 500)
    lineage.published(altered)
    again = folder.lineage()
    known = again.known()
    assert known is not None
    assert known.identity == replace(OURS, publication=altered)
    assert again.incarnation == began, "it is the same stream"


STEPS: list[Callable[[Lineage], object]] = [
    lambda lineage: lineage.claim(),
    lambda lineage: lineage.begin(OURS, 500),
    lambda lineage: lineage.published(PublicationState("ours", 5, 8)),
    lambda lineage: lineage.begin(replace(OURS, timeline=2), 700),
]


@pytest.mark.parametrize("choose", [strictest, luckiest])
def test_a_crash_at_any_write_leaves_what_was_or_what_shall_be(choose: Callable[[int], int]) -> None:
    for number, step in enumerate(STEPS):
        seen = set()
        for operation in range(1, 30):
            folder = Folder()
            lineage = folder.lineage()
            for earlier in STEPS[:number]:
                earlier(lineage)
            before = lineage.record
            folder.disk.crash_at_operation = folder.disk.operations + operation
            try:
                step(lineage)
            except Crashed:
                pass
            else:
                assert read_stream_record(folder.disk.crash_image(choose)) == lineage.record
                break
            found = read_stream_record(folder.disk.crash_image(choose))
            assert found == before or found is not None
            seen.add(found == before)
            Folder(folder.disk.crash_image(choose)).lineage().claim()  # it can go on
        else:
            raise AssertionError("a step never ends")
        assert True in seen


def test_the_time_of_a_commit_below_a_place_is_that_of_the_gs_around_it() -> None:
    disk = MemoryDisk()
    lineage = Lineage(disk, progress := ProgressLog(disk), "ours", lambda: 77)
    incarnation = lineage.begin(OURS, 100)
    known = lineage.known()
    assert known is not None
    assert known.commit_times_at is not None
    assert [known.commit_times_at(Lsn(lsn)) for lsn in (99, 100, 150)] == [(), (0,), (0,)]
    for lsn, time in ((200, 5), (300, 5), (400, 4)):
        progress.append(ProgressRecord(incarnation, lsn, 0, time))
    assert [known.commit_times_at(Lsn(lsn)) for lsn in (99, 100, 200, 300, 400)] == [(), (0,), (5,), (5,), (4,)]
    assert [known.commit_times_at(Lsn(lsn)) for lsn in (199, 250, 399)] == [(0, 5), (5, 5), (5, 4)]
    lineage.begin(OURS, 250)
    assert [known.commit_times_at(Lsn(lsn)) for lsn in (249, 300)] == [(), (0,)], "another life of the slot"


def test_a_slot_that_stands_between_two_gs_is_no_other_history() -> None:
    """A commit came, and WAL behind it; then the connection broke, and the next one brought the commit only.

    G is behind both by then, and what that connection confirms is the end of the commit, which never was a G.
    """
    disk = MemoryDisk()
    lineage = Lineage(disk, progress := ProgressLog(disk), "ours", lambda: 77)
    progress.append(ProgressRecord(lineage.begin(OURS, 100), 300, 0, 5))
    known = lineage.known()
    assert known is not None
    assert compare_histories(known, Lsn(200), None) is None
    assert compare_histories(known, Lsn(100), 5) is None
    assert compare_histories(known, Lsn(100), None) is not None, "there the commit must come again"
    assert compare_histories(known, Lsn(200), 6) is not None


def test_what_a_connection_found_is_compared_with_what_was_recorded_last() -> None:
    """Also the plugin's options; and what was recorded once is told no more."""
    lineage = Folder().lineage()
    lineage.begin(OURS, 500)
    added = replace(OURS, publication=PublicationState("ours", 5, 8, tables={7: Member(7, 9, "t")}))
    assert lineage.altered_since(OURS) == ()
    lineage.published(added.publication)
    assert lineage.altered_since(added) == (), "we did it ourselves"
    assert [change.table for change in lineage.altered_since(OURS)] == [None, 7], "it is out again, and another one"
    told = replace(added, options={"proto_version": "2"})
    assert [change.table for change in lineage.altered_since(told)] == [None]
    lineage.settled(told)
    assert lineage.altered_since(told) == ()
