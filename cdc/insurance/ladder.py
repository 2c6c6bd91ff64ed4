"""The steps before a slot is lost, as the WAL that it keeps grows towards its budget. Pure.

    step     entered at          left below             while it lasts
    calm                                                nothing
    alert    terms.alert_at      .. - CALM_SHARE        events, a metric, the status
    pause    terms.pause_at      .. - CALM_SHARE        no snapshot begins
    end      terms.end_at        .. - CALM_SHARE        the shape that holds the slot ends, one at a time

Invariants:
    nothing is done below its threshold, nor of a step that is off
    a shape ends only while the step `end` lasts, only the one that holds the slot, and only if nothing less helps: it
        has held for long, the WAL that is kept is that above it, the share does not fall by itself, and the step
        before, or the last end, has had its time to show
    while the shared disk is at fault no shape ends (A9): then no shape is at fault
    nor for time in which nobody looked, since the process was stopped: what holds the slot has its time again
    what nobody knows moves nothing
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final

from cdc.errors import SettingInvalid
from cdc.limits import (
    WAL_ALERT_PERCENT,
    WAL_CALM_PERCENT,
    WAL_END_PERCENT,
    WAL_HOLD_SECONDS,
    WAL_PAUSE_PERCENT,
    WAL_SETTLE_SECONDS,
    WAL_UNSEEN_SECONDS,
)

CALM_SHARE: Final = WAL_CALM_PERCENT / 100

MOST: Final = 0.5
"""Of the WAL that is kept, the part above what was confirmed: with less, a long transaction of the server holds it, and
no end of a shape would free it."""


class Rung(IntEnum):
    """How far up the ladder we are."""

    CALM = 0
    ALERT = 1
    PAUSE = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """What an operator chose. A share of 0 turns a step off."""

    budget_bytes: int | None = None
    """WAL that the slot may keep; beside the server's own limit, the tighter one counts."""
    alert_at: float = WAL_ALERT_PERCENT / 100
    pause_at: float = WAL_PAUSE_PERCENT / 100
    end_at: float = WAL_END_PERCENT / 100

    def __post_init__(self) -> None:
        names = {Rung.ALERT: "wal-alert-at", Rung.PAUSE: "wal-pause-at", Rung.END: "wal-end-at"}
        for (low, below), (high, above) in pairwise(self.thresholds.items()):
            if below >= above:
                raise SettingInvalid(
                    f"{names[high]} is {above * 100:g}, and must be above {names[low]}, which is {below * 100:g}"
                )

    @property
    def thresholds(self) -> Mapping[Rung, float]:
        """Of the steps that are on."""
        shares = {Rung.ALERT: self.alert_at, Rung.PAUSE: self.pause_at, Rung.END: self.end_at}
        return {rung: share for rung, share in shares.items() if share > 0}


@dataclass(frozen=True, slots=True)
class View:
    """What is known at one moment."""

    at: float
    share: float | None
    """Of the budget, what the slot keeps; None if nobody knows, or there is no budget."""
    above: float = 0.0
    """Of what it keeps, the part above what was confirmed."""
    holder: int | None = None
    """The shape whose rows hold the slot."""
    held_seconds: float = 0.0
    is_disk_at_fault: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done now."""

    before: Rung
    rung: Rung
    ends: int | None = None
    """The shape that is to end."""
    why_none: str = ""
    """In the step `end`: why no shape ends now."""

    @property
    def is_news(self) -> bool:
        """Whether the step changed."""
        return self.before is not self.rung


class Ladder:
    """Where we are, and since when."""

    def __init__(self, terms: Terms) -> None:
        self.rung = Rung.CALM
        self.share: float | None = None
        """The last one that was known."""
        self._thresholds = terms.thresholds
        self._step_before_end = max((rung for rung in self._thresholds if rung < Rung.END), default=Rung.CALM)
        self._settles_from = float("-inf")
        """When the step before the end began, or a shape ended: both need time to show what they do."""
        self._seen_at: float | None = None

    def seen(self, now: float) -> None:
        """Somebody looks round, whether he learns anything or not; call it before each `look`, and where there is none.

        After a stop of the process all that it was about to flush is as old as the stop.
        """
        if self._seen_at is not None and now - self._seen_at > WAL_UNSEEN_SECONDS:
            self._settles_from = now
        self._seen_at = now

    def look(self, view: View) -> Verdict:
        """One look."""
        before, last = self.rung, self.share
        if view.share is None:
            return Verdict(before, before, None, "what the slot keeps is not known")
        self.share = view.share
        self.rung = self._rung_of(view.share)
        if self.rung is not before and not (self.rung is Rung.END and before is self._step_before_end):
            self._settles_from = view.at
        if self.rung is not Rung.END:
            return Verdict(before, self.rung)
        why = self._why_none(view, last)
        if why:
            return Verdict(before, self.rung, None, why)
        self._settles_from = view.at
        return Verdict(before, self.rung, view.holder)

    def is_on(self, rung: Rung) -> bool:
        """Whether a step lasts: it is on, and we are there or higher."""
        return rung in self._thresholds and self.rung >= rung

    def _rung_of(self, share: float) -> Rung:
        """The highest step that is entered, or that lasts since its calm is not reached."""
        held = [rung for rung, at in self._thresholds.items() if share >= at - (CALM_SHARE if rung <= self.rung else 0)]
        return max(held, default=Rung.CALM)

    def _why_none(self, view: View, last: float | None) -> str:
        if view.share is not None and view.share < self._thresholds[Rung.END]:
            return "the step is left soon: what is kept is below its threshold"
        if view.is_disk_at_fault:
            return "the disk that all shapes share is at fault, and no shape is"
        if view.holder is None:
            return "no shape's rows hold the slot"
        if view.above < MOST:
            return "most of what is kept lies below what was confirmed: a long transaction on the server holds it"
        if last is not None and view.share is not None and view.share < last:
            return "what is kept becomes less by itself"
        if view.held_seconds < WAL_HOLD_SECONDS:
            return "the shape that holds it has not held for long"
        if view.at - self._settles_from < WAL_SETTLE_SECONDS:
            return "the last step has not had its time"
        return ""
