"""The catalog: a handle lives once and by its table; what was listed can be told, from memory, disk and afar.

Strategy: random records, lawful or not, against a model that knows each handle's life and remembers for every version
what was listed then. The log is kept short, so that compactions happen all the time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.catalog import NEXT_LIFE, Catalog, CatalogReader, CatalogState
from storage.catalog_records import Born, Ended, Life, Ready, Rebased, Record, Shape, Snapshot, Succeeded, encode_record
from storage.errors import CorruptRecord, Misuse, SharedDiskFault, UnknownFormat
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.limits import LOG_HANDLES_KEPT
from storage.memory_disk import MemoryDisk
from storage.offset import LogOffset
from storage.record_log import RecordLog

SNAPSHOT = Snapshot(700, 705, (701,), 1_000)
AT = LogOffset(2_000, 3)
BYTES_MAX = 300

picks = st.tuples(st.integers(0, 5), st.integers(0, 30))
"""Mostly a handle that makes the record lawful, else any."""
names = st.none() | st.sampled_from(["orders", "items"])


def born(handle: str, log: int, name: str | None = None) -> Born:
    return Born(handle, log, name, {"table": handle}, SNAPSHOT)


@dataclass
class Known:
    """A handle of the model."""

    log: int
    name: str | None
    life: Life
    successor: str | None = None


class CatalogLife(RuleBasedStateMachine):
    """Any record at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.catalog = Catalog(self.disk, bytes_max=BYTES_MAX)
        self.reader = CatalogReader(self.disk)
        self.known: dict[str, Known] = {}
        self.next_log, self.kept_from = 1, 0
        self.listed = [frozenset[str]()]

    def life(self, handle: str) -> Life:
        return self.known[handle].life if handle in self.known else Life.UNBORN

    def pick(self, pick: tuple[int, int], *lives: Life) -> str:
        wild, number = pick
        fitting = [handle for handle, known in self.known.items() if known.life in lives]
        if wild == 0 or (lives and not fitting):
            return f"h{number}"
        return fitting[number % len(fitting)] if lives else f"h{len(self.known)}"

    def append(self, *records: Record, lawful: bool) -> bool:
        """Whether the records are taken must be what the model says."""
        if not lawful:
            version = self.catalog.state.version
            with pytest.raises(Misuse):
                self.catalog.append(*records)
            assert self.catalog.state.version == version
        else:
            assert self.catalog.append(*records) == len(self.listed) - 1 + len(records)
        return lawful

    def is_told(self, handle: str) -> bool:
        """Whether the catalog still knows it when a record comes: what ended long ago is forgotten by a compaction."""
        state = self.catalog.state
        if not self.catalog._log.is_long:
            return handle in state.shapes
        return any(isinstance(one, Shape) and one.handle == handle for one in state.compacted(self.catalog._keep_from))

    def remember(self) -> None:
        self.listed.append(frozenset(handle for handle, known in self.known.items() if known.life is Life.READY))

    @rule(pick=picks, name=names, skipped=st.integers(-1, 2))
    def born(self, pick: tuple[int, int], name: str | None, skipped: int) -> None:
        handle = self.pick(pick)
        log = self.next_log + skipped
        is_free = name is None or all(k.life is Life.ENDED for k in self.known.values() if k.name == name)
        if self.append(born(handle, log, name), lawful=handle not in self.known and skipped >= 0 and is_free):
            self.known[handle] = Known(log, name, Life.BORN)
            self.next_log = log + 1
            self.remember()

    @rule(pick=picks)
    def ready(self, pick: tuple[int, int]) -> None:
        handle = self.pick(pick, Life.BORN)
        if self.append(Ready(handle, 0), lawful=self.life(handle) is Life.BORN):
            self.known[handle].life = Life.READY
            self.remember()

    @rule(pick_old=picks, pick_new=picks, wrong_log=st.integers(0, 9).map(lambda number: number == 0))
    def rebased(self, pick_old: tuple[int, int], pick_new: tuple[int, int], wrong_log: bool) -> None:
        old, new = self.pick(pick_old, Life.READY), self.pick(pick_new)
        log = self.known[old].log + wrong_log if old in self.known else 1
        lawful = self.life(old) is Life.READY and new not in self.known and not wrong_log
        if self.append(Rebased(log, old, new, 1, AT, "fold"), lawful=lawful):
            self.known[old].life = Life.REBASED
            self.known[new] = Known(log, self.known[old].name, Life.READY)
            self.remember()

    @rule(pick=picks)
    def ended(self, pick: tuple[int, int]) -> None:
        handle = self.pick(pick, Life.BORN, Life.READY, Life.REBASED)
        assume(self.life(handle) is not Life.ENDED)  # see `given_up`
        lawful = self.life(handle) in {Life.BORN, Life.READY, Life.REBASED}
        if self.append(Ended(handle, AT, "dropped"), lawful=lawful):
            was, self.known[handle].life = self.known[handle].life, Life.ENDED
            for other in self.known.values():
                if was is not Life.REBASED and other.log == self.known[handle].log:
                    other.life = Life.ENDED
            self.remember()

    @rule(pick=picks)
    def given_up(self, pick: tuple[int, int]) -> None:
        handle = self.pick(pick, Life.ENDED)
        known = self.known.get(handle)
        assume(known is not None and known.life is Life.ENDED)
        assert known is not None
        last = [other for other, one in self.known.items() if known.name is not None and one.name == known.name][-1:]
        if self.append(
            Ended(handle, AT, "removed"), lawful=self.is_told(handle) and last == [handle] and known.successor is None
        ):
            self.remember()

    @rule(pick_old=picks, pick_new=picks)
    def succeeded(self, pick_old: tuple[int, int], pick_new: tuple[int, int]) -> None:
        old, new = self.pick(pick_old, Life.ENDED), self.pick(pick_new, Life.BORN, Life.READY)
        lawful = self.life(old) is Life.ENDED and self.life(new) in {Life.BORN, Life.READY} and self.is_told(old)
        if lawful and self.known[old].successor is not None:
            lawful = False
        if self.append(Succeeded(old, new), lawful=lawful):
            self.known[old].successor = new
            self.remember()

    @rule(pick_old=picks, pick_new=picks)
    def ended_and_succeeded(self, pick_old: tuple[int, int], pick_new: tuple[int, int]) -> None:
        old, new = self.pick(pick_old, Life.BORN, Life.READY), self.pick(pick_new)
        # The end of a rebased handle is not its log's; that of an ended one is `given_up`.
        assume(self.life(old) not in {Life.REBASED, Life.ENDED})
        lawful = self.life(old) in {Life.BORN, Life.READY} and new not in self.known
        name = self.known[old].name if old in self.known else None
        records = (Ended(old, AT, "ddl"), born(new, self.next_log, name), Succeeded(old, new))
        if self.append(*records, lawful=lawful):
            log = self.known[old].log
            for other in self.known.values():
                if other.log == log:
                    other.life = Life.ENDED
            self.remember()
            self.known[new] = Known(self.next_log, name, Life.BORN)
            self.known[old].successor = new
            self.next_log += 1
            self.remember()
            self.remember()

    @rule(back=st.integers(0, 10))
    def forget(self, back: int) -> None:
        self.kept_from = max(self.kept_from, len(self.listed) - 1 - back)
        self.catalog.forget_below(len(self.listed) - 1 - back)

    @rule()
    def open_again(self) -> None:
        self.catalog = Catalog(self.disk, bytes_max=BYTES_MAX)

    @invariant()
    def all_say_the_same(self) -> None:
        self.reader.refresh()
        for state in (self.catalog.state, self.reader.state):
            assert state.version == len(self.listed) - 1
            assert state.kept_from <= self.kept_from
            assert state.next_log == self.next_log
            for version in range(state.kept_from, state.version + 1):
                assert state.listed_at(version) == self.listed[version]
            for handle, known in self.known.items():
                shape = state.shapes.get(handle)
                assert shape is not None or (known.life is Life.ENDED and handle in state.tombstones)
                if shape is not None:
                    assert (shape.log, shape.name, shape.life) == (known.log, known.name, known.life)
                    assert shape.successor == known.successor
            assert {shape.handle for shape in state.living()} == {
                handle for handle, known in self.known.items() if known.life is not Life.ENDED
            }
            for known in self.known.values():
                newest = [handle for handle, other in self.known.items() if other.log == known.log][-1]
                if known.life is not Life.ENDED:
                    shape = state.newest_of(known.log)
                    assert shape is not None
                    assert shape.handle == newest
                if known.name is not None:  # the name's last shape is known for ever: a successor may come
                    holder = state.named(known.name)
                    assert holder is not None
                    assert holder.handle == [h for h, other in self.known.items() if other.name == known.name][-1]


