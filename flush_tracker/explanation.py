"""Why G is where it is, as values: which shape, which transaction, since when, and what would free it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flush_tracker.stream import OP, TIME, TX, Position
from flush_tracker.tracked_shape import TrackedShape
from storage.offset import LogOffset


class Hold(StrEnum):
    """What keeps G from moving on."""

    NOTHING = "nothing"
    OPEN_TRANSACTION = "open_transaction"
    ROWS = "rows"
    JOINING = "joining"


FREED_BY: Final = {
    Hold.NOTHING: "the next commit or keepalive",
    Hold.OPEN_TRANSACTION: "the commit of the transaction that is being received, or the end of the connection",
    Hold.ROWS: "a flush of the shape at or above the end of its first pending transaction, or the end of the shape",
    Hold.JOINING: "the shape's birth, or its end",
}


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction that is not durable in a shape."""

    aligned: LogOffset
    """A flush at or above this completes it; `aligned.tx` is its commit LSN."""
    commit_time: int


@dataclass(frozen=True, slots=True)
class Holder:
    """The shape that keeps G, or one of those that keep it at the same place."""

    shape: int
    first: PendingTransaction | None
    """None: it has no rows yet, but is joining."""
    since: float
    """When the tracker heard of that transaction, or of the shape; on the caller's clock."""
    seconds: float
    transactions_pending: int
    bytes_pending: int | None
    """None if the caller did not say how to ask for it."""

    @classmethod
    def of(cls, shape: TrackedShape, now: float, bytes_pending: int | None) -> "Holder":
        """Of a shape that has a bound."""
        first = None
        since = shape.attached_at
        if shape.runs:
            row = shape.runs[0].rows[0]
            first = PendingTransaction(LogOffset(int(row[TX]), int(row[OP])), int(row[TIME]))
        if shape.pin is None:
            since = shape.runs[0].at
        return cls(shape.number, first, since, now - since, shape.transactions_count, bytes_pending)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where G is, how far the stream has come, and what lies between."""

    g: Position
    seen: Position
    hold: Hold
    holder: Holder | None
    """For the holds `ROWS` and `JOINING`."""
    open_tx: int | None
    shapes_pending: int

    @property
    def freed_by(self) -> str:
        """What has to happen before G moves on."""
        return FREED_BY[self.hold]
