"""What is counted of a lake, and what a scrape says of it, step by step."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cdc.errors import AddressTaken
from cdc.telemetry.lake_metrics import lake_metrics_served
from storage.lake.materialize import Order, materialize
from storage.lake.metrics import LakeMetrics, Trigger
from storage.lake.spark import run_here
from storage.lake.writer import Step
from tests.lakes import Lakes


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Lakes]:
    yield (made := Lakes(tmp_path, accounts=10))
    made.bank.close()


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {
        one.name + "".join(f"/{value}" for value in one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name.startswith("shapelog_lake")
    }


def once(order: Order) -> None:
    materialize(order, run_here, lambda _: None)


def test_a_scrape_says_how_the_lake_is(lakes: Lakes) -> None:
    order = Order(lakes.data, lakes.root)
    lakes.bank.play(10)
    first = lakes.bank.confirm()
    with lake_metrics_served(lakes.data, lakes.root, order.metrics, "127.0.0.1", 0) as port:
        before = scrape(port)
        assert before["shapelog_lake_input_lsn"] == first
        assert "shapelog_lake_level_lsn" not in before, "nobody knows yet, and that is no zero"
        once(order)
        seen = scrape(port)
        assert seen["shapelog_lake_level_lsn"] == seen["shapelog_lake_input_lsn"] == first
        assert seen["shapelog_lake_behind_seconds"] == 0
        assert seen["shapelog_lake_versions_total/tables"] == seen["shapelog_lake_version"] == 1
        assert seen["shapelog_lake_rows_total"] == sum(map(len, lakes.bank.changes.values()))
        assert seen["shapelog_lake_table_lsn/savings"] == first - 1, "all below G is safe"
        assert seen["shapelog_lake_table_files/state/savings"] == 1
        bad = [row for row in lakes.bank.rows["savings"].values() if row["opened"] in {"infinity", "-infinity"}]
        assert seen["shapelog_lake_quarantined_values/savings"] >= len(bad)
        orphans = seen["shapelog_lake_orphan_files"]
        (lakes.root / "delta/savings/1/state/nobodys.parquet").write_bytes(b"")
        lakes.bank.play(10)
        second = lakes.bank.confirm()
        seen = scrape(port)
        assert seen["shapelog_lake_input_lsn"] == second
        assert seen["shapelog_lake_behind_seconds"] > 0
        once(order)
        seen = scrape(port)
        assert (seen["shapelog_lake_versions_total/rows"], seen["shapelog_lake_orphan_files"]) == (1, orphans + 1)


def test_a_failure_and_a_hole_are_counted(lakes: Lakes) -> None:
    order = Order(lakes.data, lakes.root)
    lakes.bank.confirm()
    once(order)
    old = lakes.bank.end_table("savings", "altered")
    columns = lakes.bank.columns["savings"] | {"more": (25, -1)}
    lakes.bank.columns["savings"] = columns
    lakes.bank.succeed_table("savings", old, columns, lakes.bank.accounts("savings", 4))
    lakes.bank.confirm()
    once(order)
    lakes.bank.play(20)
    lakes.bank.confirm()
    lakes.bank.store.remove_log(lakes.bank.logs["savings"])
    with pytest.raises(Exception, match="savings"):
        once(order)
    with lake_metrics_served(lakes.data, lakes.root, order.metrics, "127.0.0.1", 0) as port:
        seen = scrape(port)
        assert (seen["shapelog_lake_gaps_total/savings"], seen["shapelog_lake_faults_total/lake_gap"]) == (1, 1)
        with (
            pytest.raises(AddressTaken, match=str(port)),
            lake_metrics_served(lakes.data, lakes.root, order.metrics, "127.0.0.1", port),
        ):
            pass


def test_time_behind_is_since_the_lake_moved_last() -> None:
    metrics, waiting = LakeMetrics(), {"orders": "its rows are not loaded yet"}
    assert metrics.behind_seconds(100, now=50.0) == 0, "nobody looked yet"
    version: Any = object()
    metrics.looked(Step(version, trigger=Trigger.ROWS, level=100), 0.1, now=10.0)
    assert (metrics.behind_seconds(100, now=50.0), metrics.behind_seconds(101, now=50.0)) == (0, 40)
    metrics.looked(Step(level=200), 0.1, now=60.0)
    assert (metrics.behind_seconds(200, now=90.0), metrics.behind_seconds(300, now=90.0)) == (0, 30)
    metrics.looked(Step(level=200, waits_for=waiting), 0.1, now=95.0)
    assert (metrics.behind_seconds(300, now=100.0), metrics.waiting) == (40, 1)
    metrics.looked(Step(version, trigger=Trigger.FOUND, level=300), 0.1, now=101.0)
    assert (metrics.behind_seconds(300, now=200.0), metrics.waiting) == (0, 0)
    metrics.looked(Step(level=300, overtaken="a twin was first"), 0.1, now=210.0)
    assert metrics.behind_seconds(400, now=211.0) == 110, "nobody brought it on"
    metrics.looked(Step(level=350, overtaken="a twin was first"), 0.1, now=220.0)
    assert metrics.behind_seconds(400, now=221.0) == 1, "somebody did"
