"""Arrays of integers that the index and its bands count with."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


def starts_of(counts: Integers) -> Integers:
    """Where each group begins, if they stand one after the other."""
    return np.cumsum(counts) - counts


def ranges(starts: Integers, counts: Integers) -> Integers:
    """`starts[0], starts[0] + 1, ..`, so many numbers as its count says, then those of `starts[1]`, and so on."""
    return np.arange(int(counts.sum())) + np.repeat(starts - starts_of(counts), counts)


class GrowingPairs:
    """Pairs of integers in an array; adding and removing one costs no more than that, mostly."""

    def __init__(self) -> None:
        self._pairs = np.empty((2, 8), np.int64)
        self._count = 0

    def append(self, pair: tuple[int, int]) -> None:
        """One more, at the end."""
        if self._count == self._pairs.shape[1]:
            self._pairs = np.concatenate((self._pairs, np.empty_like(self._pairs)), axis=1)
        self._pairs[:, self._count] = pair
        self._count += 1

    def remove(self, number: int) -> None:
        """One less; the last one takes its place."""
        self._count -= 1
        self._pairs[:, number] = self._pairs[:, self._count]

    def arrays(self) -> tuple[Integers, Integers]:
        """The first and the second of each; valid until the next change."""
        return self._pairs[0, : self._count], self._pairs[1, : self._count]
