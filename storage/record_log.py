"""A durable list of small records: appended with a sync, rewritten when long, read by other processes.

The log `catalog` is the file `catalog.000001`; a rewrite makes `catalog.000002` (under a temporary name, synced,
renamed, the folder synced) and then removes the old one. The highest number is the truth. A number is never used
twice, so an open descriptor can never mean another file than its name does.

A file is only ever appended to while nothing about it is in doubt. After a failed write or sync, and at an opening
that finds a tail which is torn or not proven to be durable, the log goes on in another file. Cutting the tail would
not do: a sync that fails is reported once, maybe to a process that died of it, and the next one could not tell such a
file from a sound one. So what looks sound never met a fault.

Invariants:
    a file under its final name begins with records and a mark that were synced before it got that name
    synced <= size, with nothing but a mark between them; no byte of a file is ever written twice or cut
    `read` gives what was acknowledged, in order; a crash leaves that and a prefix of the append under way
    a new file holds only what was acknowledged: a reader may see it before its name is certain
    a lower number is removed only after the sync of the folder that has the higher one
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.disk import Disk
from storage.errors import CorruptRecord, Misuse, from_os_error
from storage.limits import RECORD_BYTES_MAX, RECORD_LOG_BYTES_MAX, RECORD_LOG_READ_ATTEMPTS
from storage.record_frame import FRAME_SIZE, encode_mark, encode_records, scan

_NUMBER: Final = re.compile(r"\.(\d{6,})(\.tmp)?", re.ASCII)


class RecordLog:
    """The writer's end; one at a time for a folder (`storage.folder_lock`), and one thread at a time."""

    def __init__(self, disk: Disk, path: str, bytes_max: int = RECORD_LOG_BYTES_MAX) -> None:
        self._disk = disk
        self._path = path
        self._bytes_max = bytes_max
        self._count = 0
        """Records that were acknowledged: all that is in .."""
        self._certain = 0
        """.. the file of this number, which is another than the next one while a rewrite's name is in doubt."""
        self._opened: list[bytes] | None = None
        self._number = 0
        self._size = 0
        self._synced = 0
        self._rewrite_at = bytes_max
        self._is_sound = False
        with _named_faults(path):
            self._open()

    def read(self) -> list[bytes]:
        """Every record that was acknowledged, in order.

        From the file: of thousands of shapes they are megabytes. Only what the opening read is kept for the first call.
        """
        opened, self._opened = self._opened, None
        with _named_faults(self._path):
            return self._read_back() if opened is None else opened

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    @property
    def is_long(self) -> bool:
        """Whether it is time for a `rewrite` with what still lives.

        The bound is at least twice what the last rewrite left, so that rewriting costs less than appending did.
        """
        return self._size > self._rewrite_at

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last append failed: a `rewrite` with what its owner knows needs nothing of that file.

        Without it the next append reads the file, which a disk that just failed may refuse.
        """
        return not self._is_sound

    def append(self, payloads: Sequence[bytes]) -> None:
        """Add records with one write and one sync. If it raises, they may or may not be there after a crash."""
        _check(payloads)
        if not payloads:
            return
        with _named_faults(self._path):
            if not self._is_sound:
                self._replace(self._read_back())
            frames = encode_records(payloads, self._synced)
            self._opened = None
            self._is_sound = False  # unless both of these return
            self._disk.append(self._name, [frames])
            self._disk.sync(self._name)
        self._size += len(frames)
        self._synced = self._size
        self._count += len(payloads)
        # The mark is for readers. The records are durable without it, so its failure is not the caller's concern.
        with contextlib.suppress(OSError):
            self._disk.append(self._name, [encode_mark(self._synced)])
            self._size += FRAME_SIZE
            self._is_sound = True

    def rewrite(self, records: Sequence[bytes]) -> None:
        """Put these, which stand for the same facts, in the place of all records; if it raises, nothing changed."""
        _check(records)
        self._opened = None
        with _named_faults(self._path):
            self._replace(records)

    @property
    def _name(self) -> str:
        return _file_name(self._path, self._number)

    def _read_back(self) -> list[bytes]:
        """What was certain before a write or sync failed behind it: as long as the disk can still read it."""
        name = _file_name(self._path, self._certain)
        found = scan(self._disk.read(name, 0, self._size))
        if len(found.records) != self._count:
            raise CorruptRecord(f"{name}: the file lost records that were durable", size=found.end)
        return found.records

    def _open(self) -> None:
        numbers = _numbers(self._disk, self._path)
        if not numbers:
            self._replace([])
            self._opened = []
            return
        # The folder first: the name may be as young as the crash, and the older file goes only when it is certain.
        self._disk.sync_folder(_folder(self._path))
        self._number = self._certain = max(numbers)
        size = self._disk.size(self._name)
        found = scan(self._disk.read(self._name, 0, size))
        if not found.is_marked:
            raise CorruptRecord(f"{self._name}: the file's beginning is damaged", size=size)
        self._count, self._size, self._synced = len(found.records), found.end, found.proven
        if found.end == size and len(found.proven_records()) == len(found.records):
            self._is_sound = True
            self._sweep()
        else:
            self._replace(found.records)
        self._opened = found.records

    def _replace(self, records: Sequence[bytes]) -> None:
        number = self._number + 1
        temporary = _file_name(self._path, number) + ".tmp"
        frames = encode_records(records, synced_before=0)
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        self._disk.create(temporary)
        try:
            # The mark may come before the sync, since nobody looks at this file before it has its name.
            self._disk.append(temporary, [frames, encode_mark(len(frames))])
            self._disk.sync(temporary)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.remove(temporary)  # on a full disk, its room is wanted
            raise
        # From here to the end of the folder's sync, a crash may leave either name: neither file takes an append.
        self._number = number
        self._is_sound = False
        self._disk.rename(temporary, self._name)
        self._disk.sync_folder(_folder(self._path))
        self._count, self._certain = len(records), number
        self._synced = len(frames)
        self._size = len(frames) + FRAME_SIZE
        self._rewrite_at = max(self._bytes_max, 2 * self._size)
        self._is_sound = True
        self._sweep()

    def _sweep(self) -> None:
        """Remove the files that are not the truth; what stays now goes at the next opening."""
        with contextlib.suppress(OSError):
            for name in _file_names(self._disk, self._path):
                if name != self._name:
                    self._disk.remove(name)


@dataclass(frozen=True, slots=True)
class Fresh:
    """What a reader found since it last looked."""

    restarted: bool
    """The log was rewritten (or is read for the first time): `records` are all there are, not those since."""
    records: list[bytes]


class RecordLogReader:
    """The end of other processes: sees what the writer's sync has returned for, and changes nothing."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._number = 0
        self._proven = 0

    def refresh(self) -> Fresh:
        """The records since the last call; nothing as long as the log does not exist."""
        for _ in range(RECORD_LOG_READ_ATTEMPTS):
            try:
                with _named_faults(self._path, but=FileNotFoundError):
                    return self._read()
            except FileNotFoundError:
                continue  # replaced after we had listed the folder
        return Fresh(restarted=False, records=[])

    def restart(self) -> None:
        """Give everything again the next time: for a caller that could not use what it got."""
        self._number = 0

    def _read(self) -> Fresh:
        number = max(_numbers(self._disk, self._path), default=0)
        if number < self._number or number == 0:
            return Fresh(restarted=False, records=[])  # a listing taken during a rename may miss both names
        restarted = number != self._number
        name = _file_name(self._path, number)
        start = 0 if restarted else self._proven
        size = self._disk.size(name)
        found = scan(self._disk.read(name, start, max(size - start, 0)), start)
        if size < start or (restarted and not found.is_marked):
            raise CorruptRecord(f"{name}: the file lost records that were durable", size=size)
        self._number, self._proven = number, found.proven
        return Fresh(restarted, found.proven_records())


def _check(payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        if len(payload) > RECORD_BYTES_MAX:
            raise Misuse(f"a record of {len(payload)} bytes is above the limit of {RECORD_BYTES_MAX}")


def _file_name(path: str, number: int) -> str:
    return f"{path}.{number:06d}"


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _file_names(disk: Disk, path: str) -> list[str]:
    """The files of this log, temporary ones too."""
    folder, slash, stem = path.rpartition("/")
    names = [name for name in disk.names(folder) if name.startswith(stem) and _NUMBER.fullmatch(name, len(stem))]
    return [f"{folder}{slash}{name}" for name in names]


def _numbers(disk: Disk, path: str) -> list[int]:
    """The numbers of this log's files that have their final name."""
    return [int(name[len(path) + 1 :]) for name in _file_names(disk, path) if not name.endswith(".tmp")]


@contextlib.contextmanager
def _named_faults(path: str, but: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    try:
        yield
    except but:
        raise
    except OSError as error:
        raise from_os_error(error, path, shared=True) from error
