"""Names of files: what was named is parsed back, names sort as offsets do, and other names are nobody's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import layout
from storage.layout import SegmentName
from storage.offset import OP_INFINITE, OP_MAX, TX_MAX, LogOffset

offsets = st.builds(LogOffset, st.integers(0, TX_MAX), st.integers(0, OP_MAX) | st.just(OP_INFINITE))
live = st.builds(SegmentName, offsets, st.none(), st.just(0))
compacted = st.builds(SegmentName, offsets, offsets, st.integers(1, 10**6))


@given(live | compacted)
def test_segments_round_trip(name: SegmentName) -> None:
    assert SegmentName.parse(str(name)) == name
    assert layout.segment_path(7, name) == f"logs/7/{name}"


@given(st.lists(live, max_size=8))
def test_segments_sort_as_their_offsets(names: list[SegmentName]) -> None:
    assert sorted(names, key=str) == sorted(names, key=lambda name: name.first)


@given(offsets, offsets)
def test_a_compacted_segment_stands_behind_the_live_one_of_its_first_row(first: LogOffset, last: LogOffset) -> None:
    assert str(SegmentName(first, last, 1)) < str(SegmentName(first, None, 0))  # "-" < "."


@pytest.mark.parametrize(
    "name",
    [
        "",
        "log.json",
        "1_0.segment",
        "0000000000000001_0000000000000000",
        "0000000000000001_0000000000000000.segment.tmp",
        "0000000000000001_000000000000000G.segment",
        "0000000000000001_000000000000000A.segment",
        "0000000000000001_0000000000000000-0000000000000002_0000000000000000.segment",
        "0000000000000001_0000000000000000.1.segment",
        "00000000000000001_0000000000000000.segment",
        "0000000000000001_0000000000000000.segment\n",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert SegmentName.parse(name) is None


@given(st.integers(0, 10**20 - 1))
def test_journals(number: int) -> None:
    folder, _, name = layout.journal_path(number).rpartition("/")
    assert folder == layout.JOURNAL
    assert layout.journal_number(name) == number
    for path in (layout.journal_path(number), layout.damaged_journal_path(number), layout.doubts_path(number)):
        assert layout.used_journal_number(path.rpartition("/")[2]) == number
        assert layout.used_journal_number(path) == 0


@given(st.integers(0, 10**9))
def test_bases(number: int) -> None:
    folder, _, name = layout.base_path(7, number).rpartition("/")
    assert folder == layout.log_folder(7)
    assert layout.base_number(name) == number


@given(st.from_regex(r"\A[A-Za-z0-9_.-]{1,30}\Z"))
def test_leases(reader: str) -> None:
    folder, _, name = layout.lease_path(7, reader).rpartition("/")
    assert folder == layout.log_folder(7)
    assert layout.lease_reader(name) == reader


@pytest.mark.parametrize("name", ["", "7.journal", "00000000000000000007.journal.tmp", "base", "x.base", "0.base.tmp"])
def test_other_names_are_nobodys(name: str) -> None:
    assert layout.journal_number(name) is None
    assert layout.base_number(name) is None
    assert layout.lease_reader(name) is None


@given(live | compacted, st.integers(0, 99))
def test_a_name_is_one_thing(segment: SegmentName, number: int) -> None:
    """No file is taken for two."""
    names = [
        str(segment),
        layout.base_path(1, number).rpartition("/")[2],
        layout.journal_path(number).rpartition("/")[2],
        layout.lease_path(1, "reader").rpartition("/")[2],
        layout.LOG_FACTS,
        f"{segment}{layout.TEMPORARY_SUFFIX}",
    ]
    parsers = (SegmentName.parse, layout.base_number, layout.journal_number, layout.lease_reader)
    meanings = [sum(parse(name) is not None for parse in parsers) for name in names]
    assert meanings == [1, 1, 1, 1, 0, 0]
