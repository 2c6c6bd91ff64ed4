"""How many requests are served at a time: whoever is one too many is told to come again, at once. Pure.

First requests and all others are counted apart, so that newcomers, who cost most, cannot keep those out who follow.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shapes.http.limits import OVERLOAD_RETRY_SECONDS_MAX, OVERLOAD_RETRY_SECONDS_MIN
from shapes.http.problems import overloaded


class Admission:
    """The places that there are."""

    def __init__(self, initial_max: int, following_max: int, chance: Callable[[int, int], int]) -> None:
        self.refused = 0
        self.present = {"initial": 0, "existing": 0}
        self._max = {"initial": initial_max, "existing": following_max}
        self._chance = chance

    @contextmanager
    def place(self, *, is_first: bool) -> Iterator[None]:
        """One place, while the context lasts; a 503 if there is none."""
        kind = "initial" if is_first else "existing"
        if self.present[kind] >= self._max[kind]:
            self.refused += 1
            raise overloaded(kind, self.retry_seconds())
        self.present[kind] += 1
        try:
            yield
        finally:
            self.present[kind] -= 1

    def retry_seconds(self) -> int:
        """When to come again: not all at once."""
        return self._chance(OVERLOAD_RETRY_SECONDS_MIN, OVERLOAD_RETRY_SECONDS_MAX)
