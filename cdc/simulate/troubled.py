"""A plan for a disk whose faults come in some of its files only, or in all: the others go on meanwhile. Pure."""

from random import Random
from typing import Final

from storage.faulty_disk import Fault, Odds, Operation

PLACES: Final = ("", "", "", "catalog", "progress", "logs/", "journal/")
"""Where paths begin that have faults."""


class Troubled:
    """Faults by chance, in one place."""

    def __init__(self, random: Random) -> None:
        self._place = random.choice(PLACES)
        odds = random.choice((0.03, 0.1, 0.5)) if self._place else 0.05
        self._odds = Odds(random, change_fails=odds, sync_fails=odds, calls_max=random.choice((1, 4)))

    def fault(self, operation: Operation, path: str, size: int) -> Fault | None:
        """What is wrong with this call, if anything."""
        return self._odds.fault(operation, path, size) if path.startswith(self._place) else None
