"""What a materializer counts: plain numbers with stable names. Pure; whoever exports them asks for `counters`.

The lake stands *level* with a G when no row below it is missing: at a version, or where nothing came since one.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.lake.versions import Version
    from storage.lake.writer import Step


class LakeMetric(StrEnum):
    """The names under which the numbers are exported; docs/metrics.md explains each."""

    INPUT_LSN = "shapelog_lake_input_lsn"
    LEVEL_LSN = "shapelog_lake_level_lsn"
    BEHIND_SECONDS = "shapelog_lake_behind_seconds"
    WAITING_TABLES = "shapelog_lake_waiting_tables"
    VERSION = "shapelog_lake_version"
    VERSIONS = "shapelog_lake_versions_total"
    ROWS = "shapelog_lake_rows_total"
    STEP_SECONDS = "shapelog_lake_step_seconds"
    FAULTS = "shapelog_lake_faults_total"
    GAPS = "shapelog_lake_gaps_total"
    ORPHANS = "shapelog_lake_orphan_files"
    RETIRED_FILES = "shapelog_lake_retired_files_total"
    TABLE_LSN = "shapelog_lake_table_lsn"
    TABLE_FILES = "shapelog_lake_table_files"
    QUARANTINED = "shapelog_lake_quarantined_values"


class Trigger(StrEnum):
    """Why a version was made."""

    ROWS = "rows"
    """A table has rows that the version before has not."""
    TABLES = "tables"
    """A table came, went, or begins anew."""
    DEMAND = "demand"
    """It was asked for, or files were joined, and nothing is new."""
    FOUND = "found"
    """Somebody had decided it: a writer that died, or a twin."""


@dataclass(slots=True)
class LakeMetrics:
    """Written by the thread that materializes, read by any."""

    counters: Counter[tuple[LakeMetric, str]] = field(default_factory=Counter)
    """By name and label."""
    level: int | None = None
    version: "Version | None" = None
    waiting: int = 0
    step_seconds: float | None = None
    orphans: int | None = None
    _level_since: float = float("inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, metric: LakeMetric, label: str = "", amount: int = 1) -> None:
        with self._lock:
            self.counters[metric, label] += amount

    def looked(self, step: "Step", seconds: float, now: float) -> None:
        """A step has ended. `now`: monotonic."""
        with self._lock:
            if not step.stands_still or step.level != self.level:  # another writer may have brought it on
                self._level_since = now
            self.level, self.waiting = step.level, len(step.waits_for)
            for name in step.gaps:
                self.counters[LakeMetric.GAPS, name] += 1
            if step.version is not None:
                self.version, self.step_seconds = step.version, seconds
                self.counters[LakeMetric.ROWS, ""] += step.rows
                self.counters[LakeMetric.VERSIONS, step.trigger or ""] += 1

    def behind_seconds(self, input_lsn: int, now: float) -> float:
        """For how long G has been elsewhere than the lake; 0 while they are level."""
        return 0.0 if self.level is None or input_lsn == self.level else max(0.0, now - self._level_since)

    def snapshot(self) -> dict[tuple[LakeMetric, str], int]:
        """All counters, by name and label."""
        with self._lock:
            return dict(self.counters)
