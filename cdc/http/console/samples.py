"""How fast everything goes, over the last half hour: readings taken at even intervals, and the rates between. Pure.

Invariants:
    at most SAMPLES_KEPT samples; the oldest go first
    a rate that nobody knows is None, and no zero: before two readings, and when a counter went back
    times grow: a clock that was set back begins a new series
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from cdc.limits import SAMPLES_KEPT


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read at one moment."""

    at: float
    """Seconds since 1970."""
    seen_lsn: int | None
    """Counters, as are the next two: how far the stream came, bytes written by flushes, rows that readers got."""
    flushed_bytes: int
    read_rows: int
    lag_bytes: int | None
    """What the slot has not confirmed, of what the server has written."""
    lag_seconds: float
    buffered_bytes: int
    retained_bytes: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of every curve."""

    at: float
    received_bytes_per_second: float | None
    flushed_bytes_per_second: float | None
    read_rows_per_second: float | None
    lag_bytes: int | None
    lag_seconds: float
    buffered_bytes: int
    retained_bytes: int | None


COLUMNS: Final = tuple(Sample.__dataclass_fields__)


class Samples:
    """The last ones."""

    def __init__(self, kept: int = SAMPLES_KEPT) -> None:
        self._samples: deque[Sample] = deque(maxlen=kept)
        self._last: Reading | None = None

    def add(self, reading: Reading) -> None:
        """One more."""
        last = self._last
        if last is not None and reading.at <= last.at:
            self._samples.clear()
            last = None
        self._last = reading
        self._samples.append(
            Sample(
                reading.at,
                _rate(last, reading, "seen_lsn"),
                _rate(last, reading, "flushed_bytes"),
                _rate(last, reading, "read_rows"),
                reading.lag_bytes,
                reading.lag_seconds,
                reading.buffered_bytes,
                reading.retained_bytes,
            )
        )

    def columns(self, after: float) -> dict[str, list[Any]]:
        """The curves above a time, as lists of the same length."""
        chosen = [sample for sample in self._samples if sample.at > after]
        return {name: [getattr(sample, name) for sample in chosen] for name in COLUMNS}


def _rate(last: Reading | None, reading: Reading, counter: str) -> float | None:
    if last is None:
        return None
    before, now = getattr(last, counter), getattr(reading, counter)
    return None if before is None or now is None or now < before else round((now - before) / (reading.at - last.at), 1)
