"""What storage counts. Plain numbers with stable names; whoever exports them reads `snapshot`."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Metric(StrEnum):
    """The names under which the numbers are exported; docs/metrics.md explains each."""

    READS = "shapelog_storage_reads_total"
    READ_ROWS = "shapelog_storage_read_rows_total"
    FLUSHES = "shapelog_storage_flushes_total"
    FLUSHED_BYTES = "shapelog_storage_flushed_bytes_total"
    FLUSH_FAILURES = "shapelog_storage_flush_failures_total"
    SYNCS = "shapelog_storage_syncs_total"
    GAPS = "shapelog_storage_gaps_total"
    REPLAYED_ROWS = "shapelog_storage_replayed_rows_total"
    CACHE_HITS = "shapelog_storage_cache_hits_total"
    CACHE_MISSES = "shapelog_storage_cache_misses_total"
    BUFFERED_BYTES = "shapelog_storage_buffered_bytes"
    OLDEST_UNFLUSHED_SECONDS = "shapelog_storage_oldest_unflushed_seconds"
    JOURNAL_BYTES = "shapelog_storage_journal_bytes"
    OPEN_LOGS = "shapelog_storage_open_logs"
    TORN_TAILS = "shapelog_storage_torn_tails"
    LOGS_IN_DOUBT = "shapelog_storage_logs_in_doubt"
    FAULT = "shapelog_storage_fault"


@dataclass(slots=True)
class Metrics:
    """Counters by name and label, for any thread; gauges are asked of the store when somebody looks."""

    counters: Counter[tuple[Metric, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, metric: Metric, label: str = "", amount: int = 1) -> None:
        with self._lock:
            self.counters[metric, label] += amount

    def value(self, metric: Metric, label: str | None = None) -> int:
        """One counter; without a label, the sum of all that the metric has."""
        if label is not None:
            return self.counters[metric, label]
        with self._lock:
            return sum(count for (counted, _), count in self.counters.items() if counted is metric)

    def snapshot(self) -> dict[str, int]:
        """All counters, as `name` or `name{label}`."""
        with self._lock:
            counted = list(self.counters.items())
        return {f"{metric.value}{{{label}}}" if label else metric.value: n for (metric, label), n in counted}
