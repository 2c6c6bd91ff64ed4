"""A materializer's numbers, in the form that Prometheus reads, at a port of their own. docs/metrics.md explains them.

Unlike those of the server they have tables as labels: a lake has shapes with names only, which people gave one by one.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from cdc.errors import AddressTaken
from storage.disk import LocalDisk, folder_of
from storage.errors import StorageError
from storage.lake.lake_layout import SIDES, view_folder
from storage.lake.metrics import LakeMetric, LakeMetrics
from storage.lake.versions import Version
from storage.progress import ProgressReader

_LABELS: Final = {LakeMetric.VERSIONS: "trigger", LakeMetric.FAULTS: "code", LakeMetric.GAPS: "table"}


class LakeCollector(Collector):
    """Asks the materializer, and the data folder how far the input is: also while a step takes long."""

    def __init__(self, data: LocalDisk, lake: Path, metrics: LakeMetrics) -> None:
        self._lake, self._metrics = lake, metrics
        self._progress = ProgressReader(data)
        self._turn = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """All numbers as of now."""
        metrics, counted = self._metrics, self._metrics.snapshot()
        for metric in LakeMetric:
            if metric.value.endswith("_total"):
                label = _LABELS.get(metric)
                family = CounterMetricFamily(*_names(metric), labels=[label] if label else [])
                for (name, value), count in ({(metric, ""): 0} | counted if label is None else counted).items():
                    if name is metric:
                        family.add_metric([value] if label else [], count)
                yield family
        input_lsn, version, now = self._input_lsn(), metrics.version, time.monotonic()
        known = {
            LakeMetric.INPUT_LSN: input_lsn,
            LakeMetric.LEVEL_LSN: metrics.level,
            LakeMetric.BEHIND_SECONDS: None if input_lsn is None else metrics.behind_seconds(input_lsn, now),
            LakeMetric.WAITING_TABLES: metrics.waiting,
            LakeMetric.STEP_SECONDS: metrics.step_seconds,
            LakeMetric.ORPHANS: metrics.orphans,
            LakeMetric.VERSION: None if version is None else version.number,
        }
        for metric, number in known.items():
            if number is not None:  # a number that nobody knows is no zero
                yield GaugeMetricFamily(*_names(metric), value=number)
        if version is not None:
            yield from self._tables(version)

    def _tables(self, version: Version) -> Iterator[Metric]:
        lsn, files, quarantined = (
            GaugeMetricFamily(*_names(metric), labels=labels)
            for metric, labels in (
                (LakeMetric.TABLE_LSN, ["table"]),
                (LakeMetric.TABLE_FILES, ["table", "side"]),
                (LakeMetric.QUARANTINED, ["table"]),
            )
        )
        for table in version.tables:
            lsn.add_metric([table.name], table.upto.tx)
            quarantined.add_metric([table.name], table.quarantined)
            for side in SIDES:
                if (of_version := table.side(side)) is not None:
                    folder = self._lake / view_folder(table.name, side, of_version.cut)
                    files.add_metric([table.name, side], sum(1 for _ in folder.glob("*.parquet")))
        yield from (lsn, files, quarantined)

    def _input_lsn(self) -> int | None:
        with self._turn, contextlib.suppress(StorageError):
            self._progress.refresh()
            record = self._progress.history.latest
            return None if record is None else record.lsn
        return None


@contextlib.contextmanager
def lake_metrics_served(data: Path, lake: Path, metrics: LakeMetrics, host: str, port: int) -> Iterator[int]:
    """Answer at `/metrics` while the context lasts; gives the port."""
    with folder_of(LocalDisk(data.resolve())) as disk:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(LakeCollector(disk, lake.resolve(), metrics))
        ProcessCollector(registry=registry)
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise AddressTaken(f"cannot listen at {host}, port {port}: {error.strerror or error}") from None
        try:
            yield int(server.server_port)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _names(metric: LakeMetric) -> tuple[str, str]:
    return metric.value, "see docs/metrics.md"
