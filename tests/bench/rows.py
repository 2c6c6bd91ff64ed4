"""A row of a benchmark's result: what was measured, the limit it is compared with, and whether it is good enough.

Invariants:
    ratio is given iff baseline is: the share of the limit that was reached, so more is better
    met is given iff a target is
    a target is not met by beating the limit: then the limit was disturbed, and nothing is known
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RATIO_CREDIBLE_MAX = 1.1
"""Nobody is faster than the limit, but for noise; beyond this it was the limit that was slow."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, and one object of the JSON."""

    measure: str
    value: float
    unit: str
    baseline: float | None = None
    """The limit in the same unit, measured in the same run."""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


def compared(
    measure: str, unit: str, values: Sequence[float], baselines: Sequence[float], *, ratio_min: float | None = None
) -> Row:
    """A rate of each round beside the limit of that round: the medians, and the median of the rounds' ratios.

    A machine slows down and speeds up; what was measured in one round stands under the same sky.
    """
    ratio = statistics.median(value / baseline for value, baseline in zip(values, baselines, strict=True))
    value, baseline = statistics.median(values), statistics.median(baselines)
    if ratio_min is None:
        return Row(measure, value, unit, baseline, ratio)
    if ratio > RATIO_CREDIBLE_MAX:
        return Row(measure, value, unit, baseline, ratio, f"ratio >= {ratio_min:g} (limit disturbed)", met=False)
    return Row(measure, value, unit, baseline, ratio, f"ratio >= {ratio_min:g}", ratio >= ratio_min)


def bounded(measure: str, unit: str, values: Sequence[float], *, value_max: float) -> Row:
    """Something that should be little: the median, against a bound."""
    value = statistics.median(values)
    return Row(measure, value, unit, target=f"<= {value_max:g}", met=value <= value_max)
