"""What every disk does alike; and of the local one, that writes are repeated until all is taken."""

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk import Disk, LocalDisk
from storage.faulty_disk import FaultyDisk, NoFaults
from storage.memory_disk import MemoryDisk


@pytest.fixture(params=["local", "memory", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    match request.param:
        case "local":
            with contextlib.closing(LocalDisk(tmp_path)) as local:
                yield local
        case "memory":
            yield MemoryDisk()
        case _:
            yield FaultyDisk(MemoryDisk(), NoFaults())


def write(disk: Disk, path: str, content: bytes) -> None:
    disk.create(path)
    disk.append(path, [content])


def read(disk: Disk, path: str) -> bytes:
    return disk.read(path, 0, disk.size(path) + 1)


def fails_with(number: int, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(OSError, match=r"^\[Errno") as error:
        call(*arguments)
    assert error.value.errno == number


def test_a_new_file_is_empty(disk: Disk) -> None:
    disk.create("file")
    assert disk.exists("file")
    assert disk.size("file") == 0
    assert read(disk, "file") == b""


def test_a_stamp_is_another_one_after_each_change_and_only_then(disk: Disk) -> None:
    write(disk, "file", b"bytes")
    before = disk.stamp("file")
    assert before.size == 5
    read(disk, "file")
    disk.sync("file")
    assert disk.stamp("file") == before
    stamps = [before]
    changes: list[Callable[[], None]] = [
        lambda: disk.append("file", [b"more"]),
        lambda: disk.truncate("file", 5),
        lambda: disk.append("file", [b"other"]),
        lambda: write(disk, "temporary", b"bytesother"),
        lambda: disk.rename("temporary", "file"),
        lambda: disk.remove("file"),
        lambda: write(disk, "file", b"bytes other"),
    ]
    for change in changes:
        change()
        if disk.exists("file"):
            stamps.append(disk.stamp("file"))
    sizes = [stamp.size for stamp in stamps]
    assert sizes == [5, 9, 5, 10, 10, 10, 11]
    assert len({stamps[3], stamps[4], stamps[5]}) == 2, "of the same size"
    assert stamps[4] == stamps[3], "the name has not changed yet"
    fails_with(errno.ENOENT, disk.stamp, "nowhere")
    fails_with(errno.ENOTDIR, disk.stamp, "file/below")


def test_create_is_exclusive(disk: Disk) -> None:
    write(disk, "file", b"kept")
    disk.make_folder("folder")
    fails_with(errno.EEXIST, disk.create, "file")
    fails_with(errno.EEXIST, disk.create, "folder")
    assert read(disk, "file") == b"kept"


def test_appends_follow_each_other(disk: Disk) -> None:
    disk.create("file")
    disk.append("file", [b"one ", bytearray(b"two "), memoryview(b"three ")])
    disk.append("file", [])
    disk.append("file", [b"", b"four", b""])
    assert read(disk, "file") == b"one two three four"
    assert disk.size("file") == 18


def test_appended_bytes_are_those_of_the_call(disk: Disk) -> None:
    buffer = bytearray(b"before")
    write(disk, "file", b"")
    disk.append("file", [buffer])
    buffer[:] = b"after!"
    assert read(disk, "file") == b"before"


def test_many_buffers_in_one_append(disk: Disk) -> None:
    parts = [b"%d," % number for number in range(5_000)]  # more than one system call takes
    disk.create("file")
    disk.append("file", parts)
    assert read(disk, "file") == b"".join(parts)


def test_buffers_of_other_items_than_bytes_count_in_bytes(disk: Disk) -> None:
    numbers = memoryview(b"\1\0\2\0\3\0\4\0").cast("H")
    disk.create("file")
    disk.append("file", [numbers])
    assert read(disk, "file") == bytes(numbers)


def test_reads_are_short_only_at_the_end(disk: Disk) -> None:
    write(disk, "file", b"0123456789")
    assert disk.read("file", 2, 3) == b"234"
    assert disk.read("file", 8, 3) == b"89"
    assert disk.read("file", 10, 3) == b""
    assert disk.read("file", 99, 3) == b""
    assert disk.read("file", 2, 0) == b""
    fails_with(errno.EINVAL, disk.read, "file", -1, 3)


def test_what_was_read_stays_when_the_file_changes(disk: Disk) -> None:
    write(disk, "file", b"0123456789")
    data = disk.read("file", 0, 10)
    disk.truncate("file", 0)
    disk.append("file", [b"abc"])
    assert data == b"0123456789"


def test_appends_after_a_truncate_go_to_the_new_end(disk: Disk) -> None:
    write(disk, "file", b"0123456789")
    disk.truncate("file", 4)
    assert read(disk, "file") == b"0123"
    disk.append("file", [b"abc"])
    assert read(disk, "file") == b"0123abc"
    disk.truncate("file", 7)
    disk.truncate("file", 9)
    assert read(disk, "file") == b"0123abc\0\0"
    fails_with(errno.EINVAL, disk.truncate, "file", -1)


def test_syncs_change_nothing_that_the_program_sees(disk: Disk) -> None:
    write(disk, "file", b"bytes")
    disk.sync("file")
    disk.sync("file")
    disk.sync_folder("")
    assert read(disk, "file") == b"bytes"
    assert disk.names("") == ["file"]


def test_names_are_sorted_and_without_their_folder(disk: Disk) -> None:
    disk.make_folder("logs/b")
    for name in ("c", "a", "B", "10", "9"):
        disk.create(f"logs/{name}")
    assert disk.names("logs") == ["10", "9", "B", "a", "b", "c"]
    assert disk.names("logs/") == disk.names("logs")
    assert disk.names("") == ["logs"]
    assert disk.names("logs/b") == []
    assert disk.names("nowhere") == []
    assert disk.names("nowhere/at/all") == []
    fails_with(errno.ENOTDIR, disk.names, "logs/a")


def test_folders_are_made_with_those_above(disk: Disk) -> None:
    disk.make_folder("a/b/c")
    disk.make_folder("a/b")
    disk.make_folder("")
    disk.create("a/b/file")
    assert disk.exists("a/b")
    assert disk.names("a/b") == ["c", "file"]
    fails_with(errno.EEXIST, disk.make_folder, "a/b/file")
    fails_with(errno.ENOTDIR, disk.make_folder, "a/b/file/below")


def test_rename_replaces(disk: Disk) -> None:
    disk.make_folder("a")
    disk.make_folder("b")
    write(disk, "a/old", b"new content")
    write(disk, "b/new", b"old content")
    assert read(disk, "b/new") == b"old content"
    disk.rename("a/old", "b/new")
    assert not disk.exists("a/old")
    assert read(disk, "b/new") == b"new content"
    disk.append("b/new", [b"!"])
    disk.create("a/old")
    assert read(disk, "b/new") == b"new content!"
    assert read(disk, "a/old") == b""


def test_rename_moves_files_only(disk: Disk) -> None:
    disk.make_folder("folder")
    write(disk, "file", b"")
    fails_with(errno.EISDIR, disk.rename, "folder", "other")
    fails_with(errno.EISDIR, disk.rename, "file", "folder")
    fails_with(errno.ENOENT, disk.rename, "nothing", "other")
    fails_with(errno.ENOENT, disk.rename, "file", "nowhere/other")
    fails_with(errno.ENOTDIR, disk.rename, "file", "file/other")
    assert disk.names("") == ["file", "folder"]


def test_rename_between_names_of_one_file_changes_nothing(disk: Disk) -> None:
    write(disk, "one", b"bytes")
    disk.link("one", "two")
    disk.rename("one", "two")
    assert disk.names("") == ["one", "two"]
    disk.rename("one", "one")
    assert read(disk, "one") == b"bytes"


def test_link_is_a_second_name_and_refuses_a_taken_one(disk: Disk) -> None:
    disk.make_folder("folder")
    write(disk, "one", b"bytes")
    write(disk, "taken", b"kept")
    disk.link("one", "folder/two")
    disk.append("folder/two", [b"!"])
    assert read(disk, "one") == b"bytes!"
    fails_with(errno.EEXIST, disk.link, "one", "taken")
    fails_with(errno.EEXIST, disk.link, "one", "folder")
    fails_with(errno.ENOENT, disk.link, "nothing", "three")
    fails_with(errno.EPERM, disk.link, "folder", "three")
    disk.remove("one")
    assert read(disk, "folder/two") == b"bytes!"
    assert read(disk, "taken") == b"kept"


def test_remove(disk: Disk) -> None:
    disk.make_folder("folder")
    write(disk, "file", b"bytes")
    assert read(disk, "file") == b"bytes"
    disk.remove("file")
    assert not disk.exists("file")
    fails_with(errno.ENOENT, disk.remove, "file")
    fails_with(errno.EISDIR, disk.remove, "folder")
    write(disk, "file", b"other")
    assert read(disk, "file") == b"other"


def test_only_empty_folders_are_removed(disk: Disk) -> None:
    disk.make_folder("a/b")
    write(disk, "a/file", b"")
    fails_with(errno.ENOTEMPTY, disk.remove_folder, "a")
    fails_with(errno.ENOTDIR, disk.remove_folder, "a/file")
    fails_with(errno.ENOENT, disk.remove_folder, "a/nothing")
    disk.remove("a/file")
    disk.remove_folder("a/b")
    disk.remove_folder("a")
    assert disk.names("") == []


@pytest.mark.parametrize("path", ["nothing", "nowhere/file"])
def test_operations_on_what_is_not_there(disk: Disk, path: str) -> None:
    assert not disk.exists(path)
    fails_with(errno.ENOENT, disk.append, path, [b"bytes"])
    fails_with(errno.ENOENT, disk.append, path, [])
    fails_with(errno.ENOENT, disk.sync, path)
    fails_with(errno.ENOENT, disk.sync_folder, path)
    fails_with(errno.ENOENT, disk.truncate, path, 0)
    fails_with(errno.ENOENT, disk.read, path, 0, 1)
    fails_with(errno.ENOENT, disk.size, path)
    fails_with(errno.ENOENT, disk.remove, path)
    assert disk.names("") == []
    fails_with(errno.ENOENT, disk.create, "nowhere/file")


def test_a_file_is_no_folder(disk: Disk) -> None:
    write(disk, "file", b"")
    assert not disk.exists("file/below")
    fails_with(errno.ENOTDIR, disk.create, "file/below")
    fails_with(errno.ENOTDIR, disk.read, "file/below", 0, 1)
    fails_with(errno.ENOTDIR, disk.sync_folder, "file")


def test_a_folder_is_no_file(disk: Disk) -> None:
    disk.make_folder("folder")
    fails_with(errno.EISDIR, disk.append, "folder", [b"bytes"])
    fails_with(errno.EISDIR, disk.sync, "folder")
    fails_with(errno.EISDIR, disk.truncate, "folder", 0)
    fails_with(errno.EISDIR, disk.read, "folder", 0, 1)


# The local disk alone.


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalDisk]:
    with contextlib.closing(LocalDisk(tmp_path)) as disk:
        yield disk


@given(parts=st.lists(st.binary(max_size=9), max_size=9), steps=st.lists(st.integers(1, 20), min_size=1))
def test_a_write_that_takes_only_a_part_is_repeated(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], steps: list[int]
) -> None:
    turn = 0

    def some_of_it(descriptor: int, buffers: Sequence[memoryview]) -> int:
        nonlocal turn
        turn += 1
        return os.write(descriptor, b"".join(buffers)[: steps[turn % len(steps)]])

    with (
        contextlib.closing(LocalDisk(tmp_path_factory.mktemp("disk"))) as disk,
        pytest.MonkeyPatch.context() as patch,
    ):
        disk.create("file")
        patch.setattr(os, "writev", some_of_it)
        disk.append("file", parts)
        assert read(disk, "file") == b"".join(parts)


def test_a_write_that_takes_nothing_fails(local: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    local.create("file")
    monkeypatch.setattr(os, "writev", lambda descriptor, buffers: 0)
    fails_with(errno.EIO, local.append, "file", [b"bytes"])


def test_a_file_that_may_not_grow_keeps_the_part_that_was_written(local: LocalDisk) -> None:
    local.create("file")
    local.append("file", [b"synced"])
    local.sync("file")
    with file_size_limit(1_000):
        fails_with(errno.EFBIG, local.append, "file", [b"x" * 600, b"y" * 600])
    assert read(local, "file") == b"synced" + b"x" * 600 + b"y" * 394
    local.truncate("file", 6)
    local.append("file", [b" and more"])
    assert read(local, "file") == b"synced and more"


def test_another_root_is_another_disk(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with (
        contextlib.closing(LocalDisk(str(tmp_path))) as above,
        contextlib.closing(LocalDisk(tmp_path / "other")) as disk,
    ):
        write(disk, "file", b"bytes")
        assert read(above, "other/file") == b"bytes"


def test_a_reader_sees_a_file_that_another_process_put_in_place(local: LocalDisk) -> None:
    write(local, "file", b"old")
    local.sync("file")
    assert read(local, "file") == b"old"
    (local.root / "other").write_bytes(b"new, and longer")
    (local.root / "other").rename(local.root / "file")
    assert local.size("file") == 15
    local.forget_descriptors()
    assert read(local, "file") == b"new, and longer"


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
