"""The steps of a shape's birth, what can happen in each, and how often and how long things are tried. Pure.

    publishing -> joining -> looking -> recording -> copying -> finishing -> ready
                                |           |           |
                             leaving <------'       retreating -> publishing
                                |
      publishing <-- outside                               failing -> failed

What is not in the table cannot happen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shapes.limits import (
    JOINED_SECONDS_MAX,
    LOOK_AGAIN_SECONDS,
    LOOK_OUTSIDE_SECONDS,
    RETAKE_SECONDS_MAX,
    RETAKE_SECONDS_MIN,
    RETAKES_MAX,
    UNSEEN_SECONDS_MAX,
)

_DOUBLINGS_MAX: Final = 30


class Step(StrEnum):
    """Where a birth is."""

    PUBLISHING = "publishing"
    """The table is put into the publication; its writers of before are waited for."""
    JOINING = "joining"
    """The stream comes to the end of a transaction, and the shape is fed from there on."""
    LOOKING = "looking"
    """A snapshot is taken that has seen what the stream has told of before (A6). The shape's rows are held, and G."""
    LEAVING = "leaving"
    """That took too long, or too much memory: the shape is not fed any more, and what it held is dropped."""
    OUTSIDE = "outside"
    """What was not seen is waited for, at nobody's cost."""
    RECORDING = "recording"
    """*Born* is synced, the log made, what was held goes there through the filter (A7)."""
    COPYING = "copying"
    """The snapshot's rows go to the base; the shape's log grows meanwhile, and G moves on."""
    FINISHING = "finishing"
    """*Ready* is synced: the base is complete."""
    RETREATING = "retreating"
    """The copy failed: handle and log go, for a handle is one base (A12); a pause, and all over again."""
    FAILING = "failing"
    """No attempt will do: the shape ends with its reason."""
    READY = "ready"
    FAILED = "failed"


class Event(StrEnum):
    """How a step ended."""

    DONE = "done"
    UNSEEN = "unseen"
    """A transaction that the snapshot must see is not visible yet, or the table is locked."""
    OVERDUE = "overdue"
    """The shape must leave the stream: its time or its memory is over, or the stream begins anew."""
    LOST = "lost"
    """Something failed that may work the next time."""
    REFUSED = "refused"
    """Something failed that will fail again, or did so too often."""


NEXT: Final[Mapping[tuple[Step, Event], Step]] = {
    (Step.PUBLISHING, Event.DONE): Step.JOINING,
    (Step.PUBLISHING, Event.LOST): Step.PUBLISHING,
    (Step.PUBLISHING, Event.REFUSED): Step.FAILING,
    (Step.JOINING, Event.DONE): Step.LOOKING,
    (Step.JOINING, Event.LOST): Step.JOINING,
    (Step.JOINING, Event.OVERDUE): Step.LEAVING,
    (Step.LOOKING, Event.DONE): Step.RECORDING,
    (Step.LOOKING, Event.UNSEEN): Step.LOOKING,
    (Step.LOOKING, Event.LOST): Step.LOOKING,
    (Step.LOOKING, Event.OVERDUE): Step.LEAVING,
    (Step.LOOKING, Event.REFUSED): Step.FAILING,
    (Step.LEAVING, Event.DONE): Step.OUTSIDE,
    (Step.LEAVING, Event.LOST): Step.LEAVING,
    # Not to joining: what was published, and whose writers had ended, may be so no more.
    (Step.OUTSIDE, Event.DONE): Step.PUBLISHING,
    (Step.OUTSIDE, Event.UNSEEN): Step.OUTSIDE,
    (Step.OUTSIDE, Event.LOST): Step.OUTSIDE,
    (Step.OUTSIDE, Event.REFUSED): Step.FAILING,
    (Step.RECORDING, Event.DONE): Step.COPYING,
    (Step.RECORDING, Event.OVERDUE): Step.LEAVING,
    # What of it is on disk is not known: retreating removes whatever there is.
    (Step.RECORDING, Event.LOST): Step.RETREATING,
    (Step.RECORDING, Event.REFUSED): Step.FAILING,
    (Step.COPYING, Event.DONE): Step.FINISHING,
    (Step.COPYING, Event.LOST): Step.RETREATING,
    (Step.COPYING, Event.REFUSED): Step.FAILING,
    (Step.FINISHING, Event.DONE): Step.READY,
    (Step.FINISHING, Event.LOST): Step.FINISHING,
    (Step.FINISHING, Event.REFUSED): Step.FAILING,
    (Step.RETREATING, Event.DONE): Step.PUBLISHING,
    (Step.RETREATING, Event.LOST): Step.RETREATING,
    (Step.RETREATING, Event.REFUSED): Step.FAILING,
    (Step.FAILING, Event.DONE): Step.FAILED,
    (Step.FAILING, Event.LOST): Step.FAILING,
}

ENDS: Final = frozenset({Step.READY, Step.FAILED})

JOINED: Final = frozenset({Step.LOOKING, Step.RECORDING})
"""The steps in which the shape holds rows, and G."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often things are tried; the reasons are in `limits.py`."""

    joined_seconds: float = JOINED_SECONDS_MAX
    look_again_seconds: float = LOOK_AGAIN_SECONDS
    look_outside_seconds: float = LOOK_OUTSIDE_SECONDS
    unseen_seconds: float = UNSEEN_SECONDS_MAX
    retakes: int = RETAKES_MAX
    retake_seconds_min: float = RETAKE_SECONDS_MIN
    retake_seconds_max: float = RETAKE_SECONDS_MAX

    def pause(self, step: Step, event: Event, times: int) -> float:
        """Seconds to wait after a step ended so; `times` counts what went wrong in a row."""
        match step, event:
            case Step.LOOKING, Event.UNSEEN:
                return self.look_again_seconds
            case (Step.OUTSIDE, Event.UNSEEN) | (Step.LEAVING, Event.DONE):
                return self.look_outside_seconds
            case (Step.RETREATING, Event.DONE) | (_, Event.LOST):
                doublings = min(max(times - 1, 0), _DOUBLINGS_MAX)
                is_over = step not in {Step.RECORDING, Step.COPYING}  # retreating comes first, and then the pause
                return is_over * min(self.retake_seconds_min * 2.0**doublings, self.retake_seconds_max)
            case _:
                return 0.0
