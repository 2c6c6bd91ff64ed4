"""Decisions and records of the lake: cuts, versions and pieces of a log, without a lake around them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.catalog import CatalogState
from storage.catalog_records import Born, Ended, Ready, Snapshot, Succeeded
from storage.lake.cuts import Cut, Loaded, decide
from storage.lake.lake_layout import (
    changes_joined,
    changes_name,
    changes_order,
    is_misnamed,
    record_number,
    view_cut,
)
from storage.lake.records import create_once, read_record, record_numbers
from storage.lake.versions import SideVersion, TableVersion, Version
from storage.memory_disk import MemoryDisk
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressRecord

SLOT = Incarnation(7, 1, 1)
FIELDS = {"version": 1, "columns": [["id", 1, 23, -1]], "key": ["id"], "log": "full"}


def record(lsn: int, version: int, incarnation: Incarnation = SLOT) -> ProgressRecord:
    return ProgressRecord(incarnation, lsn, version, lsn)


def catalog_with(*names: str, birth: int = 100) -> CatalogState:
    state = CatalogState()
    for name in names:
        log = state.next_log
        state.apply(Born(f"h{log}", log, name, FIELDS, Snapshot(1, 1, (), birth)))
        state.apply(Ready(f"h{log}", 0))
    return state


def loads(*logs: int) -> dict[int, Loaded]:
    return {log: Loaded(log, 1, SNAPSHOT_END) for log in logs}


def cut_of(lsn: int, catalog: CatalogState, last: Cut | None = None, *logs: int) -> Cut:
    decision = decide(last, [record(lsn, catalog.version)], catalog, loads(*(logs or (1, 2, 3))))
    assert decision.cut is not None
    return decision.cut


def test_the_first_cut_begins_at_the_bases() -> None:
    cut = cut_of(500, catalog_with("a", "b"))
    assert [(table.name, table.after, table.begins) for table in cut.tables] == [
        ("a", SNAPSHOT_END, True),
        ("b", SNAPSHOT_END, True),
    ]
    assert {table.upto for table in cut.tables} == {LogOffset(499, OP_INFINITE)}


def test_the_next_cut_continues_and_the_same_g_gives_none() -> None:
    catalog = catalog_with("a")
    first = cut_of(500, catalog)
    second = cut_of(700, catalog, first)
    assert (second.number, second.tables[0].after) == (2, first.tables[0].upto)
    assert not second.tables[0].begins
    assert decide(second, [record(700, catalog.version), record(500, catalog.version)], catalog, loads(1)).cut is None


def test_a_shape_waits_for_its_birth_and_its_load() -> None:
    catalog = catalog_with("a", "b")
    catalog.apply(Born("late", 3, "late", FIELDS, Snapshot(1, 1, (), 900)))
    catalog.apply(Ready("late", 0))
    assert [table.name for table in cut_of(500, catalog).tables] == ["a", "b"]
    assert [table.name for table in cut_of(1000, catalog, None, 1, 3).tables] == ["a", "late"]


def test_a_base_that_is_ahead_of_g_waits_for_it() -> None:
    """A fold may have rows of transactions above G, which no version at G may show; a log that goes on is read on."""
    catalog = catalog_with("a", "b")
    ahead = {1: Loaded(1, 1, LogOffset(600, 5)), 2: Loaded(2, 1, SNAPSHOT_END)}
    first = decide(None, [record(500, catalog.version)], catalog, ahead).cut
    assert first is not None
    assert [table.name for table in first.tables] == ["b"]
    second = decide(first, [record(700, catalog.version)], catalog, ahead).cut
    assert second is not None
    assert [(table.name, table.after, table.begins) for table in second.tables] == [
        ("a", LogOffset(600, 5), True),
        ("b", LogOffset(499, OP_INFINITE), False),
    ]
    folded = ahead | {2: Loaded(2, 1, LogOffset(900, 1))}
    third = decide(second, [record(800, catalog.version)], catalog, folded).cut
    assert third is not None
    assert [table.name for table in third.tables] == ["a", "b"]


def test_an_ended_shape_holds_the_cut_at_the_last_g_that_lists_it() -> None:
    catalog = catalog_with("a", "b")
    first, listed = cut_of(500, catalog), catalog.version
    catalog.apply(Ended("h2", LogOffset(650, 0), "columns_changed"))
    records = [record(800, catalog.version), record(600, listed), record(500, listed)]
    decision = decide(first, records, catalog, loads(1, 2))
    assert decision.cut is not None
    assert decision.cut.lsn == 600
    assert "b" in decision.waits_for

    held = decide(decision.cut, records, catalog, loads(1, 2))
    assert held.cut is None
    assert "columns_changed" in held.waits_for["b"]

    catalog.apply(Born("h3", 3, "b", FIELDS, Snapshot(1, 1, (), 700)))
    catalog.apply(Ready("h3", 0))
    catalog.apply(Succeeded("h2", "h3"))
    freed = decide(decision.cut, [record(900, catalog.version), *records], catalog, loads(1, 2, 3))
    assert freed.cut is not None
    table = freed.cut.table("b")
    assert table is not None
    assert (table.log, table.begins, table.after) == (3, True, SNAPSHOT_END)
    assert not freed.waits_for


def test_a_table_that_is_waited_for_is_looked_for_once_in_each_catalog() -> None:
    """It may take hours, and a step comes every second: not each G of that time is weighed again."""
    catalog = catalog_with("a", "b")
    last = cut_of(500, catalog)
    catalog.apply(Ended("h1", LogOffset(600, 0), "altered"))
    asked = list[int]()

    def may_cut(log: int, _: LogOffset) -> bool:
        asked.append(log)
        return True

    records = [record(lsn, catalog.version) for lsn in range(700, 5700)]
    decision = decide(last, reversed(records), catalog, loads(1, 2), may_cut=may_cut)
    assert (decision.cut, decision.waits_for) == (None, {"a": "its shape ended (altered)"})
    assert len(asked) <= 2


def test_a_removed_shape_holds_nothing() -> None:
    catalog = catalog_with("a", "b")
    first = cut_of(500, catalog)
    catalog.apply(Ended("h2", LogOffset(650, 0), "removed"))
    assert [table.name for table in cut_of(800, catalog, first).tables] == ["a"]


def test_no_cut_where_a_transaction_is_folded() -> None:
    catalog = catalog_with("a")
    records = [record(800, catalog.version), record(700, catalog.version)]
    decision = decide(None, records, catalog, loads(1), may_cut=lambda _, upto: upto.tx < 750)
    assert decision.cut is not None
    assert decision.cut.lsn == 700


def test_another_life_of_the_slot_is_compared_by_nobody() -> None:
    catalog = catalog_with("a")
    first = cut_of(500, catalog)
    catalog.apply(Ended("h1", LogOffset(500, 0), "another_timeline"))
    catalog.apply(Born("h2", 2, "a", FIELDS, Snapshot(1, 1, (), 40)))
    catalog.apply(Ready("h2", 0))
    catalog.apply(Succeeded("h1", "h2"))
    other = Incarnation(7, 2, 1)
    decision = decide(first, [record(60, catalog.version, other), record(500, 2)], catalog, loads(1, 2))
    assert decision.cut is not None
    assert (decision.cut.lsn, decision.cut.incarnation) == (60, other)


def test_cuts_and_versions_are_read_as_they_were_written() -> None:
    cut = cut_of(500, catalog_with("a", "b"))
    assert Cut.from_json(cut.to_json()) == cut
    sides = (SideVersion(1, 2), None)
    tables = tuple(
        TableVersion(f"t{place}", 1, 2, "h", LogOffset(4, OP_INFINITE), side, SideVersion(3, 4), 5)
        for place, side in enumerate(sides)
    )
    version = Version(1, SLOT, 500, 7, tables)
    assert Version.from_json(version.to_json()) == version


def test_a_record_is_made_once_and_whole() -> None:
    disk = MemoryDisk()
    assert create_once(disk, "cuts/000000000001.json", {"a": 1}, "w1")
    assert not create_once(disk, "cuts/000000000001.json", {"a": 2}, "w2")
    assert read_record(disk, "cuts/000000000001.json") == {"a": 1}
    assert record_numbers(disk, "cuts") == [1]
    assert read_record(disk, "cuts/000000000002.json") is None


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62))
def test_names_of_changes_sort_as_their_offsets(first: int, second: int, third: int) -> None:
    low, middle, high = sorted([first, second, third])
    offsets = [LogOffset(one, OP_INFINITE) for one in (low, middle, high)]
    older, newer = changes_name(offsets[0], offsets[1], "x"), changes_name(offsets[1], offsets[2], "y")
    assert low == middle or older < newer
    assert changes_joined([older, newer], None, "y") == changes_name(offsets[0], offsets[2], "y")


@given(st.lists(st.tuples(st.integers(2, 2**62), st.booleans()), min_size=1, max_size=9, unique_by=lambda one: one[0]))
def test_files_of_changes_are_in_order_whatever_their_names_say_of_where_they_begin(
    ends: list[tuple[int, bool]],
) -> None:
    """Those of old lakes begin below all others where a log took another's place."""
    names, low = list[str](), LogOffset(1, OP_INFINITE)
    for end, is_misnamed_one in sorted(ends):
        upto = LogOffset(end, OP_INFINITE)
        names.append(changes_name(SNAPSHOT_END if is_misnamed_one else low, upto, f"x{end}"))
        low = upto
    assert sorted(sorted(names), key=changes_order) == names
    rewritten = [changes_joined([name], before, "y") for before, name in pairwise([None, *names]) if name is not None]
    assert sorted(rewritten) == sorted(rewritten, key=changes_order)
    assert not any(is_misnamed(name, before) for before, name in pairwise(rewritten))
    marked = [place for place, (_, is_misnamed_one) in enumerate(sorted(ends)) if is_misnamed_one and place]
    assert marked == [place for place in range(1, len(names)) if is_misnamed(names[place], names[place - 1])]


@pytest.mark.parametrize(("name", "number"), [("000000000012.json", 12), ("x.json", None), ("1.json.w.tmp", None)])
def test_names_of_records(name: str, number: int | None) -> None:
    assert record_number(name) == number


def test_names_of_views() -> None:
    assert view_cut("state.7", "state") == 7
    assert view_cut("state.7", "changes") is None
    assert view_cut("state.7.w1.tmp", "state") is None
