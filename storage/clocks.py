"""The two clocks, passed in: tests make time up."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """One clock measures how long, the other says when."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds from some start; never goes back."""
    wall: Callable[[], int] = lambda: time.time_ns() // 1000
    """Microseconds since 1970; may jump."""
