"""What storage counts: reads by where the rows came from, flushes by what made them due, as they happen."""

import errno
import logging
import re
import sys
import threading

import pytest

from storage.errors import SharedDiskFault
from storage.faulty_disk import Fault, FaultyDisk, NoFaults, Rule, Script
from storage.limits import FLUSH_AGE_SECONDS
from storage.memory_disk import MemoryDisk
from storage.metrics import Metric, Metrics
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadSource
from storage.shape_log import Mode
from storage.write_buffer import Trigger
from tests.tree import ROOT
from tests.unit.builders import Rig, rows, to_journal, to_segments, transaction


def count(rig: Rig, metric: Metric, label: str = "") -> int:
    return rig.store.metrics.value(metric, label)


def labelled(rig: Rig, metric: Metric) -> dict[str, int]:
    """A metric by its labels."""
    return {label: number for (one, label), number in rig.store.metrics.counters.items() if one is metric}


def test_counters_add_up_by_name_and_label() -> None:
    metrics = Metrics()
    metrics.count(Metric.SYNCS)
    metrics.count(Metric.SYNCS, amount=2)
    metrics.count(Metric.FLUSHES, "age")
    assert metrics.value(Metric.SYNCS) == 3
    assert metrics.value(Metric.FLUSHES, "age") == 1
    assert metrics.value(Metric.FLUSHES, "demand") == 0
    assert metrics.snapshot() == {
        "shapelog_storage_syncs_total": 3,
        "shapelog_storage_flushes_total{age}": 1,
    }


def test_threads_count_beside_each_other() -> None:
    metrics = Metrics()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=count_and_look, args=(metrics, str(number))) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert metrics.value(Metric.READ_ROWS) == 4_000


def count_and_look(metrics: Metrics, name: str) -> None:
    for number in range(1_000):
        metrics.count(Metric.READ_ROWS)
        metrics.count(Metric.READS, f"{name}.{number % 50}")
        assert metrics.snapshot()


def test_names_are_those_of_prometheus() -> None:
    for metric in Metric:
        assert metric.value.startswith("shapelog_storage_")
        assert metric.value.replace("_", "a").isalpha()
    assert len(set(Metric)) == len(Metric)


def test_reads_are_counted_by_where_their_rows_came_from() -> None:
    rig = Rig(options=to_segments())
    rig.write(1, 3)
    rig.store.flush(demand=[1])
    rig = Rig(rig.disk, to_journal())
    rig.write(2, 2)
    rig.store.flush(demand=[1])
    rig.write(3)
    assert rig.store.begin_flush(demand=[1]) is not None
    rig.write(4)
    rig.read()
    assert labelled(rig, Metric.READS) == {"segment": 1, "journal": 1, "window": 1, "buffer": 1}
    assert labelled(rig, Metric.READ_ROWS) == {"segment": 3, "journal": 2, "window": 1, "buffer": 1}
    rig.read(LogOffset(1, 4))
    assert labelled(rig, Metric.READ_ROWS) == {"segment": 3, "journal": 4, "window": 2, "buffer": 2}
    rig.read(rig.upper())
    assert labelled(rig, Metric.READS) == {"segment": 1, "journal": 2, "window": 2, "buffer": 2}


def test_rows_that_were_never_on_disk_are_told_to_whoever_debugs(caplog: pytest.LogCaptureFixture) -> None:
    """For the question why a reader saw a row that a crash took back."""
    caplog.set_level(logging.DEBUG, "storage.store_reader")
    rig = Rig()
    rig.write(1)
    rig.store.flush(demand=[1])
    rig.read()
    assert caplog.messages == []
    rig.write(2)
    assert rig.store.begin_flush(demand=[1]) is not None
    rig.write(3)
    rig.read()
    assert caplog.messages == [
        "log 1 (handle-1): 1 rows served from the window, up to 3_0",
        "log 1 (handle-1): 1 rows served from the buffer, up to 3_0",
    ]


def test_a_flush_is_told_with_its_trigger_and_not_row_by_row(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "storage")
    rig = Rig(options=to_journal(flush_log_rows=500))
    rig.create(2)
    rig.write(1, 3, log=2)
    rig.write(1, 1_000)
    rig.store.flush()
    assert caplog.messages == ["flushed 2 logs: ['rows']"]
    rig.write(2, 1)
    rig.store.flush(demand=[1])
    assert caplog.messages[1:] == ["flushed 1 logs: ['demand']"]


