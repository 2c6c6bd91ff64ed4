"""How many connections there are, and how they ended where that was not their clients' wish. Pure."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class TurnedAway(StrEnum):
    """Why a connection was ended before anything was read from it."""

    FULL = "full"
    """There are as many as there may be."""
    STOPPING = "stopping"
    """The server is."""


class Cut(StrEnum):
    """Why a connection was ended that was in use."""

    TAKES_NOTHING = "takes_nothing"
    """Of what is sent to it, for too long."""
    TAKES_LITTLE = "takes_little"
    """Less than the least, over a window."""
    SLOW_HEAD = "slow_head"
    """A request was begun, and its head did not come."""
    SLOW_BODY = "slow_body"
    """Its body did not."""
    NO_REQUEST = "no_request"
    """What came is none, or too long."""
    FAILED = "failed"
    """An answer was begun that could not be ended."""
    STOP = "stop"
    """The server stopped, and the answer under way took too long."""


@dataclass(slots=True)
class ConnectionCounts:
    """Of one server, since its start."""

    open: int = 0
    """At this moment, those that are being turned away included."""
    accepted: int = 0
    """Those that were not turned away."""
    turned_away: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(TurnedAway, 0)))
    cut: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Cut, 0)))
