"""The program's numbers, in the form that Prometheus reads. docs/metrics.md explains each name.

Invariants:
    nothing here counts on its own: each number is asked of the part that knows it, when somebody looks
    no label has a shape's name or a table's: ten thousand shapes must not make ten thousand series
"""

import time
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from cdc.app import App
from cdc.insurance.ladder import Rung
from cdc.status.report import StatusDesk
from cdc.status.slot_cost import Decoding, SlotLook, seconds_left
from shapes.http.app import ShapeApp
from shapes.service import ShapeService, State
from storage.catalog_records import Life
from storage.metrics import Metric as StorageMetric


class ProgramMetric(StrEnum):
    """The names beside those of storage."""

    STATE = "shapelog_state"
    CONNECTED = "shapelog_source_connected"
    CONNECTIONS = "shapelog_source_connections_total"
    RECEIVED_LSN = "shapelog_source_received_lsn"
    SEEN_LSN = "shapelog_source_seen_lsn"
    COMMIT_LAG = "shapelog_source_commit_lag_seconds"
    STUCK = "shapelog_source_stuck"
    LOOK_SECONDS = "shapelog_source_look_seconds"
    SLOT_FOUND = "shapelog_slot_found"
    SLOT_HEALTH = "shapelog_slot_health"
    SLOT_ACTIVE = "shapelog_slot_active"
    SLOT_CONFIRMED_LSN = "shapelog_slot_confirmed_flush_lsn"
    SLOT_RESTART_LSN = "shapelog_slot_restart_lsn"
    SLOT_RETAINED_BYTES = "shapelog_slot_retained_wal_bytes"
    SLOT_UNCONFIRMED_BYTES = "shapelog_slot_unconfirmed_wal_bytes"
    SLOT_RESTART_TO_CONFIRMED_BYTES = "shapelog_slot_restart_to_confirmed_bytes"
    SLOT_SAFE_BYTES = "shapelog_slot_safe_wal_bytes"
    SLOT_SECONDS_LEFT = "shapelog_slot_seconds_left"
    SLOT_SPILLED_BYTES = "shapelog_slot_spilled_bytes_total"
    SLOT_DECODED_BYTES = "shapelog_slot_decoded_bytes_total"
    SLOT_XMIN_AGE = "shapelog_slot_catalog_xmin_age"
    WALSENDER_STATE = "shapelog_walsender_state"
    WAL_END_LSN = "shapelog_server_wal_end_lsn"
    WAL_RATE = "shapelog_server_wal_bytes_per_second"
    G_LSN = "shapelog_flushed_lsn"
    G_LAG_BYTES = "shapelog_flushed_lag_bytes"
    G_LAG_SECONDS = "shapelog_flushed_lag_seconds"
    HELD = "shapelog_flushed_held"
    PENDING_SHAPES = "shapelog_pending_shapes"
    SHAPES = "shapelog_shapes"
    ENDED = "shapelog_shapes_ended_total"
    BIRTHS = "shapelog_births"
    COPIED_ROWS = "shapelog_births_copied_rows"
    FOLDS = "shapelog_folds_total"
    FOLDS_FAILED = "shapelog_folds_failed_total"
    FOLD_BYTES_BEFORE = "shapelog_fold_bytes_before_total"
    FOLD_BYTES_AFTER = "shapelog_fold_bytes_after_total"
    FOLD_SECONDS = "shapelog_fold_last_seconds"
    COMPACTIONS = "shapelog_compactions_total"
    COMPACTED_BYTES = "shapelog_compacted_bytes_total"
    BUDGET_BYTES = "shapelog_wal_budget_bytes"
    BUDGET_USED = "shapelog_wal_budget_used_ratio"
    INSURANCE_STEP = "shapelog_insurance_step"


_SLOT_STATES: Final = ("reserved", "extended", "unreserved", "lost", "missing")
_WALSENDER_STATES: Final = ("startup", "backup", "catchup", "streaming", "stopping")


