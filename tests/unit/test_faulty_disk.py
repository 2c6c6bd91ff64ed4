"""The disk with faults: it does and tells what its plan says, and nothing else; equal seeds meet equal faults."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.disk import Disk
from storage.faulty_disk import (
    WRITING_ERRORS,
    Changing,
    Fault,
    FaultyDisk,
    NoFaults,
    Odds,
    Operation,
    Reading,
    Rule,
    Script,
)
from storage.memory_disk import MemoryDisk, luckiest, strictest

CHANGES: dict[Changing, Callable[[Disk], None]] = {
    "create": lambda disk: disk.create("new"),
    "append": lambda disk: disk.append("file", [b"de", b"f"]),
    "sync": lambda disk: disk.sync("unsynced"),
    "truncate": lambda disk: disk.truncate("file", 1),
    "make_folder": lambda disk: disk.make_folder("folder"),
    "sync_folder": lambda disk: disk.sync_folder("uncertain"),
    "rename": lambda disk: disk.rename("file", "new"),
    "link": lambda disk: disk.link("file", "new"),
    "remove": lambda disk: disk.remove("file"),
    "remove_folder": lambda disk: disk.remove_folder("empty"),
}
READS: dict[Reading, Callable[[Disk], object]] = {
    "read": lambda disk: disk.read("file", 0, 9),
    "size": lambda disk: disk.size("file"),
    "stamp": lambda disk: disk.stamp("file").size,
    "exists": lambda disk: disk.exists("file"),
    "names": lambda disk: disk.names(""),
}


def sound_disk() -> MemoryDisk:
    """Something for every operation to do."""
    disk = MemoryDisk()
    disk.make_folder("empty")
    disk.make_folder("uncertain")
    for path in ("file", "unsynced"):
        disk.create(path)
    disk.append("file", [b"abc"])
    disk = disk.crash_image(luckiest)
    disk.append("unsynced", [b"abc"])
    disk.create("uncertain/file")
    return disk


def state_of(disk: MemoryDisk) -> object:
    """All that a change can change: what is seen, and what is certain."""
    seen, certain = disk.crash_image(luckiest), disk.crash_image(strictest)
    return seen.contents(), certain.contents(), seen.names("")


def told(call: Callable[[], object]) -> int | None:
    try:
        call()
    except OSError as error:
        return error.errno or 0
    return None


def test_there_is_a_case_for_every_operation() -> None:
    assert set(CHANGES) == set(get_args(Changing))
    assert set(READS) == set(get_args(Reading))


@pytest.mark.parametrize("operation", CHANGES)
@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("error", [None, errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_what_happens_and_what_is_told_are_independent(operation: Changing, happens: bool, error: int | None) -> None:
    disk, twin = sound_disk(), sound_disk()
    faulty = FaultyDisk(disk, Script(Rule(operation, Fault(error, happens))))
    assert told(lambda: CHANGES[operation](faulty)) == error
    if happens:
        CHANGES[operation](twin)
        assert state_of(twin) != state_of(sound_disk())
    assert state_of(disk) == state_of(twin)
    assert [(line.operation, line.fault) for line in faulty.log] == [(operation, Fault(error, happens))]


@pytest.mark.parametrize("operation", READS)
def test_reads_fail_or_are_right(operation: Reading) -> None:
    faulty = FaultyDisk(sound_disk(), Script(Rule(operation, Fault(errno.EACCES))))
    with pytest.raises(PermissionError):
        READS[operation](faulty)
    assert READS[operation](faulty) == READS[operation](sound_disk())


@pytest.mark.parametrize("appended", range(7))
def test_a_disk_fills_up_within_an_append(appended: int) -> None:
    faulty = FaultyDisk(sound_disk(), Script(Rule("append", Fault(errno.ENOSPC, happens=True, appended=appended))))
    assert told(lambda: faulty.append("file", [b"12", memoryview(b"3"), bytearray(b"45")])) == errno.ENOSPC
    assert faulty.read("file", 0, 99) == b"abc" + b"12345"[:appended]


def test_the_errors_of_the_disk_below_come_through() -> None:
    faulty = FaultyDisk(sound_disk(), Script(Rule("create", Fault(errno.EIO, happens=True))))
    with pytest.raises(FileExistsError):
        faulty.create("file")
    with pytest.raises(FileNotFoundError):
        faulty.sync("nothing")


# A sync that failed.


@dataclass
class Forgotten:
    """A disk whose first sync fails without happening, and tells the truth afterwards."""

    memory: MemoryDisk = field(default_factory=sound_disk)

    def __post_init__(self) -> None:
        self.disk = FaultyDisk(self.memory, Script(Rule("sync", Fault(errno.EIO))))
        assert told(lambda: self.disk.sync("unsynced")) == errno.EIO
        self.disk.healthy = True

    def certain(self, path: str) -> bytes:
        self.disk.sync(path)
        self.disk.sync_folder("")
        return self.memory.crash_image(strictest).contents()[path]


def test_a_sync_that_failed_is_never_made_up_for() -> None:
    assert Forgotten().certain("unsynced") == b""


def test_what_was_forgotten_stays_so_under_another_name() -> None:
    renamed, linked = Forgotten(), Forgotten()
    renamed.disk.rename("unsynced", "new")
    assert renamed.certain("new") == b""
    linked.disk.link("unsynced", "new")
    assert linked.certain("new") == linked.certain("unsynced") == b""


def test_another_file_under_the_name_is_synced() -> None:
    removed, replaced = Forgotten(), Forgotten()
    removed.disk.remove("unsynced")
    removed.disk.create("unsynced")
    removed.disk.append("unsynced", [b"other"])
    assert removed.certain("unsynced") == b"other"
    replaced.disk.append("file", [b"def"])
    replaced.disk.rename("file", "unsynced")
    assert replaced.certain("unsynced") == b"abcdef"


def test_a_folders_sync_may_be_tried_again() -> None:
    memory = sound_disk()
    disk = FaultyDisk(memory, Script(Rule("sync_folder", Fault())))
    assert told(lambda: disk.sync_folder("uncertain")) == errno.EIO
    disk.sync_folder("uncertain")
    assert "uncertain/file" in memory.crash_image(strictest).contents()


# Rules.

calls = st.tuples(st.sampled_from(["sync", "append"]), st.sampled_from(["a/log", "a/journal", "b/log"]))
rules = st.builds(
    Rule,
    st.sampled_from(["sync", "append"]),
    st.builds(Fault, st.sampled_from([errno.EIO, errno.ENOSPC])),
    path=st.sampled_from(["*", "a/*", "*/log", "b/log"]),
    first=st.integers(1, 4),
    calls=st.sampled_from([None, 1, 2]),
)
MATCHES = {
    "*": {"a/log", "a/journal", "b/log"},
    "a/*": {"a/log", "a/journal"},
    "*/log": {"a/log", "b/log"},
    "b/log": {"b/log"},
}


@given(st.lists(rules, max_size=3), st.lists(calls, max_size=12))
def test_a_script_is_the_first_rule_whose_turn_it_is(rules: list[Rule], calls: list[tuple[Operation, str]]) -> None:
    script = Script(*rules)
    for index, (operation, path) in enumerate(calls):
        expected = None
        for candidate in reversed(rules):
            matching = [call for call in calls[: index + 1] if call[0] == candidate.operation]
            number = sum(call[1] in MATCHES[candidate.path] for call in matching)
            last = candidate.first + candidate.calls - 1 if candidate.calls else len(calls)
            is_match = operation == candidate.operation and path in MATCHES[candidate.path]
            if is_match and candidate.first <= number <= last:
                expected = candidate.fault
        assert script.fault(operation, path, 0) == expected


def test_the_third_sync_of_a_journal_finds_the_disk_full() -> None:
    disk = FaultyDisk(sound_disk(), Script(Rule("sync", Fault(errno.ENOSPC), path="*.journal", first=3)))
    disk.create("1.journal")
    found = [told(lambda path=path: disk.sync(path)) for path in ["1.journal", "file"] * 4]  # type: ignore[misc]  # mypy cannot infer a default's type
    assert found == [None, None, None, None, errno.ENOSPC, None, None, None]
    assert [str(line) for line in disk.log] == ["call 6, sync 1.journal: did not happen, told ENOSPC"]


def test_the_log_reads_well() -> None:
    faults = [Fault(None), Fault(errno.EIO, happens=True), Fault(errno.ENOSPC, happens=True, appended=2)]
    disk = FaultyDisk(sound_disk(), Script(*(Rule("append", fault, first=1 + n) for n, fault in enumerate(faults))))
    for _ in faults:
        told(lambda: disk.append("file", [b"abc"]))
    assert [str(line) for line in disk.log] == [
        "call 1, append file: did not happen, told done",
        "call 2, append file: happened, told EIO",
        "call 3, append file: happened 2 bytes of it, told ENOSPC",
    ]


def test_a_healthy_disk_has_no_faults_and_does_not_count_in_the_rules() -> None:
    disk = FaultyDisk(sound_disk(), Script(Rule("append", Fault(errno.ENOSPC), first=2, calls=None)))
    found = []
    for healthy in (False, True, True, False, False, True, False):
        disk.healthy = healthy
        found.append(told(lambda: disk.append("file", [b"!"])))
    assert found == [None, None, None, errno.ENOSPC, errno.ENOSPC, None, errno.ENOSPC]
    assert disk.read("file", 0, 99) == b"abc!!!!"


# Odds.


def outcomes(plan: Odds, operations: Sequence[Operation]) -> list[Fault | None]:
    return [plan.fault(operation, "file", 100 if operation == "append" else 0) for operation in operations]


ALL: list[Operation] = [*CHANGES, *READS]


@given(seed=st.integers(0, 2**32), operations=st.lists(st.sampled_from(ALL), max_size=50))
def test_equal_seeds_meet_equal_faults(seed: int, operations: list[Operation]) -> None:
    plans = [Odds(Random(seed), change_fails=0.3, sync_fails=0.2, read_fails=0.1, calls_max=3) for _ in range(2)]
    assert outcomes(plans[0], operations) == outcomes(plans[1], operations)


def test_without_odds_there_are_no_faults() -> None:
    assert outcomes(Odds(Random(1), calls_max=9), ALL * 50) == [None] * len(ALL) * 50
    assert outcomes(Odds(Random(1), sync_fails=1.0, calls_max=9), ["append", "sync", "read"] * 9)[::3] == [None] * 9
    assert NoFaults().fault("sync", "file", 0) is None


@pytest.mark.parametrize(
    ("plan", "operation", "shares"),
    [
        # of the calls: failed, failed but happened, lied
        (Odds(Random(1), change_fails=0.2), "create", (0.2, 0.1, 0)),
        (Odds(Random(2), change_fails=0.2), "sync", (0, 0, 0)),
        (Odds(Random(3), sync_fails=0.2, failed_happens=0.25), "sync_folder", (0.2, 0.05, 0)),
        (Odds(Random(4), read_fails=0.2, lies=0.5), "names", (0.2, 0, 0)),
        (Odds(Random(5), change_fails=0.2, lies=0.1), "append", (0.2, 0.1, 0.08)),
    ],
)
def test_odds_are_kept(plan: Odds, operation: Operation, shares: tuple[float, float, float]) -> None:
    calls_count = 20_000
    faults = [fault for fault in outcomes(plan, [operation] * calls_count) if fault]
    failed = [fault for fault in faults if fault.error is not None]
    happened = [fault for fault in failed if fault.happens]
    found = [len(failed), len(happened), len(faults) - len(failed)]
    assert [count / calls_count for count in found] == pytest.approx(shares, abs=0.01)
    assert {fault.error for fault in failed} <= set(WRITING_ERRORS)


def test_failed_appends_happen_wholly_and_by_any_part() -> None:
    faults = outcomes(Odds(Random(1), change_fails=1.0), ["append"] * 5_000)
    assert {fault.appended for fault in faults if fault and fault.happens} == {None, *range(101)}


def test_faults_come_in_a_row_with_one_error() -> None:
    plan = Odds(Random(1), change_fails=0.02, calls_max=10, errors=[errno.ENOSPC, errno.EROFS])
    errors = "".join("." if fault is None else str(fault.error) for fault in outcomes(plan, ["create"] * 20_000))
    rows = [row for row in errors.split(".") if row]
    assert max(len(row) // 2 for row in rows) >= 10
    single = [row for row in rows if row in {f"{errno.ENOSPC}" * 10, f"{errno.EROFS}" * 10}]
    assert single


# Everything together.


class DiskAndTwin(RuleBasedStateMachine):
    """A faulty disk, and a sound one that gets only the calls which happened."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.below, self.twin = sound_disk(), sound_disk()
        odds = Odds(Random(seed), change_fails=0.4, sync_fails=0.4, read_fails=0.4, lies=0.1, calls_max=3)
        self.disk = FaultyDisk(self.below, odds)

    @rule(operation=st.sampled_from(list(CHANGES)))
    def change(self, operation: Changing) -> None:
        fault, error = self.call(lambda: CHANGES[operation](self.disk))
        expected = None
        if fault is None or fault.happens:
            is_part = fault is not None and fault.appended is not None
            parts = [b"def"[: fault.appended]] if fault and is_part else [b"def"]
            expected = told(
                lambda: self.twin.append("file", parts) if operation == "append" else CHANGES[operation](self.twin)
            )
        assert error == (expected or (fault.error if fault else None))

    @rule(operation=st.sampled_from(list(READS)))
    def read(self, operation: Reading) -> None:
        fault, error = self.call(lambda: READS[operation](self.disk))
        assert error == (fault.error if fault else told(lambda: READS[operation](self.twin)))

    @rule()
    def heal_or_break(self) -> None:
        self.disk.healthy = not self.disk.healthy

    @rule()
    def write_the_file_again(self) -> None:
        for disk in (self.below, self.twin):
            if not disk.exists("file"):
                disk.create("file")

    def call(self, call: Callable[[], object]) -> tuple[Fault | None, int | None]:
        faults_count = len(self.disk.log)
        error = told(call)
        found = self.disk.log[faults_count:]
        assert len(found) <= (not self.disk.healthy)
        return (found[0].fault if found else None), error

    @invariant()
    def both_show_the_same(self) -> None:
        if hasattr(self, "disk"):
            assert self.below.contents() == self.twin.contents()


TestDiskAndTwin = DiskAndTwin.TestCase
