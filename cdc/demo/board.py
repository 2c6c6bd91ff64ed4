"""What is known of a running demo, for those who show it. Pure: it is told what happens, with the time."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from cdc.demo.shapes import SHAPES

NEWS_KEPT: Final = 6
"""Lines: what fits under the table without moving it off a small terminal."""


class State(Enum):
    """Where the server is."""

    PREPARING = "is being set up"
    SERVING = "serves"
    KILLED = "killed"
    STARTING = "starts again"
    CATCHING_UP = "takes in the rest"
    PROVEN = "has told everything"


@dataclass(slots=True)
class ShapeFacts:
    """Where one shape stands."""

    written: int | None = None
    """Rows in Postgres, by what was committed."""
    read: int = 0
    """Rows that the reader over HTTP has."""
    changes: int = 0
    """That it has seen."""
    durable: str = "-"


@dataclass(slots=True)
class Board:
    """The present state."""

    seconds: float
    """How long the shop is to work."""
    started_at: float
    ready_at: float | None = None
    """When the shop opened: the demo's time counts from there."""
    now: float = 0.0
    state: State = State.PREPARING
    kills: int = 0
    transactions: int = 0
    rolled_back: int = 0
    confirmed: str = "-"
    lag_bytes: int | None = None
    console_url: str = ""
    lake: str = ""
    shapes: dict[str, ShapeFacts] = field(default_factory=lambda: {shape.name: ShapeFacts() for shape in SHAPES})
    news: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=NEWS_KEPT))
    news_count: int = 0

    @property
    def seconds_left(self) -> float:
        """Of the time that the shop is to work."""
        return self.seconds if self.ready_at is None else max(0.0, self.ready_at + self.seconds - self.now)

    def told(self, status: dict[str, Any]) -> None:
        """Take in what the server says of itself."""
        self.confirmed = status["global_flushed_lsn"]
        self.lag_bytes = status["slot"]["unconfirmed_bytes"]
        for shape in status["shapes"]:
            if shape["name"] in self.shapes:
                self.shapes[shape["name"]].durable = shape["durable"] or "-"

    def tell(self, text: str) -> None:
        """Something worth a line."""
        self.news.append((self.now - self.started_at, text))
        self.news_count += 1