class ProgramCollector(Collector):
    """Asks the running parts."""

    def __init__(self, app: App, service: ShapeService, desk: StatusDesk, shapes: ShapeApp) -> None:
        self._app = app
        self._service = service
        self._desk = desk
        self._shape_app = shapes

    def collect(self) -> Iterator[Metric]:
        """All numbers as of now; of the slot, as of the last look."""
        yield from self._source()
        yield from self._slot(self._desk.watch.last)
        yield from self._insurance()
        yield from self._flushed()
        yield from self._shapes()
        yield from self._folds()
        yield from storage_metrics(self._app)
        for metric, value in self._shape_app.numbers().items():
            is_counter = metric.value.endswith("_total")
            yield (CounterMetricFamily if is_counter else GaugeMetricFamily)(*_names(metric), value=value)
        for metric, counts in self._shape_app.reasons().items():
            family = CounterMetricFamily(*_names(metric), labels=["reason"])
            for reason, count in counts.items():
                family.add_metric([reason], count)
            yield family

    def _source(self) -> Iterator[Metric]:
        session, tracker = self._app.house.session, self._app.house.collector.tracker
        state = _family(ProgramMetric.STATE, "state")
        for one in State:
            state.add_metric([one.value], self._service.state is one)
        yield state
        yield _gauge(ProgramMetric.CONNECTED, session.attempt is not None)
        yield CounterMetricFamily(*_names(ProgramMetric.CONNECTIONS), value=session.attempts_count)
        yield _gauge(ProgramMetric.RECEIVED_LSN, session.received)
        yield _gauge(ProgramMetric.SEEN_LSN, tracker.seen.lsn)
        if (lag := self._app.capture.commit_lag_seconds) is not None:
            yield _gauge(ProgramMetric.COMMIT_LAG, lag)
        yield _gauge(ProgramMetric.STUCK, session.standstill.fault is not None)
        look = session.look
        yield _gauge(ProgramMetric.LOOK_SECONDS, 0 if look is None else time.monotonic() - look.started)

    def _slot(self, look: SlotLook | None) -> Iterator[Metric]:
        yield _gauge(ProgramMetric.SLOT_FOUND, look is not None and look.slot is not None)
        if look is None:
            return
        health = "missing" if look.slot is None else look.slot.wal_status or "lost"
        family = _family(ProgramMetric.SLOT_HEALTH, "status")
        for state in _SLOT_STATES:
            family.add_metric([state], state == health)
        yield family
        rate = self._desk.watch.rate.bytes_per_second
        slot = look.slot
        restart = None if slot is None else slot.restart_lsn
        confirmed = None if slot is None else slot.confirmed_flush_lsn
        kept = None if restart is None or confirmed is None else confirmed - restart
        known: dict[ProgramMetric, float | None] = {
            ProgramMetric.WAL_END_LSN: look.wal_end,
            ProgramMetric.WAL_RATE: rate,
            ProgramMetric.SLOT_ACTIVE: None if slot is None else slot.active_pid is not None,
            ProgramMetric.SLOT_CONFIRMED_LSN: confirmed,
            ProgramMetric.SLOT_RESTART_LSN: restart,
            ProgramMetric.SLOT_RETAINED_BYTES: look.retained_bytes,
            ProgramMetric.SLOT_UNCONFIRMED_BYTES: look.unconfirmed_bytes,
            ProgramMetric.SLOT_RESTART_TO_CONFIRMED_BYTES: kept,
            ProgramMetric.SLOT_SAFE_BYTES: None if slot is None else slot.safe_wal_bytes,
            ProgramMetric.SLOT_SECONDS_LEFT: None if slot is None else seconds_left(slot.safe_wal_bytes, rate),
        }
        for metric, value in known.items():
            if value is not None:  # a number that nobody knows is no zero
                yield _gauge(metric, value)
        if look.decoding is not None:
            yield from _decoding(look.decoding)

    def _insurance(self) -> Iterator[Metric]:
        insurer = self._desk.insurer
        if insurer is None:
            return
        if insurer.budget is not None:
            yield _gauge(ProgramMetric.BUDGET_BYTES, insurer.budget.bytes)
            yield _gauge(ProgramMetric.BUDGET_USED, insurer.budget.share)
        step = _family(ProgramMetric.INSURANCE_STEP, "step")
        for rung in Rung:
            step.add_metric([rung.name.lower()], insurer.ladder.rung is rung)
        yield step

    def _flushed(self) -> Iterator[Metric]:
        explained = self._desk.explain()
        yield _gauge(ProgramMetric.G_LSN, explained.g.lsn)
        yield _gauge(ProgramMetric.G_LAG_BYTES, explained.seen.lsn - explained.g.lsn)
        yield _gauge(ProgramMetric.G_LAG_SECONDS, explained.holder.seconds if explained.holder is not None else 0)
        held = _family(ProgramMetric.HELD, "by")
        held.add_metric([explained.hold.value], 1)
        yield held
        yield _gauge(ProgramMetric.PENDING_SHAPES, explained.shapes_pending)

    def _shapes(self) -> Iterator[Metric]:
        lives = Counter[tuple[str, str]]()
        for entry in self._app.house.registry.living():
            lives[entry.shape.life.value, "no" if entry.shape.name is None else "yes"] += 1
        shapes = _family(ProgramMetric.SHAPES, "life", "named")
        for life in (Life.BORN, Life.READY):
            for named in ("no", "yes"):
                shapes.add_metric([life.value, named], lives[life.value, named])
        yield shapes
        ended = CounterMetricFamily(*_names(ProgramMetric.ENDED), labels=["reason"])
        for reason, count in self._app.house.endings.counts.items():
            ended.add_metric([reason], count)
        yield ended
        orders = self._app.nursery.orders
        births = _family(ProgramMetric.BIRTHS, "step")
        for step, count in Counter(birth["step"] for birth in self._desk.births()).items():
            births.add_metric([step], count)
        yield births
        copied = sum(order.status.progress.rows for order in orders if order.status.progress is not None)
        yield _gauge(ProgramMetric.COPIED_ROWS, copied)

    def _folds(self) -> Iterator[Metric]:
        counts = self._app.folding.counts
        yield CounterMetricFamily(*_names(ProgramMetric.FOLDS), value=counts.count)
        failed = CounterMetricFamily(*_names(ProgramMetric.FOLDS_FAILED), labels=["code"])
        for code, count in counts.failures.items():
            failed.add_metric([code], count)
        yield failed
        yield CounterMetricFamily(*_names(ProgramMetric.FOLD_BYTES_BEFORE), value=counts.bytes_before)
        yield CounterMetricFamily(*_names(ProgramMetric.FOLD_BYTES_AFTER), value=counts.bytes_after)
        yield _gauge(ProgramMetric.FOLD_SECONDS, counts.seconds)
        yield CounterMetricFamily(*_names(ProgramMetric.COMPACTIONS), value=counts.compactions)
        yield CounterMetricFamily(*_names(ProgramMetric.COMPACTED_BYTES), value=counts.compacted_bytes)


