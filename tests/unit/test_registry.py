"""The registry against a plain model that remembers every handle, over restarts, crashes and a clock that jumps.

The catalog's file is kept short, so that compactions happen all the time and old handles are forgotten.
"""

import re
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shapes.definition import Definition
from shapes.errors import DefinitionUnreadable, InvalidShapeName, ShapeNameTaken, UnknownShape
from shapes.registry import EXPIRED, REMOVED, Registry
from storage.catalog import Catalog
from storage.catalog_records import Born, Ended, Life, Ready, Snapshot
from storage.errors import SharedDiskFault
from storage.faulty_disk import Fault, FaultyDisk, Rule, Script
from storage.inodes import Choose
from storage.memory_disk import MemoryDisk, luckiest, strictest
from storage.offset import LogOffset
from tests.unit.table_strategies import column, defined, table

SNAPSHOT = Snapshot(700, 705, (701,), 1_000)
AT = LogOffset(2_000, 3)
BYTES_MAX = 2_000
ITEMS = table(column("id", 1, pk_index=0), column("v", 2))
DEFINITIONS = [defined(ITEMS), defined(ITEMS, where="v = 'x'"), defined(ITEMS, columns="id")]
IDLE_SECONDS = 10
LIVING = {Life.BORN, Life.READY}

picks = st.integers(0, 30)


@dataclass
class Known:
    """A handle of the model."""

    handle: str
    log: int
    definition: Definition
    name: str | None
    life: Life = Life.BORN
    reason: str | None = None
    successor: str | None = None


@dataclass
class Use:
    """Of a log."""

    at: float
    readers: int = 0