def test_an_event_about_a_log_names_its_shape() -> None:
    """A number says nothing to whoever knows handles. What cannot be opened has none that anybody could read."""
    named = re.compile(r"\blog %d \(%s\)|flushed %d logs|%d logs may|log %d stays in the journal")
    events = [
        event
        for module in sorted((ROOT / "storage").glob("*.py"))
        for event in re.findall(r'"([^"]*\blogs? %d[^"]*|[^"]*%d logs[^"]*)"', module.read_text("utf-8"))
    ]
    assert len(events) > 8
    assert [event for event in events if not named.search(event)] == []


def test_torn_tails_are_counted() -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    rig.write(1)
    rig.store.flush(demand=[1])
    rig.write(2)
    rig.store.flush(demand=[1])
    (path,) = (f"journal/{name}" for name in disk.names("journal"))
    disk.truncate(path, disk.size(path) - 1)
    assert rig.store.gauges()[Metric.TORN_TAILS] == 0
    assert rig.reopened().store.gauges()[Metric.TORN_TAILS] == 1


def test_blocks_are_read_once_for_all_readers() -> None:
    rig = Rig(options=to_segments())
    for tx in (1, 2):
        rig.write(tx)
        rig.store.flush(demand=[1])
    for _ in range(3):
        rig.read()
    assert (count(rig, Metric.CACHE_MISSES), count(rig, Metric.CACHE_HITS)) == (2, 4)


def test_every_source_is_a_label() -> None:
    assert [source.value for source in ReadSource] == ["segment", "journal", "window", "buffer", "base"]


def test_flushes_are_counted_by_trigger() -> None:
    rig = Rig(options=to_journal(flush_log_rows=3, flush_age_seconds=FLUSH_AGE_SECONDS))
    rig.write(1)
    rig.store.flush(demand=[1])
    assert labelled(rig, Metric.FLUSHES) == {Trigger.DEMAND: 1}
    rig.write(2, 3)
    rig.store.flush()
    assert labelled(rig, Metric.FLUSHES) == {Trigger.DEMAND: 1, Trigger.ROWS: 1}
    rig.write(3)
    rig.clock.seconds += FLUSH_AGE_SECONDS
    rig.store.flush()
    assert labelled(rig, Metric.FLUSHES) == {Trigger.DEMAND: 1, Trigger.ROWS: 1, Trigger.AGE: 1}
    rig.store.flush()  # nothing was due
    assert sum(labelled(rig, Metric.FLUSHES).values()) == 3


def test_bytes_and_syncs_are_those_of_the_files() -> None:
    rig = Rig()
    rig.write(1)
    rig.store.flush(demand=[1])
    assert count(rig, Metric.SYNCS) == 2  # the new file and its folder
    rig.write(2)
    rig.store.flush(demand=[1])
    assert count(rig, Metric.SYNCS) == 3
    assert isinstance(rig.disk, MemoryDisk)
    sizes = [len(content) for name, content in rig.disk.contents().items() if name.startswith("journal/")]
    assert count(rig, Metric.FLUSHED_BYTES) == sum(sizes)


def test_failures_are_counted_by_code() -> None:
    disk = FaultyDisk(MemoryDisk(), NoFaults())
    rig = Rig(disk)
    rig.write(1)
    disk.plan = Script(Rule("append", Fault(errno.ENOSPC)))
    rig.store.flush(demand=[1])
    assert labelled(rig, Metric.FLUSH_FAILURES) == {SharedDiskFault.code: 1}
    assert count(rig, Metric.FLUSHED_BYTES) == 0


def test_gaps_and_replays() -> None:
    rig = Rig(mode=Mode.COMPACTED)
    rig.write(5, after=LogOffset(4, 0))
    rig.write(5, after=SNAPSHOT_END)
    rig.store.append(1, rows([*transaction(5, 1), (6, 0)]), after=SNAPSHOT_END)
    assert labelled(rig, Metric.GAPS) == {"handle-1": 1}
    assert count(rig, Metric.REPLAYED_ROWS) == 2


def test_gauges_say_how_it_is_now() -> None:
    rig = Rig()
    assert set(rig.store.gauges().values()) <= {0, 1}
    rig.write(1)
    rig.clock.seconds += 3
    rig.write(2)
    rig.clock.seconds += 4
    gauges = rig.store.gauges()
    assert gauges[Metric.OLDEST_UNFLUSHED_SECONDS] == 7
    assert gauges[Metric.BUFFERED_BYTES] > 0
    assert gauges[Metric.OPEN_LOGS] == 1
    assert gauges[Metric.FAULT] == 0
    rig.store.flush(demand=[1])
    gauges = rig.store.gauges()
    assert gauges[Metric.OLDEST_UNFLUSHED_SECONDS] == gauges[Metric.BUFFERED_BYTES] == 0
    assert gauges[Metric.JOURNAL_BYTES] == count(rig, Metric.FLUSHED_BYTES)