TestCatalogLife = CatalogLife.TestCase


def test_the_table_of_lives_is_complete() -> None:
    """Each life but the first is reached, and each but the last is left."""
    assert {life for life, _ in NEXT_LIFE} == set(Life)
    assert set(NEXT_LIFE.values()) == set(Life) - {Life.UNBORN}


def test_a_version_is_listed_before_and_after_a_rebase() -> None:
    catalog = Catalog(MemoryDisk())
    catalog.append(born("a", 1), Ready("a", 0))
    rebased = catalog.append(Rebased(1, "a", "b", 1, AT, "fold"))
    ended = catalog.append(Ended("b", AT, "dropped"))
    state = catalog.state
    assert [sorted(state.listed_at(version)) for version in range(ended + 1)] == [[], [], ["a"], ["b"], []]
    assert state.shapes["a"].floor == AT
    assert state.shapes["a"].listed_until == rebased
    assert state.shapes["a"].life is Life.ENDED  # with its log


@pytest.mark.parametrize("version", [-1, 3])
def test_a_version_out_of_reach_is_refused(version: int) -> None:
    catalog = Catalog(MemoryDisk())
    catalog.append(born("a", 1), Ready("a", 0))
    with pytest.raises(Misuse, match="listed then"):
        catalog.state.listed_at(version)


