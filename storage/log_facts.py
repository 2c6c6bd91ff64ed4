"""The facts fixed when a log is born, as every process that reads it needs them: `log.json` in its folder."""

import contextlib
import errno
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from storage import layout, small_file
from storage.disk import Disk
from storage.errors import FileVanished, UnknownFormat, UnknownLog
from storage.limits import CHUNK_WIRE_BYTES
from storage.shape_log import Mode

FORMAT: Final = 1

_LISTINGS_MAX: Final = 4
"""Of a folder that is removed: each lease that is renewed at that moment asks for another."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What never changes in a log's life."""

    log: int
    """Its number, never used for another."""
    handle: str
    """The name it was born with; part of every event about it."""
    key_columns: tuple[str, ...] = ()
    mode: Mode = Mode.APPEND
    chunk_bytes: int = CHUNK_WIRE_BYTES
    more: dict[str, Any] = field(default_factory=dict)
    """Whatever the layers above want to find beside the log."""

    def by_name(self) -> dict[str, Any]:
        """The facts as they are stored."""
        return {"format": FORMAT, **asdict(self)}

    def encode(self) -> bytes:
        return small_file.encode(self.by_name())

    @classmethod
    def decode(cls, data: bytes, path: str) -> "LogFacts":
        """Raises `UnknownFormat` for what another version wrote, or nobody."""
        facts = small_file.decode(data, path)
        found = facts.pop("format", None)
        if found != FORMAT:
            raise UnknownFormat(f"the log has format {found}, this program reads {FORMAT}", path=path)
        try:
            facts["key_columns"] = tuple(facts["key_columns"])
            facts["mode"] = Mode(facts["mode"])
            return cls(**facts)
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownFormat(f"the facts of a log are incomplete: {error}", path=path) from None


def write_log(disk: Disk, facts: LogFacts) -> None:
    """Make a log's folder. The facts come last and whole, so that a folder without them is no log."""
    folder, path = layout.log_folder(facts.log), layout.log_facts(facts.log)
    disk.make_folder(folder)
    small_file.write(disk, path, facts.by_name())
    disk.sync_folder(layout.LOGS)


def read_log(disk: Disk, log: int) -> LogFacts:
    """The facts of a log; raises `UnknownLog` if there is none, `FileVanished` if there is a log without them.

    A log that is being born or removed has them under their temporary name, or nothing yet or any more.
    """
    path = layout.log_facts(log)
    try:
        return LogFacts.decode(small_file.content(disk, path), path)
    except NotADirectoryError:
        pass
    except FileNotFoundError:
        names = disk.names(layout.log_folder(log))
        if not names or layout.LOG_FACTS + layout.TEMPORARY_SUFFIX in names:
            raise UnknownLog(f"there is no log {log}") from None
    raise FileVanished("the folder of a log is there without its facts", path=path)


def list_logs(disk: Disk) -> list[int]:
    """The numbers of all logs in the folder."""
    numbers = sorted(int(name) for name in disk.names(layout.LOGS) if name.isdecimal())
    return [number for number in numbers if disk.exists(layout.log_facts(number))]


def remove_log(disk: Disk, log: int) -> None:
    """Remove a log's files, its facts first: from then on it is no log. May be repeated after a crash."""
    folder = layout.log_folder(log)
    facts = layout.log_facts(log)
    if disk.exists(facts):
        disk.rename(facts, facts + layout.TEMPORARY_SUFFIX)
        disk.sync_folder(folder)
    if disk.exists(folder):
        _empty(disk, folder)
        disk.sync_folder(layout.LOGS)


def _empty(disk: Disk, folder: str) -> None:
    """Remove a folder with its files, of which somebody may take back a lease meanwhile, or renew one."""
    for left in range(_LISTINGS_MAX - 1, -1, -1):
        for name in sorted(disk.names(folder), key=layout.is_temporary):  # what says that it is removed, last
            with contextlib.suppress(FileNotFoundError):
                disk.remove(f"{folder}/{name}")
        try:
            disk.remove_folder(folder)
        except OSError as error:
            if not left or error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
