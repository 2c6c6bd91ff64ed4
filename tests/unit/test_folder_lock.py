"""One writer a folder: in one process, between processes, after a process died, and what people are told."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from storage.errors import FolderInUse, SharedDiskFault
from storage.folder_lock import LOCK_NAME, FolderLock

NOW = 1_700_000_000_000_000

HOLDER = """
import sys
from storage.folder_lock import FolderLock
lock = FolderLock(sys.argv[1], started_at=1)
sys.stdout.write("held\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder until its standard input ends, or it is killed."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def told(folder: Path) -> FolderInUse:
    with pytest.raises(FolderInUse) as raised:
        FolderLock(folder, started_at=NOW)
    return raised.value


def test_a_folder_is_held_once_in_a_process(tmp_path: Path) -> None:
    with FolderLock(tmp_path, started_at=NOW):
        error = told(tmp_path)
        assert "this process itself" in error.message
        assert error.facts == {"pid": os.getpid(), "host": os.uname().nodename, "started_at": NOW}
    FolderLock(tmp_path, started_at=NOW).release()


def test_two_folders_are_two_locks(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with FolderLock(tmp_path / "a", started_at=NOW), FolderLock(tmp_path / "b", started_at=NOW):
        pass


def test_release_is_idempotent_and_takes_nothing_from_the_next_holder(tmp_path: Path) -> None:
    first = FolderLock(tmp_path, started_at=NOW)
    first.release()
    with FolderLock(tmp_path, started_at=NOW):
        first.release()
        assert told(tmp_path).facts["pid"] == os.getpid()
    assert (tmp_path / LOCK_NAME).read_bytes() == b""


def test_another_process_is_named(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    error = told(tmp_path)
    assert f"process {holder.pid} writes to" in error.message
    assert error.facts["pid"] == holder.pid
    assert error.facts["started_at"] == 1


def test_the_death_of_the_holder_frees_the_folder(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert orjson.loads((tmp_path / LOCK_NAME).read_bytes())["pid"] == holder.pid  # left over, and nobody minds
    with FolderLock(tmp_path, started_at=NOW):
        assert told(tmp_path).facts["pid"] == os.getpid()


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b'{"pid": 1}', b'{"pid": -1, "host": "a", "started_at": 1}', b"\xff"]
)
def test_a_holder_that_said_nothing_sensible_is_unknown(tmp_path: Path, text: bytes) -> None:
    with FolderLock(tmp_path, started_at=NOW):
        (tmp_path / LOCK_NAME).write_bytes(text)
        error = told(tmp_path)
        assert error.facts == {"pid": "unknown"}
        assert "has not said" in error.message


def test_a_pid_that_is_gone_or_of_another_host_is_called_so(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    host = os.uname().nodename
    with FolderLock(tmp_path, started_at=NOW):
        (tmp_path / LOCK_NAME).write_bytes(orjson.dumps({"pid": gone.pid, "host": host, "started_at": 1}))
        error = told(tmp_path)
        assert "is gone" in error.message
        assert error.facts["stale"] is True
        (tmp_path / LOCK_NAME).write_bytes(orjson.dumps({"pid": 1, "host": "elsewhere", "started_at": 1}))
        assert "process 1 of elsewhere" in told(tmp_path).message


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SharedDiskFault, match="No such file"):
        FolderLock(tmp_path / "absent", started_at=NOW)


def test_what_the_file_said_before_is_replaced(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(b"x" * 5_000)
    with FolderLock(tmp_path, started_at=NOW):
        assert orjson.loads((tmp_path / LOCK_NAME).read_bytes())["pid"] == os.getpid()
