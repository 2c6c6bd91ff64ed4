"""The disk in memory. Alive it is like the local one; after a crash it has all that must be there, and what may be."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage.disk import Disk, LocalDisk
from storage.inodes import Choose
from storage.limits import SECTOR_BYTES
from storage.memory_disk import Crashed, MemoryDisk, in_runs, luckiest, strictest

SEEDS = range(60)

# Alive.

paths = st.sampled_from(["x", "y", "a", "a/x", "a/y", "a/b", "a/b/x", "nowhere/x"])
folders = st.sampled_from(["", "a", "a/b", "x"])


class LiveDisk(RuleBasedStateMachine):
    """The same calls on a local disk: the same results, and the same errors."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.local = LocalDisk(self.folder.name)
        self.memory = MemoryDisk()

    def teardown(self) -> None:
        self.local.close()
        self.folder.cleanup()

    def both(self, call: Callable[[Disk], object]) -> None:
        assert outcome(self.memory, call) == outcome(self.local, call)

    def both_fail_or_neither(self, call: Callable[[Disk], None]) -> None:
        """For two paths: where both are wrong, either may be named."""
        assert bool(outcome(self.memory, call)) == bool(outcome(self.local, call))

    @rule(path=paths)
    def create(self, path: str) -> None:
        self.both(lambda disk: disk.create(path))

    @rule(path=paths, buffers=st.lists(st.binary(max_size=9), max_size=3))
    def append(self, path: str, buffers: list[bytes]) -> None:
        self.both(lambda disk: disk.append(path, buffers))

    @rule(path=paths, size=st.integers(0, 30))
    def truncate(self, path: str, size: int) -> None:
        self.both(lambda disk: disk.truncate(path, size))

    @rule(path=paths)
    def sync(self, path: str) -> None:
        self.both(lambda disk: disk.sync(path))

    @rule(path=paths, position=st.integers(0, 30), size=st.integers(0, 30))
    def read(self, path: str, position: int, size: int) -> None:
        self.both(lambda disk: disk.read(path, position, size))

    @rule(folder=folders)
    def make_folder(self, folder: str) -> None:
        self.both(lambda disk: disk.make_folder(folder))

    @rule(folder=folders)
    def sync_folder(self, folder: str) -> None:
        self.both(lambda disk: disk.sync_folder(folder))

    @rule(old=paths, new=paths)
    def rename(self, old: str, new: str) -> None:
        self.both_fail_or_neither(lambda disk: disk.rename(old, new))

    @rule(old=paths, new=paths)
    def link(self, old: str, new: str) -> None:
        self.both_fail_or_neither(lambda disk: disk.link(old, new))

    @rule(path=paths)
    def remove(self, path: str) -> None:
        self.both(lambda disk: disk.remove(path))

    @rule(folder=folders.filter(bool))
    def remove_folder(self, folder: str) -> None:
        self.both(lambda disk: disk.remove_folder(folder))

    @rule(path=paths, folder=folders)
    def look(self, path: str, folder: str) -> None:
        self.both(lambda disk: disk.exists(path))
        self.both(lambda disk: disk.names(folder))
        if not Path(self.folder.name, path).is_dir():  # of which nobody asks, and a real disk has an answer
            self.both(lambda disk: disk.stamp(path).size)

    @invariant()
    def all_files_are_alike(self) -> None:
        root = Path(self.folder.name)
        files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        assert self.memory.contents() == files


def outcome(disk: Disk, call: Callable[[Disk], object]) -> object:
    try:
        return call(disk)
    except OSError as error:
        return error.errno


TestLiveDisk = LiveDisk.TestCase

# After a crash: random histories.


@dataclass(eq=False)
class Inode:
    """A file of the model. Its first bytes, synced before anything else happens to it, say which it is."""

    states: list[bytes] = field(default_factory=list)
    """Its contents since the last sync, the synced one first."""
    lasting: bool = False
    """Had a certain name once, and lost none since but by renames: it must be there."""


ID_BYTES = 4
machine_paths = st.sampled_from(["x", "y", "z", "a/x", "a/y", "b/x"])
machine_folders = st.sampled_from(["", "a", "b"])