def _decoding(decoding: Decoding) -> Iterator[Metric]:
    """The server's work for the slot."""
    state = _family(ProgramMetric.WALSENDER_STATE, "state")
    for one in _WALSENDER_STATES:
        state.add_metric([one], one == decoding.walsender_state)
    yield state
    if decoding.catalog_xmin_age is not None:
        yield _gauge(ProgramMetric.SLOT_XMIN_AGE, decoding.catalog_xmin_age)
    counted = {
        ProgramMetric.SLOT_SPILLED_BYTES: decoding.spilled_bytes,
        ProgramMetric.SLOT_DECODED_BYTES: decoding.decoded_bytes,
    }
    for metric, value in counted.items():
        if value is not None:
            yield CounterMetricFamily(*_names(metric), value=value)


_STORAGE_LABELS: Final = {
    StorageMetric.READS: "source",
    StorageMetric.READ_ROWS: "source",
    StorageMetric.FLUSHES: "trigger",
    StorageMetric.FLUSH_FAILURES: "code",
}


def storage_metrics(app: App) -> Iterator[Metric]:
    """What storage counts; gaps of all logs in one number, since their label would be the shape."""
    metrics = app.house.store.metrics
    gauges = app.house.store.gauges()
    for metric in StorageMetric:
        if metric in gauges:
            yield GaugeMetricFamily(*_names(metric), value=gauges[metric])
            continue
        label = _STORAGE_LABELS.get(metric)
        if label is None:
            yield CounterMetricFamily(*_names(metric), value=metrics.value(metric))
            continue
        family = CounterMetricFamily(*_names(metric), labels=[label])
        for (counted, value), count in list(metrics.counters.items()):
            if counted is metric:
                family.add_metric([value], count)
        yield family


def exposition(app: App, service: ShapeService, desk: StatusDesk, shapes: ShapeApp) -> "Exposition":
    """The text of all numbers, whenever it is asked for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ProgramCollector(app, service, desk, shapes))
    ProcessCollector(registry=registry)
    return Exposition(registry)


class Exposition:
    """A registry as text."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def __call__(self) -> bytes:
        return generate_latest(self._registry)


def _names(metric: StrEnum) -> tuple[str, str]:
    return metric.value, "see docs/metrics.md"


def _gauge(metric: StrEnum, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(*_names(metric), value=value)


def _family(metric: StrEnum, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(*_names(metric), labels=labels)