def test_compaction_bounds_the_log_and_forgets_no_number() -> None:
    disk = MemoryDisk()
    catalog = Catalog(disk, bytes_max=5_000)
    for log in range(1, 200):
        handle = f"h{log}"
        version = catalog.append(born(handle, log), Ready(handle, 0), Ended(handle, AT, "idle"))
        catalog.forget_below(version)
    assert len(catalog.state.shapes) < 30
    catalog = Catalog(disk)
    assert catalog.state.next_log == 200
    assert catalog.state.version == 3 * 199
    for handle in ("h1", "h100", "h199"):
        with pytest.raises(Misuse):
            catalog.append(born(handle, 200))
    with pytest.raises(Misuse):
        catalog.append(born("h200", 199))


def test_a_log_that_is_folded_for_years_has_few_handles() -> None:
    disk = MemoryDisk()
    catalog = Catalog(disk, bytes_max=5_000)
    catalog.append(born("h0", 1, "orders"), Ready("h0", 0))
    for number in range(1, 500):
        version = catalog.append(Rebased(1, f"h{number - 1}", f"h{number}", number, AT, "fold"))
        catalog.forget_below(version - 3)
        assert catalog.state.listed_at(version - 1) == {f"h{number - 1}"}
        newest = [f"h{one}" for one in range(max(0, number + 1 - LOG_HANDLES_KEPT), number + 1)]
        assert [one.handle for one in catalog.state.handles_of(1)][-len(newest) :] == newest
    assert len(catalog.state.shapes) < 100
    for state in (catalog.state, Catalog(disk).state):
        assert state.newest_of(1) == state.named("orders") == state.shapes["h499"]
        assert "h0" in state.tombstones
    with pytest.raises(Misuse):
        catalog.append(Rebased(1, "h499", "h0", 500, AT, "fold"))
    catalog.append(Ended("h499", AT, "dropped"))
    assert not catalog.state.living()


class Watched(dict[Any, Any]):
    """A part of a state, at whose change another thread looks."""

    def __init__(self, values: Any, look: Callable[[], None]) -> None:
        super().__init__(values)
        self._look = look

    def update(self, *others: Any, **more: Any) -> None:
        self._look()
        super().update(*others, **more)
        self._look()


def test_a_log_that_lives_has_a_newest_handle_whenever_somebody_looks() -> None:
    """Whoever sweeps takes a log without one for forgotten, and removes its files."""
    catalog = Catalog(MemoryDisk())
    catalog.append(born("a", 1, "orders"), Ready("a", 0))
    state, looks = catalog.state, []

    def look() -> None:
        looks.append(state.newest_of(1) is not None and state.named("orders") is not None)
        assert len(state.handles_of(1)) in {1, 2}

    for part in ("shapes", "_by_name", "_by_log"):
        setattr(state, part, Watched(getattr(state, part), look))
    catalog.append(Rebased(1, "a", "b", 1, AT, "fold"))
    assert len(looks) == 6
    assert all(looks)


