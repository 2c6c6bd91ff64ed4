"""What verifying a data folder found: counts, and what is not as it was written."""

from dataclasses import dataclass, field

from storage.disk import Disk
from storage.errors import StorageError, UnknownLog, from_os_error
from storage.log_facts import read_log


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as it was written."""

    log: int | None
    """None: the file belongs to all logs."""
    handle: str | None
    code: str
    message: str
    hint: str


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found."""

    logs: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    confirmed: int = 0
    """G: rows of transactions below it must be there."""
    damage: list[Damage] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    """Ends of files that were never written whole."""

    def take(self, disk: Disk, look: "Look") -> None:
        """Add what one look found."""
        self.blocks += look.blocks
        self.rows += look.rows
        self.bytes += look.bytes
        self.unfinished += look.unfinished
        self.damage += [damage_of(disk, log, error) for log, error in look.errors]


@dataclass(slots=True)
class Look:
    """What one look at a part of the folder found."""

    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    errors: list[tuple[int | None, StorageError]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


class Noting:
    """Notes what goes wrong, and lets the walk go on behind it."""

    def __init__(self, look: Look, log: int | None, path: str) -> None:
        self._look = look
        self._log = log
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, UnknownLog):
            return False  # no damage: the log was removed meanwhile
        if isinstance(error, OSError):
            error = from_os_error(error, self._path)
        if not isinstance(error, StorageError):
            return False
        self._look.errors.append((self._log, error.anew()))  # without the rows at hand
        return True


def damage_of(disk: Disk, log: int | None, error: StorageError) -> Damage:
    """An error as something to report."""
    facts = ", ".join(f"{name}={value}" for name, value in error.facts.items())
    message = f"{error.message} ({facts})" if facts else error.message
    return Damage(log, None if log is None else _handle(disk, log), error.code, message, error.hint)


def _handle(disk: Disk, log: int) -> str | None:
    try:
        return read_log(disk, log).handle
    except (StorageError, OSError):
        return None
