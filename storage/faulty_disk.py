"""A disk that fails as it is told: it wraps another one and asks a plan about each call. For tests and simulations.

A fault is two decisions, and neither follows from the other: whether the call takes effect, and what its caller is
told.

                      told that it failed                told that it was done
    it happened       the one that finds defects         no fault
    it did not        a plain failure                    a lie, which nothing survives

Invariants:
    the same plan (rules, or seed and odds) and the same calls meet the same faults
    a `sync` that did not happen is never made up for: later ones of that file do nothing, whatever they report,
        since a kernel drops the bytes that it failed to write back. Healing does not bring them back either
    while `healthy`, no new fault comes, and the plan does not hear of the calls
"""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from storage.disk import Bytes, Disk, Stamp

Result = TypeVar("Result")

Changing = Literal[
    "create", "append", "sync", "truncate", "make_folder", "sync_folder", "rename", "link", "remove", "remove_folder"
]
Reading = Literal["read", "size", "stamp", "exists", "names"]
Operation = Changing | Reading


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one call."""

    error: int | None = errno.EIO
    """The errno that the caller is told; None is a lie."""
    happens: bool = False
    """Whether it takes effect. Reading has none."""
    appended: int | None = None
    """Bytes of an `append` that happens which reach the file; None is all of them."""


class Plan(Protocol):
    """Decides about each call, in the order of the calls."""

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:
        """What is wrong with this call, if anything. `size` is how many bytes an `append` has, else 0."""


class NoFaults:
    """The plan of a sound disk."""

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:  # noqa: ARG002 - a plan's signature
        """None."""
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """Some calls of one kind, and what is wrong with them: "the third sync of a journal finds the disk full"."""

    operation: Operation
    fault: Fault
    path: str = "*"
    """A pattern as shells have it, where `*` also matches `/`. Of two paths (rename, link), the new one."""
    first: int = 1
    """The first call that is met, counted from 1 among those that match."""
    calls: int | None = 1
    """How many calls are met from there; None is all of them."""

    def matches(self, operation: Operation, path: str) -> bool:
        """Whether the call counts."""
        return operation == self.operation and fnmatchcase(path, self.path)

    def meets(self, number: int) -> bool:
        """Whether the call with this number among those that match is met."""
        return self.first <= number and (self.calls is None or number < self.first + self.calls)


class Script:
    """Faults by rules; the first rule that meets a call has it, and every rule counts it."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules
        self._counts = [0] * len(rules)

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:  # noqa: ARG002 - a plan's signature
        """The fault of the first rule that meets the call."""
        found = None
        for index, rule in enumerate(self._rules):
            if rule.matches(operation, path):
                self._counts[index] += 1
                if found is None and rule.meets(self._counts[index]):
                    found = rule.fault
        return found


WRITING_ERRORS: Final = (errno.ENOSPC, errno.EIO, errno.EROFS)
"""Errors of a disk that all files share. Those of one file (EACCES, ENOENT) are for rules, or for `errors` below."""


@dataclass(slots=True)
class Odds:
    """Faults by chance. Odds are between 0 and 1, for each call."""

    random: Random
    """Decides everything, so its seed repeats a run."""
    change_fails: float = 0.0
    """A call that changes something, and is no sync, is reported as failed."""
    sync_fails: float = 0.0
    """A `sync` or `sync_folder` is reported as failed."""
    read_fails: float = 0.0
    """A call that changes nothing fails."""
    failed_happens: float = 0.5
    """A change that is reported as failed takes effect; an `append` also by any part of its bytes."""
    lies: float = 0.0
    """A change that is reported as done did not take effect."""
    calls_max: int = 1
    """A fault is followed by failures of the next calls, up to so many in all: a full disk stays full for a while."""
    errors: Sequence[int] = WRITING_ERRORS
    """What changes fail with, all those in a row with the same. Reading and syncing fail with EIO."""
    _calls_left: int = field(default=0, init=False)
    _error: int = field(default=errno.EIO, init=False)

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:  # noqa: ARG002 - a plan's signature
        """Drawn for this call."""
        fails = self._odds_of(operation)
        if self._calls_left and fails:  # what never fails does not fail in a row either
            self._calls_left -= 1
        elif self.random.random() < fails:
            self._calls_left = self.random.randrange(self.calls_max)
            self._error = self.random.choice(self.errors)
        elif operation not in _READING and self.random.random() < self.lies:
            return Fault(error=None)
        else:
            return None
        if operation in _READING:
            return Fault()
        error = errno.EIO if operation in _SYNCING else self._error
        happens = self.random.random() < self.failed_happens
        return Fault(error, happens, self.random.randrange(size + 1) if size and self.random.random() < 0.5 else None)

    def _odds_of(self, operation: Operation) -> float:
        if operation in _READING:
            return self.read_fails
        return self.sync_fails if operation in _SYNCING else self.change_fails


_READING: Final = frozenset({"read", "size", "stamp", "exists", "names"})
_SYNCING: Final = frozenset({"sync", "sync_folder"})


