"""The pool of descriptors: bounded when idle, never closing what is borrowed or dirty, whole after errors."""

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.descriptors import DescriptorPool
from storage.disk import LocalDisk

FILES = [f"file{number}" for number in range(12)]
BOUND = 3


def open_descriptors() -> set[str]:
    """Where this process's descriptors lead."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(link.readlink()))
        except FileNotFoundError:  # the one that listed the folder
            continue
    return found


def open_files(root: Path) -> list[str]:
    return sorted(Path(path).name for path in open_descriptors() if path.startswith(f"{root}/"))


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.fixture
def pool(root: Path) -> Iterator[DescriptorPool]:
    pool = DescriptorPool(root, descriptors_max=BOUND)
    yield pool
    pool.close()
    assert open_files(root) == []


def touch(pool: DescriptorPool, *paths: str) -> None:
    for path in paths:
        with pool.borrow(path):
            pass


def soil(pool: DescriptorPool, *paths: str) -> None:
    for path in paths:
        with pool.borrow_to_write(path):
            pass


def clean(pool: DescriptorPool, *paths: str) -> None:
    for path in paths:
        with pool.borrow_to_sync(path):
            pass


def test_idle_descriptors_are_bounded_and_the_longest_unused_go_first(pool: DescriptorPool, root: Path) -> None:
    touch(pool, *FILES[:BOUND])
    touch(pool, FILES[0], FILES[BOUND])
    assert open_files(root) == sorted([FILES[0], FILES[2], FILES[BOUND]])


def test_one_descriptor_serves_all_readers(pool: DescriptorPool) -> None:
    with pool.borrow("file0") as one, pool.borrow("file0") as two:
        assert one == two
    with pool.borrow("file0") as three:
        assert three == one


def test_a_borrowed_descriptor_is_never_closed(pool: DescriptorPool, root: Path) -> None:
    with pool.borrow("file0") as descriptor:
        touch(pool, *FILES)
        assert os.pread(descriptor, 9, 0) == b"file0"
        pool.forget("file0")
        pool.close()
        pool.close_clean()
        assert os.pread(descriptor, 9, 0) == b"file0"
        assert open_files(root) == ["file0"]
    assert open_files(root) == []


def test_a_forgotten_one_is_closed_by_its_last_borrower(pool: DescriptorPool, root: Path) -> None:
    with pool.borrow("file0") as old:
        with pool.borrow("file0"):
            pool.forget("file0")
            (root / "file0").unlink()
            (root / "file0").write_bytes(b"another")
            with pool.borrow("file0") as new:
                assert new != old
                assert os.pread(new, 9, 0) == b"another"
        assert os.pread(old, 9, 0) == b"file0"
        assert is_open(new)
    assert not is_open(old)
    assert is_open(new)


def test_dirty_ones_stay_open_beyond_the_bound_until_they_are_synced(pool: DescriptorPool, root: Path) -> None:
    dirty = FILES[: BOUND + 2]
    soil(pool, *dirty)
    touch(pool, *FILES)
    assert set(open_files(root)) >= set(dirty)
    pool.close_clean()
    assert open_files(root) == dirty
    clean(pool, *dirty)
    assert len(pool) == len(open_files(root)) == BOUND


def test_a_sync_that_raised_has_told_all_there_is_to_tell(pool: DescriptorPool, root: Path) -> None:
    soil(pool, "file0")
    with pytest.raises(OSError, match="broken"), pool.borrow_to_sync("file0"):
        raise OSError(errno.EIO, "broken")
    pool.close_clean()
    assert open_files(root) == []


def test_a_write_during_a_sync_is_not_covered_by_it(pool: DescriptorPool, root: Path) -> None:
    with pool.borrow_to_sync("file0"):
        soil(pool, "file0")
    with pool.borrow_to_write("file1"):
        clean(pool, "file1")
    with pool.borrow_to_sync("file2"):
        writing = pool.borrow_to_write("file2")
        writing.__enter__()
    writing.__exit__(None, None, None)
    pool.close_clean()
    assert open_files(root) == ["file0", "file1", "file2"]
    clean(pool, "file0", "file1", "file2")
    pool.close_clean()
    assert open_files(root) == []


def test_a_failed_write_leaves_the_file_dirty(pool: DescriptorPool, root: Path) -> None:
    with pytest.raises(OSError, match="full"), pool.borrow_to_write("file0"):
        raise OSError(errno.ENOSPC, "full")
    touch(pool, *FILES)
    assert "file0" in open_files(root)


def test_a_file_that_cannot_be_opened_leaves_nothing_behind(pool: DescriptorPool, root: Path) -> None:
    for lend in (pool.borrow, pool.borrow_to_write, pool.borrow_to_sync):
        with pytest.raises(FileNotFoundError), lend("nothing"):
            pytest.fail("there is nothing to lend")
    assert len(pool) == 0
    (root / "nothing").touch()
    touch(pool, "nothing")
    assert open_files(root) == ["nothing"]


def test_a_renamed_file_keeps_its_descriptor_and_its_dirt(pool: DescriptorPool, root: Path) -> None:
    soil(pool, "file0")
    touch(pool, "file1")
    (root / "file0").rename(root / "file1")
    pool.move("file0", "file1")
    pool.close_clean()
    assert open_files(root) == ["file1"]
    with pool.borrow("file1") as descriptor:
        assert os.pread(descriptor, 9, 0) == b"file0"
    clean(pool, "file1")
    pool.close_clean()
    assert open_files(root) == []


def test_an_existing_file_keeps_its_dirty_descriptor_when_create_refuses(root: Path) -> None:
    disk = LocalDisk(root, descriptors_max=BOUND)
    disk.append("file0", [b"unsynced"])
    with pytest.raises(FileExistsError):
        disk.create("file0")
    assert open_files(root) == ["file0"]
    disk.close()


def test_threads_that_use_more_files_than_the_bound(root: Path) -> None:
    disk = LocalDisk(root, descriptors_max=BOUND)
    start = threading.Barrier(4)
    rounds_count = 30

    def work(number: int) -> None:
        start.wait()
        for turn in range(rounds_count):
            for step in range(len(FILES)):
                path = FILES[(step * (number + 1) + turn) % len(FILES)]
                disk.append(path, [b"%d" % number])
                assert disk.read(path, 0, 9).startswith(path[:4].encode())
                if step % 3 == number % 3:
                    disk.sync(path)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    for path in FILES:
        disk.sync(path)
    assert len(open_files(root)) <= BOUND
    appended = "".join(disk.read(path, len(path), 10_000).decode() for path in FILES)
    assert {number: appended.count(number) for number in "0123"} == dict.fromkeys("0123", rounds_count * len(FILES))
    disk.close()
    assert open_files(root) == []


def test_threads_that_read_while_files_are_replaced(root: Path) -> None:
    disk = LocalDisk(root, descriptors_max=BOUND)
    done = threading.Event()

    def read() -> int:
        reads_count = 0
        while not done.is_set() or not reads_count:
            for path in FILES[:6]:
                data = disk.read(path, 0, 99)
                assert data in (path.encode(), b"new " + path.encode())  # never another file's bytes
                reads_count += 1
        return reads_count

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        try:
            for turn in range(200):
                path = FILES[turn % 6]
                disk.create("temporary")
                disk.append("temporary", [b"new ", path.encode()])
                disk.sync("temporary")
                disk.rename("temporary", path)
        finally:
            done.set()
        assert all(reader.result() for reader in readers)
    assert [disk.read(path, 0, 99) for path in FILES[:6]] == [b"new " + path.encode() for path in FILES[:6]]
    assert len(open_files(root)) <= BOUND
    disk.close()


def test_who_lets_go_of_a_disk_leaves_nothing_open(root: Path) -> None:
    disk = LocalDisk(root)
    assert disk.read(FILES[0], 0, 99)
    disk.append(FILES[1], [b"more"])
    assert open_files(root) == FILES[:2]
    del disk
    assert open_files(root) == []