class RegistryLife(RuleBasedStateMachine):
    """What the rest of the process does with its shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.clock, self.now = 1_000_000, 0.0
        self.known: dict[str, Known] = {}
        self.uses: dict[int, Use] = {}
        self.complete: set[int] = set()
        """Logs that were ever ready."""
        self.start()

    def start(self) -> None:
        self.catalog = Catalog(self.disk, bytes_max=BYTES_MAX)
        self.registry = Registry(self.catalog, lambda: self.clock, self.now)

    def pick(self, number: int, *lives: Life) -> Known | None:
        fitting = [known for known in self.known.values() if known.life in lives]
        return fitting[number % len(fitting)] if fitting else None

    def newest(self) -> dict[int, Known]:
        """Of the logs that live, by log."""
        return {known.log: known for known in self.known.values() if known.life in LIVING}

    def awaiting(self) -> list[Known]:
        last = {known.name: known for known in self.known.values() if known.name}.values()
        return [each for each in last if each.life is Life.ENDED and not each.successor and each.reason != REMOVED]

    @rule(definition=st.sampled_from(DEFINITIONS), name=st.none() | st.sampled_from(["orders", "items"]))
    def born(self, definition: Definition, name: str | None) -> None:
        taken = {known.name for known in [*self.newest().values(), *self.awaiting()] if known.name}
        if name in taken:
            with pytest.raises(ShapeNameTaken):
                self.registry.born(definition, SNAPSHOT, self.now, name=name)
        else:
            self.take(definition, name)

    @rule(definition=st.sampled_from(DEFINITIONS), pick=picks)
    def born_as_successor(self, definition: Definition, pick: int) -> None:
        if waiting := self.awaiting():
            old = waiting[pick % len(waiting)]
            old.successor = self.take(definition, old.name, succeeds=old.handle)

    @rule(name=st.sampled_from(["orders", "items", "nobody"]))
    def withdrawn(self, name: str) -> None:
        waiting = [known for known in self.awaiting() if known.name == name]
        assert self.registry.withdrawn(name) == bool(waiting)
        for old in waiting:  # a successor that nobody ever saw alive
            shape = self.catalog.state.named(name)
            assert shape is not None
            assert shape.handle not in self.known
            old.successor = shape.handle
            self.known[shape.handle] = Known(shape.handle, shape.log, old.definition, name, Life.ENDED, REMOVED)
            self.uses[shape.log] = Use(self.now)

    def take(self, definition: Definition, name: str | None, succeeds: str | None = None) -> str:
        entry = self.registry.born(definition, SNAPSHOT, self.now, name=name, succeeds=succeeds)
        assert entry.handle not in self.known, "a handle is given out once"
        assert re.fullmatch(rf"{definition.identity[:16]}-\d+", entry.handle)
        assert entry.log > max((known.log for known in self.known.values()), default=0)
        self.known[entry.handle] = Known(entry.handle, entry.log, definition, name)
        self.uses[entry.log] = Use(self.now)
        return entry.handle

    @rule(pick=picks)
    def ready(self, pick: int) -> None:
        if known := self.pick(pick, Life.BORN):
            assert self.registry.ready(known.handle, 1).shape.life is Life.READY
            known.life = Life.READY
            self.complete.add(known.log)

    @rule(pick=picks)
    def rebased(self, pick: int) -> None:
        if known := self.pick(pick, Life.READY):
            new = self.registry.rebased(known.handle, 2, AT, "fold")
            assert new.handle not in self.known
            known.life = Life.REBASED
            self.known[new.handle] = Known(new.handle, known.log, known.definition, known.name, Life.READY)

    @rule(pick=picks, reason=st.sampled_from([REMOVED, EXPIRED, "column_gone"]))
    def ended(self, pick: int, reason: str) -> None:
        if known := self.pick(pick, Life.BORN, Life.READY, Life.REBASED):
            self.registry.ended(known.handle, AT, reason)
            others = [each for each in self.known.values() if each.log == known.log and each.life is not Life.ENDED]
            for each in others if known.life in LIVING else [known]:
                each.life, each.reason = Life.ENDED, reason

    @rule(seconds=st.integers(0, 8), microseconds=st.integers(-50, 50))
    def wait(self, seconds: int, microseconds: int) -> None:
        self.now += seconds
        self.clock += microseconds

    @rule(pick=picks)
    def touched(self, pick: int) -> None:
        if known := self.pick(pick, *LIVING, Life.REBASED):
            self.registry.touch(known.handle, self.now)
            self.uses[known.log].at = self.now

    @rule(pick=picks)
    def entered(self, pick: int) -> None:
        if known := self.pick(pick, *LIVING, Life.REBASED):
            self.registry.enter(known.handle, self.now)
            self.uses[known.log].readers += 1
            self.uses[known.log].at = self.now

    @rule(pick=picks)
    def left(self, pick: int) -> None:
        held = [known for known in self.known.values() if self.uses[known.log].readers and known.life is not Life.ENDED]
        if held:
            known = held[pick % len(held)]
            self.registry.leave(known.handle, self.now)
            self.uses[known.log].readers -= 1
            self.uses[known.log].at = self.now

    @rule(back=st.integers(0, 10))
    def forget(self, back: int) -> None:
        self.catalog.forget_below(max(0, self.catalog.state.version - back))

    @rule(lucky=st.booleans(), clock=st.integers(0, 1_000_100))
    def start_again(self, lucky: bool, clock: int) -> None:
        self.disk = self.disk.crash_image(luckiest if lucky else strictest)
        self.clock = clock
        self.uses = {log: Use(self.now) for log in self.uses}
        self.start()

    @invariant()
    def all_is_found(self) -> None:
        living = self.newest()
        assert [entry.handle for entry in self.registry.living()] == [living[log].handle for log in sorted(living)]
        for handle, known in self.known.items():
            entry = self.registry.find(handle)
            assert entry is not None or (known.life is Life.ENDED and handle in self.catalog.state.tombstones)
            if entry is not None:
                assert (entry.definition, entry.log, entry.shape.name) == (known.definition, known.log, known.name)
                assert (entry.shape.life, entry.shape.successor) == (known.life, known.successor)
        for definition in DEFINITIONS:
            same = [log for log, known in living.items() if known.definition == definition]
            found = self.registry.defined(definition)
            assert (found and found.log) == max(same, default=None)
        for name in ("orders", "items"):
            has = [known.handle for known in living.values() if known.name == name]
            holder = self.registry.named(name)
            assert ([holder.handle] if holder else []) == has
        assert {entry.handle for entry in self.registry.awaiting()} == {known.handle for known in self.awaiting()}

    @invariant()
    def replacements_live(self) -> None:
        living = self.newest()
        for handle, known in self.known.items():
            entry = self.registry.replacement(handle)
            assert entry is None or living[entry.log].handle == entry.handle
            if self.registry.find(handle) is None:
                assert entry is None, "what is forgotten has no replacement"
            elif known.log in living:
                assert entry is not None
                assert entry.log == known.log
            elif known.successor is not None and self.registry.find(known.successor) is not None:
                following = self.registry.replacement(known.successor)
                assert (entry and entry.handle) == (following and following.handle)

    @invariant()
    def files_stay_while_they_are_needed(self) -> None:
        living = self.newest()
        for log in self.uses:
            assert self.registry.is_over(log) == (log not in living and not self.is_waited_for(log))
        assert not self.registry.is_over(self.catalog.state.next_log), "it is being born, or another catalog's"

    def is_waited_for(self, log: int) -> bool:
        """Whether it is complete, and its name is to have another log, which is not complete yet."""
        state = self.catalog.state
        remembered = [known for known in self.known.values() if known.log == log and known.handle in state.shapes]
        if log not in self.complete or not remembered or remembered[-1].reason == REMOVED:
            return False
        name = remembered[-1].name
        same = [known for known in self.known.values() if known.name == name] if name else []
        later = same and same[-1].log not in self.complete and same[-1].reason != REMOVED
        return bool(later or (same and same[-1].log == log))

    @invariant()
    def whom_nobody_misses_may_end(self) -> None:
        living = self.newest()
        unread = sorted(
            (self.uses[log].at, log, known.handle)
            for log, known in living.items()
            if known.name is None and known.life is Life.READY and not self.uses[log].readers
        )
        assert set(self.registry._idleness._used) <= set(living), "what ended is not kept in memory"
        idle = [handle for at, _, handle in unread if self.now - at >= IDLE_SECONDS]
        assert self.registry.expired(self.now, IDLE_SECONDS) == idle
        for shapes_max in (0, 2, 100):
            excess = max(0, len(living) - shapes_max)
            assert self.registry.over(shapes_max) == [handle for _, _, handle in unread][:excess]


TestRegistryLife = RegistryLife.TestCase


def made(disk: MemoryDisk | FaultyDisk | None = None, clock: int = 5_000_000) -> Registry:
    return Registry(Catalog(disk or MemoryDisk()), lambda: clock, 0.0)


def test_a_handle_has_the_time_of_its_birth() -> None:
    entry = made(clock=1_700_000_000_000_000).born(DEFINITIONS[0], SNAPSHOT, 0.0)
    assert entry.handle == f"{DEFINITIONS[0].identity[:16]}-1700000000000000"


def test_a_clock_that_is_set_back_gives_no_handle_twice() -> None:
    disk, handles = MemoryDisk(), []
    for clock in (5_000_000, 4_000_000, 5_000_000, 0):
        catalog = Catalog(disk, bytes_max=BYTES_MAX)
        registry = Registry(catalog, lambda clock=clock: clock, 0.0)  # type: ignore[misc]  # the default binds it now
        entry = registry.born(DEFINITIONS[0], SNAPSHOT, 0.0)
        registry.ended(entry.handle, AT, REMOVED)
        handles.append(entry.handle)
        catalog.forget_below(catalog.state.version)
    assert [handle.partition("-")[2] for handle in handles] == ["5000000", "5000001", "5000002", "5000003"]


def test_handles_of_tombstones_count_too() -> None:
    disk = MemoryDisk()
    registry = made(disk)
    first, *others = (registry.born(DEFINITIONS[1], SNAPSHOT, 0.0).handle for _ in range(3))
    last = others[-1]
    for handle in others:
        registry.ended(handle, AT, EXPIRED)
    catalog = Catalog(disk, bytes_max=1)  # it is long already, so the next record compacts it
    catalog.forget_below(catalog.state.version)
    Registry(catalog, lambda: 0, 0.0).ended(first, AT, EXPIRED)
    assert last in catalog.state.tombstones
    assert all(number(handle) < number(last) for handle in catalog.state.shapes)
    again = Registry(Catalog(disk), lambda: 0, 0.0)
    assert number(again.born(DEFINITIONS[0], SNAPSHOT, 0.0).handle) == number(last) + 1


def number(handle: str) -> int:
    return int(handle.partition("-")[2])


def test_a_handle_knows_why_its_log_got_new_bases_since() -> None:
    disk = MemoryDisk()
    registry = made(disk)
    handles = [registry.born(DEFINITIONS[0], SNAPSHOT, 0.0).handle]
    registry.ready(handles[0], 0)
    for base, why in enumerate(["fold", "truncate", "fold"], start=1):
        handles.append(registry.rebased(handles[-1], base, AT, why).handle)
    for one in (registry, made(disk)):
        assert [sorted(one.reasons_since(handle)) for handle in handles] == [
            ["fold", "truncate"],
            ["fold", "truncate"],
            ["fold"],
            [],
        ]
        assert one.reasons_since("unknown") == frozenset()


def test_an_equal_shape_stands_in_for_one_without_a_successor() -> None:
    registry = made()
    first, other = (registry.born(definition, SNAPSHOT, 0.0) for definition in DEFINITIONS[:2])
    registry.ended(first.handle, AT, EXPIRED)
    assert registry.replacement(first.handle) is None
    again = registry.born(DEFINITIONS[0], SNAPSHOT, 0.0)
    assert registry.replacement(first.handle) == again
    assert registry.replacement(other.handle) == other


@pytest.mark.parametrize(("choose", "survived"), [(strictest, []), (luckiest, ["5000000"])])
def test_a_birth_that_failed_may_have_happened(choose: Choose, survived: list[str]) -> None:
    """Not in this process, and its handle goes to nobody else; the next one may find the record on the disk."""
    disk = MemoryDisk()
    registry = made(FaultyDisk(disk, Script(Rule("sync", Fault(), path="catalog.000001"))))
    with pytest.raises(SharedDiskFault):
        registry.born(DEFINITIONS[0], SNAPSHOT, 0.0, name="orders")
    assert (registry.living(), registry.named("orders"), registry.defined(DEFINITIONS[0])) == ([], None, None)
    restarted = made(disk.crash_image(choose))
    assert [entry.handle.partition("-")[2] for entry in restarted.living()] == survived
    assert registry.born(DEFINITIONS[0], SNAPSHOT, 0.0).handle.endswith("-5000001")
    for entry in restarted.living():
        assert restarted.born(DEFINITIONS[0], SNAPSHOT, 0.0).handle > entry.handle


def test_a_taken_name_is_refused_with_a_free_one() -> None:
    registry = made()
    registry.born(DEFINITIONS[0], SNAPSHOT, 0.0, name="orders")
    registry.born(DEFINITIONS[0], SNAPSHOT, 0.0, name="orders_2")
    with pytest.raises(ShapeNameTaken, match="such as orders_3, or remove") as caught:
        registry.born(DEFINITIONS[1], SNAPSHOT, 0.0, name="orders")
    assert caught.value.facts["free"] == "orders_3"
    with pytest.raises(InvalidShapeName):
        registry.born(DEFINITIONS[1], SNAPSHOT, 0.0, name="a/b")
    assert len(registry.living()) == 2


def test_a_name_waits_for_the_successor_unless_the_shape_was_removed() -> None:
    registry = made()
    first = registry.born(DEFINITIONS[0], SNAPSHOT, 0.0, name="orders")
    registry.ended(first.handle, AT, "column_gone")
    with pytest.raises(ShapeNameTaken, match="successor is awaited"):
        registry.check_free("orders")
    second = registry.born(DEFINITIONS[1], SNAPSHOT, 0.0, name="orders", succeeds=first.handle)
    assert registry.replacement(first.handle) == second
    registry.ended(second.handle, AT, REMOVED)
    registry.check_free("orders")
    assert registry.awaiting() == []


def test_the_end_of_an_unknown_handle_is_an_error() -> None:
    with pytest.raises(UnknownShape, match="no shape has this handle"):
        made().ended("nobody-1", AT, REMOVED)
    registry = made()
    registry.touch("nobody-1", 0.0)
    assert registry.find("nobody-1") is registry.replacement("nobody-1") is None


def test_a_definition_of_a_later_version_stops_the_start() -> None:
    catalog = Catalog(MemoryDisk())
    catalog.append(Born("later-1", 1, None, {"version": 99}, SNAPSHOT))
    with pytest.raises(DefinitionUnreadable, match="handle=later-1"):
        Registry(catalog, lambda: 0, 0.0)


def test_shapes_of_one_table_share_its_columns() -> None:
    registry = made()
    for value in ("x", "y"):
        registry.born(defined(ITEMS, where=f"v = '{value}'"), SNAPSHOT, 0.0)
    one, other = registry.living()
    assert one.definition != other.definition
    assert one.definition.columns is other.definition.columns


def test_ten_thousand_shapes_are_restored_with_one_sync_and_ended_with_two() -> None:
    """How long it takes is for the benchmark `restore` to say."""
    disk, count = MemoryDisk(), 10_000
    catalog = Catalog(disk)
    definitions = [defined(ITEMS, where=f"v = '{number}'").to_json() for number in range(count)]
    catalog.append(*(Born(f"h-{log}", log, f"name{log}", of, SNAPSHOT) for log, of in enumerate(definitions, 1)))
    catalog.append(*(Ready(f"h-{log}", 0) for log in range(1, count + 1)))
    syncs = disk.syncs
    registry = Registry(Catalog(disk), lambda: 0, 0.0)
    assert len(registry.living()) == count
    assert disk.syncs - syncs <= 1
    syncs = disk.syncs
    registry.all_ended(Ended(entry.handle, AT, "by the test") for entry in registry.living())
    assert disk.syncs - syncs <= 2
    assert registry.living() == []
    assert all(registry.awaited(f"name{log}") for log in range(1, count + 1))
