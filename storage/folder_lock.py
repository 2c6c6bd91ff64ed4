"""One writer for a data folder: a lock that the kernel holds for this process and drops with it.

The file `LOCK` says who has it, for people; the lock itself is the kernel's (`flock`), so that nothing has to be
cleaned up after a crash. The file is never removed: two processes could then hold locks on two files of that name.

Invariants:
    at most one `FolderLock` of a folder is held at a time, on this machine, threads of one process included
    what the file says is a message, not the truth: it may be missing, or left over
"""

import contextlib
import fcntl
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson

from storage.errors import FolderInUse, from_os_error

LOCK_NAME: Final = "LOCK"

_HOLDER_BYTES_MAX: Final = 4096
"""A holder is a few short facts; what is longer was not written by us."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a folder."""

    pid: int
    host: str
    started_at: int
    """Microseconds since 1970."""


class FolderLock:
    """A held lock. Forked children share it: `release` drops it for all of them, the end of one for none."""

    def __init__(self, folder: Path | str, *, started_at: int) -> None:
        """Take the lock, or raise `FolderInUse` at once."""
        self._path = Path(folder) / LOCK_NAME
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise from_os_error(error, str(self._path), shared=True) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            told = os.pread(self._descriptor, _HOLDER_BYTES_MAX, 0)
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                raise from_os_error(error, str(self._path), shared=True) from error
            raise _folder_in_use(Path(folder), told) from None
        self._tell(orjson.dumps(asdict(Holder(os.getpid(), os.uname().nodename, started_at))))

    def release(self) -> None:
        """Let others have the folder. Again is nothing."""
        if self._descriptor >= 0:
            self._tell(b"")
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a forked child may still have the descriptor
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _tell(self, text: bytes) -> None:
        """Write for people what we are. On a full disk they go without: the lock is what counts."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)


def _folder_in_use(folder: Path, told: bytes) -> FolderInUse:
    """The error, with as much as can be said about who has the folder."""
    holder = _holder_of(told)
    if holder is None:
        return FolderInUse(f"another process writes to {folder}, and has not said which one it is", pid="unknown")
    facts: dict[str, Any] = {"pid": holder.pid, "host": holder.host, "started_at": holder.started_at}
    if holder.host != os.uname().nodename:
        return FolderInUse(f"process {holder.pid} of {holder.host} writes to {folder}", **facts)
    if not _is_alive(holder.pid):
        message = f"process {holder.pid} had {folder} and is gone; a child of it, or another container, still holds it"
        return FolderInUse(message, stale=True, **facts)
    who = "this process itself" if holder.pid == os.getpid() else f"process {holder.pid}"
    return FolderInUse(f"{who} writes to {folder}", **facts)


def _holder_of(told: bytes) -> Holder | None:
    try:
        holder = Holder(**orjson.loads(told))
    except (ValueError, TypeError):
        return None
    is_sound = type(holder.pid) is int and 0 < holder.pid < 1 << 31
    return holder if is_sound else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True
