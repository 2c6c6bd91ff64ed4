"""The names of files and folders in a data folder, and what they say."""

import re
from typing import Final, NamedTuple, Self

from storage.offset import LogOffset

CATALOG: Final = "catalog"
PROGRESS: Final = "progress"
JOURNAL: Final = "journal"
LOGS: Final = "logs"
LOG_FACTS: Final = "log.json"

_OFFSET = r"([0-9a-f]{16})_([0-9a-f]{16})"
_SEGMENT: Final = re.compile(rf"{_OFFSET}(?:-{_OFFSET}\.(\d+))?\.segment")
_JOURNAL: Final = re.compile(r"(\d{20})\.journal")
_DOUBTS: Final = re.compile(r"\d{20}\.doubts")
_OF_JOURNAL: Final = re.compile(r"(\d{20})\.(?:journal|damaged|doubts)")
_BASE: Final = re.compile(r"(\d+)\.base")
_LEASE: Final = re.compile(r"(.+)\.lease")
TEMPORARY_SUFFIX: Final = ".tmp"
"""A file that was never finished: removed at recovery, ignored by readers."""


class SegmentName(NamedTuple):
    """What a segment's name says. A live segment (generation 0) does not know its last row yet."""

    first: LogOffset
    last: LogOffset | None
    generation: int

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """None if the file is no segment."""
        match = _SEGMENT.fullmatch(name)
        if match is None:
            return None
        first = LogOffset(int(match[1], 16), int(match[2], 16))
        if match[3] is None:
            return cls(first, None, 0)
        return cls(first, LogOffset(int(match[3], 16), int(match[4], 16)), int(match[5]))

    def __str__(self) -> str:
        if self.last is None:
            return f"{_hex(self.first)}.segment"
        return f"{_hex(self.first)}-{_hex(self.last)}.{self.generation}.segment"


def _hex(offset: LogOffset) -> str:
    return f"{offset.tx:016x}_{offset.op:016x}"


def is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY_SUFFIX)


def is_leftover(name: str) -> bool:
    """Whether a file in a log's folder was left by a writer that ended; readers' leases are their own."""
    return is_temporary(name) and lease_reader(name.removesuffix(TEMPORARY_SUFFIX)) is None


def log_folder(log: int) -> str:
    return f"{LOGS}/{log}"


def log_facts(log: int) -> str:
    return f"{LOGS}/{log}/{LOG_FACTS}"


def segment_path(log: int, name: SegmentName) -> str:
    return f"{LOGS}/{log}/{name}"


def base_path(log: int, number: int) -> str:
    return f"{LOGS}/{log}/{number}.base"


def base_number(name: str) -> int | None:
    """The number of a base, or None if the file is none, or not complete."""
    match = _BASE.fullmatch(name)
    return int(match[1]) if match else None


def unfinished_base_path(log: int, number: int) -> str:
    """Where a base grows; it gets its name when all of it is synced."""
    return base_path(log, number) + TEMPORARY_SUFFIX


def unfinished_base_number(name: str) -> int | None:
    """The number of a base that is being written, or None if the file is none."""
    return base_number(name.removesuffix(TEMPORARY_SUFFIX)) if is_temporary(name) else None


def journal_path(number: int) -> str:
    return f"{JOURNAL}/{number:020d}.journal"


def journal_number(name: str) -> int | None:
    """The number of a journal file, or None if the file is none."""
    match = _JOURNAL.fullmatch(name)
    return int(match[1]) if match else None


def used_journal_number(name: str) -> int:
    """The number of a journal file that is or was there, as this name says; 0 if it says nothing."""
    match = _OF_JOURNAL.fullmatch(name)
    return int(match[1]) if match else 0


def damaged_journal_path(number: int) -> str:
    """The name of a journal file that was put aside because it is damaged."""
    return f"{JOURNAL}/{number:020d}.damaged"


def doubts_path(number: int) -> str:
    """The file that says which logs may have lost rows with a damaged journal file."""
    return f"{JOURNAL}/{number:020d}.doubts"


def is_doubts(name: str) -> bool:
    return _DOUBTS.fullmatch(name) is not None


def lease_path(log: int, reader: str) -> str:
    return f"{LOGS}/{log}/{reader}.lease"


def lease_reader(name: str) -> str | None:
    """The name of the reader who holds a lease, or None if the file is none."""
    match = _LEASE.fullmatch(name)
    return match[1] if match else None