def test_a_shape_that_a_name_waits_to_replace_is_remembered() -> None:
    """Its successor failed after it was born, and its files are needed until one is complete."""
    catalog = Catalog(MemoryDisk(), bytes_max=1)
    catalog.append(born("a", 1, "orders"), Ready("a", 0), Ended("a", AT, "ddl"))
    for log, handle in enumerate(("b", "c", "d"), start=2):
        before = chr(ord(handle) - 1)
        catalog.forget_below(catalog.append(born(handle, log, "orders"), Succeeded(before, handle)))
        catalog.forget_below(catalog.append(Ended(handle, AT, "birth")))
        assert catalog.state.shapes["a"].life is Life.ENDED
    assert "b" in catalog.state.tombstones
    catalog.forget_below(catalog.append(born("e", 5, "orders"), Succeeded("d", "e"), Ready("e", 0)))
    catalog.append(Rebased(5, "e", "f", 1, AT, "fold"))
    assert {"a", "b", "c", "d"} <= catalog.state.tombstones.keys()


def test_nothing_happens_before_it_is_durable() -> None:
    disk = MemoryDisk()
    catalog = Catalog(FaultyDisk(disk, Script(Rule("sync", Fault(), path="catalog.000001"))))
    reader = CatalogReader(disk)
    with pytest.raises(SharedDiskFault):
        catalog.append(born("a", 1, "orders"))
    reader.refresh()
    for state in (catalog.state, reader.state):
        assert (state.version, state.next_log, dict(state.shapes)) == (0, 1, {})
        assert state.named("orders") is None
    assert catalog.append(born("a", 1, "orders")) == 1


def test_an_append_is_all_or_nothing_when_a_record_is_unlawful() -> None:
    catalog = Catalog(MemoryDisk())
    with pytest.raises(Misuse):
        catalog.append(born("a", 1), Ready("b", 0))
    assert catalog.append(born("a", 1)) == 1


@pytest.mark.parametrize(
    ("payloads", "error"),
    [
        ([encode_record(2, born("a", 1))], CorruptRecord),
        ([encode_record(1, Ready("a", 0))], CorruptRecord),
        ([encode_record(1, born("a", 1)), encode_record(1, Ready("a", 0))], CorruptRecord),
        ([b'{"type":"forked","version":1}'], UnknownFormat),
    ],
)
def test_records_that_contradict_each_other_are_refused(payloads: list[bytes], error: type[Exception]) -> None:
    disk = MemoryDisk()
    RecordLog(disk, "catalog").append(payloads)
    with pytest.raises(error):
        Catalog(disk)
    reader = CatalogReader(disk)
    for _ in range(2):  # it does not go on with half of them
        with pytest.raises(error):
            reader.refresh()


def test_a_state_can_be_empty() -> None:
    state = CatalogState()
    assert state.listed_at(0) == frozenset()
    assert state.newest_of(1) is state.named("orders") is None


def test_a_name_whose_successor_nobody_awaits_any_more_is_free() -> None:
    state = CatalogState()
    state.apply(Born("a-1", 1, "orders", {}, SNAPSHOT))
    state.apply(Ended("a-1", LogOffset(5, 1), "columns_changed"))
    state.apply(Ended("a-1", LogOffset(5, 1), "removed"))
    ended = state.shapes["a-1"]
    assert (ended.life, ended.reason, ended.ended_at) == (Life.ENDED, "removed", LogOffset(5, 1))
    state.apply(Born("b-2", 2, "orders", {}, SNAPSHOT))
    state.apply(Succeeded("a-1", "b-2"))
    with pytest.raises(Misuse):
        state.apply(Ended("a-1", LogOffset(5, 1), "removed"))


def test_a_disk_that_cannot_read_what_it_failed_to_write_keeps_nothing_from_being_written_elsewhere() -> None:
    disk, first = MemoryDisk(), "catalog.000001"
    rules = Rule("sync", Fault(), path=first, first=2), Rule("read", Fault(), path=first, calls=None)
    catalog = Catalog(FaultyDisk(disk, Script(*rules)))
    catalog.append(born("a-1", 1))
    with pytest.raises(SharedDiskFault):
        catalog.append(born("b-1", 2))
    catalog.append(born("b-1", 2))
    assert list(Catalog(disk.crash_image(lambda _: 0)).state.shapes) == ["a-1", "b-1"]
