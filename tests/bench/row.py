"""One line of a benchmark's result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A measured value, beside what it is compared with."""

    measure: str
    value: float
    unit: str
    baseline: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