class Injected(NamedTuple):
    """A line of the log."""

    number: int
    """Of the call, counted from 1 since the disk was made, sound calls included."""
    operation: Operation
    path: str
    fault: Fault

    def __str__(self) -> str:
        told = "done" if self.fault.error is None else errno.errorcode.get(self.fault.error, str(self.fault.error))
        part = "" if self.fault.appended is None else f" {self.fault.appended} bytes of it"
        did = f"happened{part}" if self.fault.happens else "did not happen"
        return f"call {self.number}, {self.operation} {self.path}: {did}, told {told}"


class FaultyDisk:
    """A `Disk` around another. `healthy` switches faults off and on again at any time."""

    syncs_at_once = 1

    def __init__(self, disk: Disk, plan: Plan, *, forgotten: Iterable[str] = ()) -> None:
        """`forgotten`: what was, by an earlier process; the kernel lives on."""
        self.disk = disk
        self.plan = plan
        self.healthy = False
        self.log: list[Injected] = []
        """The faults so far, in order."""
        self._calls = 0
        self._forgotten = set(forgotten)  # files whose bytes the kernel dropped
        self._lock = threading.Lock()

    @property
    def forgotten(self) -> frozenset[str]:
        """Files of which a sync failed: later ones do nothing, in this process and in those that follow."""
        return frozenset(self._forgotten)

    def create(self, path: str) -> None:
        """May leave a file although it says that it failed."""
        self._change("create", path, lambda: self._created(path))

    def append(self, path: str, buffers: Sequence[Bytes]) -> None:
        """May write any first part of the bytes."""
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        fault = self._fault("append", path, size)
        if fault is None:
            self.disk.append(path, buffers)
            return
        if fault.happens:
            self.disk.append(path, [b"".join(buffers)[: fault.appended]])
        _tell(fault, path)

    def sync(self, path: str) -> None:
        """May be the last that has an effect on this file."""
        fault = self._fault("sync", path)
        if fault is not None and not fault.happens:
            self._forgotten.add(path)
        if path in self._forgotten:
            self.disk.size(path)  # raises what a sync would, if the file is not there
        else:
            self.disk.sync(path)
        _tell(fault, path)

    def truncate(self, path: str, size: int) -> None:
        """All or nothing."""
        self._change("truncate", path, lambda: self.disk.truncate(path, size))

    def read(self, path: str, position: int, size: int) -> bytes:
        """What is read is never wrong: checksums are tested by damage to the files themselves."""
        return self._read("read", path, lambda: self.disk.read(path, position, size))

    def read_buffer(self, path: str, position: int, size: int) -> memoryview:
        """A read like any other."""
        return memoryview(self.read(path, position, size))

    def size(self, path: str) -> int:
        """May fail."""
        return self._read("size", path, lambda: self.disk.size(path))

    def stamp(self, path: str) -> Stamp:
        """May fail."""
        return self._read("stamp", path, lambda: self.disk.stamp(path))

    def exists(self, path: str) -> bool:
        """May fail."""
        return self._read("exists", path, lambda: self.disk.exists(path))

    def names(self, folder: str) -> list[str]:
        """May fail."""
        return self._read("names", folder, lambda: self.disk.names(folder))

    def make_folder(self, folder: str) -> None:
        """All or nothing."""
        self._change("make_folder", folder, lambda: self.disk.make_folder(folder))

    def sync_folder(self, folder: str) -> None:
        """Unlike a file's, a failed one may be made up for later: a file system keeps its names in a journal."""
        self._change("sync_folder", folder, lambda: self.disk.sync_folder(folder))

    def rename(self, old: str, new: str) -> None:
        """All or nothing."""
        self._change("rename", new, lambda: self._renamed(old, new))

    def link(self, old: str, new: str) -> None:
        """All or nothing."""
        self._change("link", new, lambda: self._linked(old, new))

    def remove(self, path: str) -> None:
        """All or nothing."""
        self._change("remove", path, lambda: self._removed(path))

    def remove_folder(self, folder: str) -> None:
        """All or nothing."""
        self._change("remove_folder", folder, lambda: self.disk.remove_folder(folder))

    def _fault(self, operation: Operation, path: str, size: int = 0) -> Fault | None:
        with self._lock:
            self._calls += 1
            fault = None if self.healthy else self.plan.fault(operation, path, size)
            if fault is not None:
                self.log.append(Injected(self._calls, operation, path, fault))
            return fault

    def _change(self, operation: Changing, path: str, call: Callable[[], None]) -> None:
        fault = self._fault(operation, path)
        if fault is None or fault.happens:
            call()
        _tell(fault, path)

    def _read(self, operation: Reading, path: str, call: Callable[[], Result]) -> Result:
        _tell(self._fault(operation, path), path)
        return call()

    # What the kernel forgot belongs to a file, which its names lead to.

    def _created(self, path: str) -> None:
        self.disk.create(path)
        self._forgotten.discard(path)

    def _renamed(self, old: str, new: str) -> None:
        self.disk.rename(old, new)
        is_forgotten = old in self._forgotten
        self._forgotten -= {old, new}
        if is_forgotten:
            self._forgotten.add(new)

    def _linked(self, old: str, new: str) -> None:
        self.disk.link(old, new)
        if old in self._forgotten:
            self._forgotten.add(new)

    def _removed(self, path: str) -> None:
        self.disk.remove(path)
        self._forgotten.discard(path)


def _tell(fault: Fault | None, path: str) -> None:
    if fault is not None and fault.error is not None:
        raise OSError(fault.error, os.strerror(fault.error), path)
