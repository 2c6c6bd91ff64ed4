"""Kinds of stories: what happens more often in one than in others, since it is rare that two such things meet. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One of them."""

    name: str
    odds: Mapping[str, float] = field(default_factory=dict)
    """Deeds that are more frequent than usual; all others are as frequent as they are."""
    taken_over_early: float = 0.0
    """How often a standby takes over when the process has just connected, and has not received anything yet."""

    def odds_of(self, usual: Mapping[str, float]) -> dict[str, float]:
        """How often each deed is chosen."""
        return {name: max(weight, self.odds.get(name, 0.0)) for name, weight in usual.items()}


KINDS: Final = (
    (4, Kind("calm")),
    (1, Kind("the process crashes", {"crash": 12, "cut": 4})),
    (1, Kind("standbys take over", {"fail over": 6}, 0.3)),
    (1, Kind("both", {"crash": 12, "fail over": 6}, 0.3)),
    (1, Kind("the server crashes", {"crash of the server": 6, "crash": 6})),
)
"""Each with how often it is told."""


def some_kind(random: Random) -> Kind:
    """One of them, by chance."""
    return random.choices([kind for _, kind in KINDS], [weight for weight, _ in KINDS])[0]
