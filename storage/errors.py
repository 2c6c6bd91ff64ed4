"""What can go wrong in storage: a class for each condition, with a code, the facts, and a hint where a person can act.

Three families decide what happens next, and nothing else needs to look closer:

- `SharedDiskFault`: the disk all logs share is full, broken or read-only. Writing pauses, and resumes with the disk.
- `LogFault`: one log is damaged. That log stops; what it had on disk stays readable; the others go on.
- the rest is the caller's: a bad argument, a position out of reach, a full buffer.
"""

import contextlib
import errno
from collections.abc import Iterator
from typing import Any, ClassVar, Self


class StorageError(Exception):
    """The root of storage's errors. Picklable, since errors cross to other processes."""

    code: ClassVar[str] = "storage"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        said = f"[{self.code}] {self.message}" + (f" ({facts})" if facts else "")
        stop = "" if said.endswith((".", "?", "!")) else "."
        return f"{said}{stop} {self.hint}" if self.hint else said

    def anew(self) -> Self:
        """The same error without a past, to be kept, or raised by each who meets it.

        One that was raised holds the frames it came through and all of their variables, and gets more with every raise:
        a damage that is met by each read would hold the rows of each.
        """
        return type(self)(self.message, **self.facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.facts)


def _rebuild(kind: type[StorageError], message: str, facts: dict[str, Any]) -> StorageError:
    return kind(message, **facts)


class InvalidOffset(StorageError):
    """The text is not an offset."""

    code = "invalid_offset"
    hint = "An offset looks like 26800584_4, 26800584_inf, 0_3 or -1."


class InvalidRows(StorageError):
    """Rows handed to a log do not have a log's columns, or are not in order."""

    code = "invalid_rows"
    hint = "Rows need the columns tx, op, kind and new, and offsets that grow."


class Misuse(StorageError):
    """A call that cannot be right in this state, whatever the disk does: a defect in the caller."""

    code = "misuse"
    hint = "This is a defect in the program; please report it with the message."


class FolderInUse(StorageError):
    """Another process writes to this data folder."""

    code = "folder_in_use"
    hint = "Stop that process, or choose another data folder; two writers would overwrite each other."


class BufferFull(StorageError):
    """The write buffer has no room; nothing was taken, and the same call will do once a flush has finished."""

    code = "buffer_full"
    hint = "Wait for a flush to finish, then append the same rows again."


class WriterStops(StorageError):
    """The write buffer has no room, and none will be made: the writer stops. Nothing was taken."""

    code = "writer_stops"
    hint = "Acknowledge nothing of these rows: the source sends them again after the next start."


class SharedDiskFault(StorageError):
    """The disk that all logs share cannot be written: full, broken or read-only. Nothing is lost; writing pauses."""

    code = "shared_disk_fault"
    hint = "Free space or mend the disk; writing resumes by itself, and no shape is ended for this."

    @property
    def told_at_the_end(self) -> str:
        """What to say where the program ended with it: nobody resumes there."""
        return str(self).removesuffix(self.hint) + "Free space or mend the disk, then try again; nothing is lost."


class DiskStalled(SharedDiskFault):
    """A write or a sync of the disk that all logs share has not returned; whether it succeeds, nobody knows yet."""

    code = "disk_stalled"
    hint = "Look at the disk: the process waits in a system call, and goes on as soon as that returns."


class UnknownLog(StorageError):
    """No log has this number, or it was removed."""

    code = "unknown_log"
    hint = "List the logs of the folder; a removed log does not come back, a new snapshot gets a new number."


class Refetch(StorageError):
    """The position lies below what the log still keeps."""

    code = "refetch"
    hint = "Begin anew at -1: with the log's present base, then on from its floor."


class AboveUpper(StorageError):
    """The position lies above everything that the log has."""

    code = "above_upper"
    hint = "After a crash a log may stand lower than before until the stream has caught up; ask again a little later."


class InvalidLease(StorageError):
    """A lease that nobody can take."""

    code = "invalid_lease"
    hint = "Choose a short plain name for the reader, and an end that lies in the future, within the limit."


class CannotFold(StorageError):
    """The log cannot be folded into a base: its rows have no key, or some value was never sent."""

    code = "cannot_fold"
    hint = "Take a new snapshot instead. A primary key and REPLICA IDENTITY FULL let a log be folded."


class CorruptRecord(StorageError):
    """A record in the middle of a record log (progress, catalog) is damaged."""

    code = "corrupt_record"
    hint = "Restore the file from a copy; `shapelog recover` says what is lost without it."


class LogFault(StorageError):
    """One log is damaged; the others are not."""

    code = "log_fault"
    hint = "What is durable can still be read; take a new snapshot of this shape."


class CorruptBlock(LogFault):
    """A block's bytes are not those that were written."""

    code = "corrupt_block"
    hint = "The disk or somebody changed the file; what lies before it can be read. Take a new snapshot of this shape."


class UnknownFormat(LogFault):
    """The file was written by another version, or is not ours."""

    code = "unknown_format"
    hint = "Open the folder with the version that wrote it, or take a new snapshot of this shape."


class Hole(LogFault):
    """Two neighbouring parts of a log do not meet, and no record explains why."""

    code = "hole"
    hint = "A file is missing in the log's folder. Restore it, or take a new snapshot of this shape."


class SourceGap(LogFault):
    """The source went on above what the log had; in append mode that means that changes are missing."""

    code = "source_gap"
    hint = "Changes between the two offsets never arrived. Take a new snapshot of this shape."


class WentBackwards(LogFault):
    """Rows or commits came in descending order."""

    code = "went_backwards"
    hint = "The source repeats itself in another order than before; stop and look, since no order can be trusted now."


class PermissionLost(LogFault):
    """The log's files may no longer be read or written."""

    code = "permission_lost"
    hint = "Give the process's user its rights on the log's folder back, then restart."


class FileVanished(LogFault):
    """A file of the log was removed by somebody else."""

    code = "file_vanished"
    hint = "Restore the file, or take a new snapshot of this shape."


class LogPoisoned(LogFault):
    """The log met a fault earlier and takes no more rows in this process."""

    code = "log_poisoned"
    hint = "The first fault is named in the message; mend it and restart, or end the shape."


SHARED_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.ENODEV,
        errno.ENXIO,
        errno.EREMOTEIO,
        errno.ETIMEDOUT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)
"""Faults of the machine rather than of one file (A9); running out of descriptors passes, as a full disk does."""


def from_os_error(error: OSError, path: str, *, shared: bool = False, **facts: Any) -> StorageError:
    """Name an operating system's error. `shared` says that the file belongs to all logs, so its loss stops all."""
    reason = error.strerror or str(error)
    if shared or error.errno in SHARED_ERRNOS:
        return SharedDiskFault(f"{path}: {reason}", errno=errno.errorcode.get(error.errno or 0, "?"), **facts)
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionLost(f"{path}: {reason}", **facts)
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return FileVanished(f"{path}: {reason}", **facts)
    return LogFault(f"{path}: {reason}", errno=errno.errorcode.get(error.errno or 0, "?"), **facts)


@contextlib.contextmanager
def named_faults(path: str, *, shared: bool = False, **facts: Any) -> Iterator[None]:
    """Name what the operating system says in the block; `path` is what is at stake."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path, shared=shared, **facts) from None


class InvalidIncarnation(StorageError):
    """The text or the numbers do not name an incarnation of a replication slot."""

    code = "invalid_incarnation"
    hint = "An incarnation looks like 7301234567890123456-1-1700000000000000."
