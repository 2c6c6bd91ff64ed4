"""What the server says of a replication slot, and why a slot is lost. Pure; the making is in `slot_commands.py`."""

from dataclasses import dataclass
from typing import Any, Final, Self

from cdc.source.lsn import Lsn, parse_lsn

PLUGIN: Final = "pgoutput"

_LOSSES: Final = {
    "wal_removed": "the server removed WAL that the slot still needed, since it grew above max_slot_wal_keep_size",
    "rows_removed": "rows of the catalog that the slot still needed were removed",
    "wal_level_insufficient": "wal_level was lowered on the primary",
    "idle_timeout": "nobody read the slot for longer than idle_replication_slot_timeout",
}


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of `pg_replication_slots`; None where the server's version does not say."""

    name: str
    plugin: str
    database: str
    temporary: bool
    active_pid: int | None
    restart_lsn: Lsn | None
    confirmed_flush_lsn: Lsn | None
    wal_status: str | None
    safe_wal_bytes: int | None
    invalidation_reason: str | None
    conflicting: bool | None
    failover: bool | None
    synced: bool | None

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        return cls(
            row["slot_name"],
            row["plugin"] or "",
            row["database"] or "",
            row["temporary"],
            row["active_pid"],
            _lsn(row["restart_lsn"]),
            _lsn(row["confirmed_flush_lsn"]),
            row["wal_status"],
            row["safe_wal_size"],
            row.get("invalidation_reason"),
            row.get("conflicting"),
            row.get("failover"),
            row.get("synced"),
        )

    @property
    def loss(self) -> str | None:
        """Why the slot can bring nothing any more; None while it can."""
        if self.invalidation_reason is not None:
            return _LOSSES.get(self.invalidation_reason, f"the server says {self.invalidation_reason}")
        if self.conflicting:
            return "it was in conflict with the recovery of a standby"
        if self.wal_status == "lost" or self.restart_lsn is None:
            return _LOSSES["wal_removed"]
        return None


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else parse_lsn(text)
