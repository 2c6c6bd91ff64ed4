"""What a server is like, as far as checks look at it; and what a check says. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from cdc.source.holders import Holder
from cdc.source.publication import Mode, PublicationState, TableState
from cdc.source.slot import SlotState


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    FAULT = "fault"
    """Nothing can be followed like this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and what to run about it."""

    check: str
    level: Level
    text: str
    mend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """The role that we log in as."""

    name: str
    superuser: bool
    replication: bool
    creates_in_database: bool
    bypasses_row_security: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The server as it was found."""

    version: int
    database: str
    in_recovery: bool
    settings: Mapping[str, str]
    role: Role
    slots_used: int
    walsenders_used: int
    wal_bytes_per_second: float
    clock_skew_seconds: float
    mode: Mode
    slot_name: str
    slot: SlotState | None
    retained_bytes: int | None
    publication: PublicationState
    wanted: tuple[TableState, ...]
    """Tables that are asked for, or else those that are published."""
    unknown: tuple[str, ...] = ()
    leaves: Mapping[int, tuple[TableState, ...]] = field(default_factory=dict)
    owned: frozenset[int] = frozenset()
    """Of the tables and their leaves, those that our role may alter."""
    readable: frozenset[int] = frozenset()
    transactions: tuple[Holder, ...] = ()

    @property
    def major(self) -> int:
        """Such as 15."""
        return self.version // 10_000

    @property
    def minor(self) -> int:
        """Such as the 13 of 15.13."""
        return self.version % 10_000

    def number(self, setting: str) -> int:
        """A setting that is a number, in the setting's own unit."""
        return int(self.settings[setting])
