"""What can go wrong in the flush tracker: all of it defects of the caller, raised before anything has moved.

A class for each condition, with a code, the facts, and a hint. A G that is too high loses data without a sound, so
whatever does not fit is refused, never repaired.
"""

from typing import Any, ClassVar


class FlushTrackerError(Exception):
    """The root of the package's errors."""

    code: ClassVar[str] = "flush_tracker"
    hint: ClassVar[str] = "This is a defect in the program; please report it with the message."

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        return " ".join(
            part for part in (f"[{self.code}] {self.message}", f"({facts})" if facts else "", self.hint) if part
        )


class UnalignedFlush(FlushTrackerError):
    """A flush was reported that does not end where a transaction of that shape ends."""

    code = "unaligned_flush"
    hint = (
        "Report only the aligned offset of a synced block's header: an offset inside a transaction never completes it."
    )


class FlushAboveVisible(FlushTrackerError):
    """A flush was reported above everything that the shape was given."""

    code = "flush_above_visible"
    hint = "Tell the tracker of a batch's commits before any flush of its rows is reported."


class CommitsOutOfOrder(FlushTrackerError):
    """Commits that do not follow what the stream has sent before."""

    code = "commits_out_of_order"
    hint = "Hand on commits in the order of the stream, whole, and drop the open transaction when a connection ends."


class InvalidTouches(FlushTrackerError):
    """The list of which shape is touched by which commit contradicts itself."""

    code = "invalid_touches"
    hint = "Each shape comes once, with at least one commit of the batch, in ascending order."


class UnknownShape(FlushTrackerError):
    """A commit touched a shape that was never attached: nobody would wait for its rows."""

    code = "unknown_shape"
    hint = "Attach a shape before its first row; leave out one that was detached."


class ShapeAttachedTwice(FlushTrackerError):
    """A shape is attached that is attached already."""

    code = "shape_attached_twice"


class FloorOutOfReach(FlushTrackerError):
    """A shape wants to join below G, where the stream is gone, or above what the stream has sent."""

    code = "floor_out_of_reach"
    hint = "Join at the present position of the stream."


class IncarnationRepeated(FlushTrackerError):
    """A reset to the incarnation that is already there would let G fall within it."""

    code = "incarnation_repeated"
    hint = "Reset only for a slot that was created anew or that follows a new timeline."


class OffsetsOutOfOrder(FlushTrackerError):
    """Transactions were appended to a shape's mapping that do not follow those in it."""

    code = "offsets_out_of_order"
    hint = "Append a shape's transactions once, in commit order, each with its last row at or below its end."


class TooManyTransactions(FlushTrackerError):
    """A shape's mapping is full."""

    code = "too_many_transactions"
    hint = "Flush the shape, or end it: it is the slowest by far."
