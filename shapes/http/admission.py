"""How many requests are served at a time: whoever is one too many is told to come again, at once. Pure.

First requests and all others are counted apart, so that newcomers, who cost most, cannot keep those out who follow.
"""

from collections.abc import Callable
from typing import Literal

from shapes.http.limits import OVERLOAD_RETRY_SECONDS_MAX, OVERLOAD_RETRY_SECONDS_MIN
from shapes.http.problems import overloaded

Kind = Literal["initial", "existing"]


class Admission:
    """The places that there are."""

    def __init__(self, initial_max: int, following_max: int, chance: Callable[[int, int], int]) -> None:
        self.refused = 0
        self.present: dict[Kind, int] = {"initial": 0, "existing": 0}
        self._max: dict[Kind, int] = {"initial": initial_max, "existing": following_max}
        self._chance = chance

    def enter(self, kind: Kind) -> None:
        """Take a place; a 503 if there is none."""
        if self.present[kind] >= self._max[kind]:
            self.refused += 1
            raise overloaded(kind, self.retry_seconds())
        self.present[kind] += 1

    def leave(self, kind: Kind) -> None:
        """Give it back."""
        self.present[kind] -= 1

    def retry_seconds(self) -> int:
        """When to come again: not all at once."""
        return self._chance(OVERLOAD_RETRY_SECONDS_MIN, OVERLOAD_RETRY_SECONDS_MAX)
