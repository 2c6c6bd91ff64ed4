"""How far a job of Spark's is: counted by the workers, told while the job runs.

Spark adds an accumulator's terms up in the driver when a task has ended. One that is run twice counts twice, which is
good enough to look at; nothing is decided by it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import AccumulatorParam


@dataclass(frozen=True, slots=True)
class Share:
    """What a job has done of its work."""

    pieces: int
    of: int
    rows: int = 0
    files: int = 0


Counts = tuple[int, int, int]
"""Pieces, rows, files."""


class CountsParam(AccumulatorParam[Counts]):
    """Sums, and somebody who hears of them; in a worker there is nobody."""

    def __init__(self, hear: Callable[[Counts], None] | None = None) -> None:
        self._hear = hear

    def __reduce__(self) -> tuple[Any, ...]:
        return CountsParam, ()

    def zero(self, value: Counts) -> Counts:  # noqa: ARG002 - pyspark's signature
        return (0, 0, 0)

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802 - pyspark's name
        """Called where the sum is kept, and in workers for their own terms."""
        first, second = value1, value2
        total = (first[0] + second[0], first[1] + second[1], first[2] + second[2])
        if self._hear is not None:
            self._hear(total)
        return total