class CrashedDisk(RuleBasedStateMachine):
    """Any history, and then images: what they have was there once, and what was certain is there."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.folders = {"": True}  # whether their own name is certain
        self.live: dict[str, Inode] = {}
        self.certain: dict[str, Inode] = {}  # by what was live at the folder's last sync
        self.versions: dict[str, list[Inode | None]] = {}  # since the folder's last sync
        self.written_count = 0

    def names_in(self, folder: str) -> dict[str, Inode]:
        return {path: inode for path, inode in self.live.items() if folder_of(path) == folder}

    def name(self, path: str, inode: Inode | None) -> None:
        self.versions.setdefault(path, [self.live.get(path)]).append(inode)
        self.live.pop(path, None)
        if inode is not None:
            self.live[path] = inode

    def bytes_never_used(self, size: int) -> bytes:
        self.written_count += 1
        return self.written_count.to_bytes(ID_BYTES, "big").replace(b"\0", b"\xff") * size

    def draw(self, data: st.DataObject) -> tuple[str, Inode]:
        path = data.draw(st.sampled_from(sorted(self.live)))
        return path, self.live[path]

    @rule(path=machine_paths)
    def create(self, path: str) -> None:
        if path in self.live or folder_of(path) not in self.folders:
            return
        content = self.bytes_never_used(1)
        self.disk.create(path)
        self.disk.append(path, [content])
        self.disk.sync(path)
        self.name(path, Inode([content]))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), size=st.sampled_from([1, 20, 127, 200, 400]))
    def append(self, data: st.DataObject, size: int) -> None:
        path, inode = self.draw(data)
        content = self.bytes_never_used(size)
        self.disk.append(path, [content])
        inode.states.append(inode.states[-1] + content)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        path, inode = self.draw(data)
        size = data.draw(st.integers(ID_BYTES, len(inode.states[-1])))
        self.disk.truncate(path, size)
        inode.states.append(inode.states[-1][:size])

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        path, inode = self.draw(data)
        self.disk.sync(path)
        del inode.states[:-1]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), new=machine_paths)
    def rename(self, data: st.DataObject, new: str) -> None:
        old, inode = self.draw(data)
        if folder_of(new) not in self.folders:
            return
        self.disk.rename(old, new)
        replaced = self.live.get(new)
        if replaced is not inode:
            if replaced is not None:
                replaced.lasting = False
            self.name(new, inode)
            self.name(old, None)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), new=machine_paths)
    def link(self, data: st.DataObject, new: str) -> None:
        old, inode = self.draw(data)
        if new not in self.live and folder_of(new) in self.folders:
            self.disk.link(old, new)
            self.name(new, inode)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        path, inode = self.draw(data)
        self.disk.remove(path)
        self.name(path, None)
        inode.lasting = False

    @rule(folder=machine_folders)
    def make_folder(self, folder: str) -> None:
        self.disk.make_folder(folder)
        self.folders.setdefault(folder, False)

    @rule(folder=machine_folders)
    def sync_folder(self, folder: str) -> None:
        if folder not in self.folders:
            return
        self.disk.sync_folder(folder)
        if folder == "":
            self.folders = dict.fromkeys(self.folders, True)
        self.versions = {path: versions for path, versions in self.versions.items() if folder_of(path) != folder}
        self.certain = {path: inode for path, inode in self.certain.items() if folder_of(path) != folder}
        self.certain |= self.names_in(folder)
        for path, inode in self.certain.items():
            if self.folders[folder_of(path)] and self.live.get(path) is inode:
                inode.lasting = True

    @rule(seed=st.integers(0, 2**32), sticky=st.booleans())
    def crash(self, seed: int, sticky: bool) -> None:
        before = self.disk.contents()
        choose: Choose = Random(seed).randrange
        image = self.disk.crash_image(in_runs(choose) if sticky else choose)
        self.check(image)
        assert self.disk.contents() == before

    @invariant()
    def the_extremes_are_what_was_synced_and_what_was_seen(self) -> None:
        lucky = self.disk.crash_image(luckiest)
        assert lucky.contents() == self.disk.contents() == {path: inode.states[-1] for path, inode in self.live.items()}
        strict = self.disk.crash_image(strictest)
        self.check(strict)
        for path, content in strict.contents().items():
            assert content in [inode.states[0] for inode in self.versions_of(path) if inode]

    def versions_of(self, path: str) -> list[Inode | None]:
        return self.versions.get(path, [self.live.get(path)])

    def check(self, image: MemoryDisk) -> None:
        found = image.contents()
        for path in {*found, *self.live, *self.versions}:
            folder, versions = folder_of(path), self.versions_of(path)
            if path in found:
                [inode] = {version for version in versions if version and is_content_of(found[path], version)}
                assert may_be_left(found[path], inode.states)
            else:
                assert None in versions or not self.folders[folder]
        lasting = {inode for inode in self.live.values() if inode.lasting}
        for inode in lasting:
            assert any(is_content_of(content, inode) for content in found.values())


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def is_content_of(content: bytes, inode: Inode) -> bool:
    return content[:ID_BYTES] == inode.states[0][:ID_BYTES]


def may_be_left(content: bytes, states: list[bytes]) -> bool:
    """Slow and plain: the size lies between those it had, and each sector is one that the file had."""
    sizes = [len(state) for state in states]
    return min(sizes) <= len(content) <= max(sizes) and all(
        any(same_sector(content, state, start) for state in states) for start in range(0, len(content), SECTOR_BYTES)
    )


def same_sector(content: bytes, state: bytes, start: int) -> bool:
    found = content[start : start + SECTOR_BYTES]
    return found == state[start : start + len(found)].ljust(len(found), b"\0")


TestCrashedDisk = CrashedDisk.TestCase
TestCrashedDisk.settings = settings(stateful_step_count=40)

# After a crash: small histories, and every image there is.


def every_image(disk: MemoryDisk) -> Iterator[MemoryDisk]:
    """All choices in turn, like the wheels of a counter of which each has as many digits as there are possibilities."""
    digits: list[int] = []
    while True:
        counts: list[int] = []
        yield disk.crash_image(Wheels(digits, counts))
        digits += [0] * (len(counts) - len(digits))
        while digits and digits[-1] + 1 == counts[len(digits) - 1]:
            digits.pop()
        if not digits:
            return
        digits[-1] += 1


@dataclass
class Wheels:
    digits: list[int]
    counts: list[int]

    def __call__(self, count: int) -> int:
        self.counts.append(count)
        return self.digits[len(self.counts) - 1] if len(self.counts) <= len(self.digits) else 0


def every_content(disk: MemoryDisk) -> set[bytes | None]:
    return {image.contents().get("file") for image in every_image(disk)}


def every_listing(disk: MemoryDisk) -> set[tuple[str, ...]]:
    return {tuple(image.contents()) for image in every_image(disk)}


def disk_with(path: str, content: bytes) -> MemoryDisk:
    """A disk with one certain file."""
    disk = MemoryDisk()
    disk.make_folder(folder_of(path))
    disk.create(path)
    disk.append(path, [content])
    return disk.crash_image(luckiest)


A, B, C = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES, b"c" * SECTOR_BYTES
ZEROS = bytes(SECTOR_BYTES)


def test_each_sector_of_an_append_reaches_the_disk_or_not_and_the_size_lies_between() -> None:
    disk = disk_with("file", A)
    disk.append("file", [B, C])
    whole = [A + second + third for second in (B, ZEROS) for third in (C, ZEROS)]
    assert every_content(disk) == {content[:size] for content in whole for size in range(SECTOR_BYTES, len(A) * 3 + 1)}


def test_a_sector_that_was_partly_synced_keeps_that_part() -> None:
    disk = disk_with("file", b"aa")
    disk.append("file", [b"bb"])
    assert every_content(disk) == {b"aa", b"aab", b"aa\0", b"aabb", b"aa\0\0"}


def test_a_sector_written_twice_may_be_of_either_time() -> None:
    disk = disk_with("file", b"a")
    disk.append("file", [b"b"])
    disk.append("file", [b"c"])
    assert every_content(disk) == {b"a", b"ab", b"a\0", b"abc", b"ab\0", b"a\0\0"}


def test_a_truncate_may_have_happened_or_not() -> None:
    disk = disk_with("file", b"abc")
    disk.truncate("file", 1)
    assert every_content(disk) == {b"a", b"a\0\0", b"abc"}
    disk.sync("file")
    assert every_content(disk) == {b"a"}


def test_what_a_synced_truncate_cut_off_never_comes_back() -> None:
    disk = disk_with("file", b"abc")
    disk.truncate("file", 1)
    disk.sync("file")
    disk.append("file", [b"x"])
    assert every_content(disk) == {b"a", b"ax", b"a\0"}


def test_a_synced_file_may_be_gone_until_its_name_is_certain() -> None:
    disk = MemoryDisk()
    disk.create("file")
    disk.append("file", [b"abc"])
    disk.sync("file")
    assert every_content(disk) == {None, b"abc"}
    disk.sync_folder("")
    assert every_content(disk) == {b"abc"}


def test_a_certain_name_says_nothing_of_the_bytes() -> None:
    disk = MemoryDisk()
    disk.create("file")
    disk.sync_folder("")
    disk.append("file", [b"a"])
    assert every_content(disk) == {b"", b"\0", b"a"}


def test_a_file_may_be_gone_with_the_folder_above() -> None:
    disk = MemoryDisk()
    disk.make_folder("a/b")
    disk.create("a/b/file")
    disk.sync("a/b/file")
    disk.sync_folder("a/b")
    disk.sync_folder("")
    assert every_listing(disk) == {(), ("a/b/file",)}
    disk.sync_folder("a")
    assert every_listing(disk) == {("a/b/file",)}


def test_names_reach_the_disk_in_any_order() -> None:
    disk = MemoryDisk()
    disk.create("first")
    disk.create("second")
    assert every_listing(disk) == {(), ("first",), ("second",), ("first", "second")}


@pytest.mark.parametrize("new", ["new", "b/new"])
def test_a_renamed_file_has_the_old_name_or_the_new_one_or_both(new: str) -> None:
    disk = disk_with("a/old", b"abc")
    disk.make_folder(folder_of(new))
    disk.rename("a/old", new)
    assert every_listing(disk) == {("a/old",), (new,), ("a/old", new)}
    disk.sync_folder("a")
    assert every_listing(disk) == {(new,)}


def test_a_rename_is_certain_with_its_folder() -> None:
    disk = disk_with("old", b"abc")
    disk.rename("old", "new")
    disk.sync_folder("")
    assert every_listing(disk) == {("new",)}


def test_a_file_renamed_on_and_on_is_never_lost() -> None:
    disk = disk_with("a", b"abc")
    for old, new in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "d")):
        disk.rename(old, new)
    assert () not in every_listing(disk)


def test_a_file_that_made_way_for_another_is_not_lost() -> None:
    disk = disk_with("first", b"1")
    disk.create("second")
    disk.append("second", [b"2"])
    disk = disk.crash_image(luckiest)
    disk.rename("first", "kept")
    disk.rename("second", "first")
    for image in every_image(disk):
        assert set(image.contents().values()) == {b"1", b"2"}


def test_a_replaced_file_is_the_old_one_or_the_new_one() -> None:
    disk = disk_with("file", b"old")
    disk.create("new")
    disk.append("new", [b"new"])
    disk.sync("new")
    disk.rename("new", "file")
    assert every_content(disk) == {b"old", b"new"}
    disk.sync_folder("")
    assert every_content(disk) == {b"new"}


def test_a_replacing_file_that_was_not_synced_may_be_empty() -> None:
    disk = disk_with("file", b"old")
    disk.create("new")
    disk.append("new", [b"n"])
    disk.rename("new", "file")
    disk.sync_folder("")
    assert every_content(disk) == {b"", b"\0", b"n"}


def test_a_removed_name_may_be_back_until_its_folder_is_synced() -> None:
    disk = disk_with("file", b"abc")
    disk.remove("file")
    assert every_content(disk) == {None, b"abc"}
    disk.create("file")
    assert every_content(disk) == {None, b"abc", b""}
    disk.remove("file")
    disk.sync_folder("")
    assert every_content(disk) == {None}


def test_a_link_is_certain_with_its_own_folder_and_stays_one_file() -> None:
    disk = disk_with("old", b"abc")
    disk.make_folder("a")
    disk.sync_folder("")
    disk.link("old", "a/new")
    assert every_listing(disk) == {("old",), ("a/new", "old")}
    disk.sync_folder("a")
    disk.append("a/new", [b"!"])
    for image in every_image(disk):
        assert image.read("old", 0, 9) == image.read("a/new", 0, 9)
        image.append("old", [b"?"])
        assert image.read("a/new", 0, 9)[-1:] == b"?"


def test_a_removed_folder_may_be_back_with_its_files() -> None:
    disk = disk_with("a/file", b"abc")
    disk.remove("a/file")
    disk.remove_folder("a")
    assert every_listing(disk) == {(), ("a/file",)}
    disk.sync_folder("")
    assert every_listing(disk) == {()}


def test_an_image_has_nothing_uncertain_and_is_a_disk_of_its_own() -> None:
    disk = disk_with("file", b"abc")
    disk.append("file", [b"def"])
    image = disk.crash_image(luckiest)
    assert image.crash_image(strictest).contents() == image.contents() == {"file": b"abcdef"}
    image.append("file", [b"!"])
    image.create("other")
    assert disk.contents() == {"file": b"abcdef"}
    assert (image.syncs, image.operations) == (0, 2)


def test_equal_seeds_make_equal_images() -> None:
    disk = disk_with("file", A)
    for number in range(20):
        disk.append("file", [b"%03d" % number * 100])
    images = [disk.crash_image(in_runs(Random(seed).randrange)).contents()["file"] for seed in SEEDS]
    assert images == [disk.crash_image(in_runs(Random(seed).randrange)).contents()["file"] for seed in SEEDS]
    assert len(set(images)) > len(SEEDS) / 2


def test_runs_leave_large_writes_whole_torn_and_absent() -> None:
    disk = disk_with("file", b"")
    disk.append("file", [A * 100])
    found = [disk.crash_image(in_runs(Random(seed).randrange)).contents()["file"] for seed in range(200)]
    assert {"torn" if 0 in content else len(content) for content in found} >= {"torn", 0, len(A) * 100}


@given(counts=st.lists(st.integers(1, 9), max_size=99), seed=st.integers(0, 99))
def test_runs_choose_what_there_is(counts: list[int], seed: int) -> None:
    choose = in_runs(Random(seed).randrange)
    assert all(choose(count) in range(count) for count in counts)


# When the power is cut.


def write_two(disk: MemoryDisk) -> None:
    for path in ("one", "two"):
        disk.create(path)
        disk.append(path, [b"abc"])
        disk.sync(path)
        disk.sync_folder("")


def test_syncs_and_operations_are_counted_and_reads_are_not() -> None:
    disk = MemoryDisk()
    write_two(disk)
    disk.names("")
    disk.size("one")
    disk.read("one", 0, 1)
    disk.exists("one")
    with pytest.raises(FileExistsError):
        disk.create("one")
    assert (disk.syncs, disk.operations) == (4, 9)


@pytest.mark.parametrize(
    ("disk", "certain"),
    [
        (MemoryDisk(crash_at_sync=2), {}),
        (MemoryDisk(crash_at_sync=2, crash_after=True), {"one": b"abc"}),
        (MemoryDisk(crash_at_sync=4), {"one": b"abc"}),
        (MemoryDisk(crash_at_sync=4, crash_after=True), {"one": b"abc", "two": b"abc"}),
        (MemoryDisk(crash_at_operation=4), {}),
        (MemoryDisk(crash_at_operation=4, crash_after=True), {"one": b"abc"}),
        (MemoryDisk(crash_at_operation=5), {"one": b"abc"}),
    ],
)
def test_the_power_is_cut_before_or_after(disk: MemoryDisk, certain: dict[str, bytes]) -> None:
    with pytest.raises(Crashed):
        write_two(disk)
    assert disk.crashed
    assert disk.crash_image(strictest).contents() == certain


def test_an_append_of_the_crash_may_be_on_the_disk() -> None:
    before, after = MemoryDisk(crash_at_operation=2), MemoryDisk(crash_at_operation=2, crash_after=True)
    for disk, content in ((before, b""), (after, b"abc")):
        with pytest.raises(Crashed):
            write_two(disk)
        assert disk.crash_image(luckiest).contents() == {"one": content}


def test_after_the_crash_every_call_meets_it() -> None:
    disk = disk_with("file", b"abc")
    disk.cut_power()
    calls: list[Callable[[], object]] = [
        lambda: disk.create("new"),
        lambda: disk.append("file", [b"!"]),
        lambda: disk.truncate("file", 0),
        lambda: disk.sync("file"),
        lambda: disk.read("file", 0, 1),
        lambda: disk.size("file"),
        lambda: disk.exists("file"),
        lambda: disk.names(""),
        lambda: disk.make_folder("new"),
        lambda: disk.sync_folder(""),
        lambda: disk.rename("file", "new"),
        lambda: disk.link("file", "new"),
        lambda: disk.remove("file"),
        lambda: disk.remove_folder("new"),
    ]
    for call in calls:
        with pytest.raises(Crashed), contextlib.suppress(Exception):  # no handler of errors keeps it from us
            call()
    assert disk.contents() == {"file": b"abc"}


def test_the_crash_comes_even_if_its_operation_fails() -> None:
    disk = MemoryDisk(crash_at_operation=1, crash_after=True)
    with pytest.raises(Crashed):
        disk.remove("nothing")


def test_a_disk_may_be_told_late() -> None:
    disk = MemoryDisk()
    write_two(disk)
    disk.crash_at_sync = disk.syncs + 1
    with pytest.raises(Crashed):
        disk.sync("one")


def test_threads_lose_no_bytes() -> None:
    disk = disk_with("file", b"")
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for turn in range(200):
            disk.append("file", [b"%d" % number] * 3)
            if turn % 10 == 0:
                disk.sync("file")
                disk.crash_image(in_runs(Random(turn).randrange))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    content = disk.contents()["file"]
    triples = [content[index : index + 3] for index in range(0, len(content), 3)]
    assert sorted(triples) == sorted([b"%d" % number * 3 for number in range(4)] * 200)
    assert disk.operations == 4 * 220
