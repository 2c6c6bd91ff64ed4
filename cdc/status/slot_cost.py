"""What the slot costs the server: WAL kept, room left, and how long that room lasts at the present rate. Pure.

Invariants:
    the rate is that of looks within WAL_RATE_SECONDS, and None before there are two of them
    a server whose WAL goes back (another server, a restored one) begins a new rate
"""

from collections import deque
from dataclasses import dataclass

from cdc.limits import WAL_RATE_SECONDS
from cdc.source.holders import Holder
from cdc.source.lsn import Lsn
from cdc.source.slot import SlotState


@dataclass(frozen=True, slots=True)
class Decoding:
    """What the server's own work for the slot is like; None where it does not say."""

    walsender_state: str | None
    """Of the walsender that reads it: *catchup*, *streaming* .."""
    spilled_bytes: int | None
    """Of transactions that were too large for its memory, and went to its disk first; since its statistics began."""
    decoded_bytes: int | None
    """Of all transactions, likewise."""
    catalog_xmin_age: int | None
    """Transactions since the oldest whose rows of the server's catalog it must keep: vacuum waits for the slot."""


@dataclass(frozen=True, slots=True)
class SlotLook:
    """The slot and the server's WAL at one moment."""

    at: float
    """On the caller's clock."""
    wal_end: Lsn
    slot: SlotState | None
    oldest: Holder | None = None
    """The oldest transaction of the server that has written; looked for where it may be what keeps WAL."""
    decoding: Decoding | None = None

    @property
    def retained_bytes(self) -> int | None:
        """WAL that the server keeps for the slot."""
        restart = None if self.slot is None else self.slot.restart_lsn
        return None if restart is None else max(self.wal_end - restart, 0)

    @property
    def unconfirmed_bytes(self) -> int | None:
        """WAL above what was confirmed."""
        confirmed = None if self.slot is None else self.slot.confirmed_flush_lsn
        return None if confirmed is None else max(self.wal_end - confirmed, 0)


@dataclass(frozen=True, slots=True)
class Budget:
    """What the slot may keep, and what it does keep."""

    bytes: int
    retained_bytes: int
    is_own: bool
    """It is the one that an operator chose, and not the server's."""

    @property
    def share(self) -> float:
        """Of the budget, what is kept; above 1 the server may take the slot at any time."""
        return self.retained_bytes / self.bytes if self.bytes > 0 else 1.0


def budget_of(look: SlotLook | None, own_bytes: int | None) -> Budget | None:
    """The tighter of the server's budget and our own; None where there is none, or the slot is gone."""
    if look is None or look.slot is None or look.slot.loss is not None or look.retained_bytes is None:
        return None
    retained, safe = look.retained_bytes, look.slot.safe_wal_bytes
    servers = None if safe is None else max(retained + safe, 0)
    if own_bytes is not None and (servers is None or own_bytes <= servers):
        return Budget(own_bytes, retained, is_own=True)
    return None if servers is None else Budget(servers, retained, is_own=False)


class WalRate:
    """How fast the server writes WAL."""

    def __init__(self, seconds: float = WAL_RATE_SECONDS) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, int]] = deque()

    def add(self, at: float, wal_end: int) -> None:
        """A look at where the WAL ends."""
        if self._looks and wal_end < self._looks[-1][1]:
            self._looks.clear()
        self._looks.append((at, wal_end))
        # One look may be older than the window: else a rare look would leave no rate.
        while len(self._looks) > 2 and self._looks[1][0] <= at - self._seconds:
            self._looks.popleft()

    @property
    def bytes_per_second(self) -> float | None:
        """None before there are two looks."""
        if len(self._looks) < 2:
            return None
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return (last - first) / (ended - began) if ended > began else None


def seconds_left(safe_bytes: int | None, bytes_per_second: float | None) -> float | None:
    """How long until the slot is lost, if nothing is confirmed meanwhile; None if never, or nobody knows."""
    if safe_bytes is None or not bytes_per_second:
        return None
    return max(safe_bytes, 0) / bytes_per_second
