"""A stream that falls quiet, on real servers: its last commit waits for no others, and a trickle costs no more."""

import time
from pathlib import Path

from storage.metrics import Metric
from storage.store import StoreOptions
from storage.write_buffer import BufferOptions, Trigger
from tests.loop import looping
from tests.postgres import Database
from tests.waiting import eventually

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
FOR_EVER = StoreOptions(BufferOptions(flush_age_seconds=3600.0))


async def test_a_commit_on_an_idle_system_is_confirmed_without_waiting_for_the_age(
    database: Database, tmp_path: Path
) -> None:
    database.execute(ITEMS)
    async with looping(database, tmp_path, store=FOR_EVER) as loop:
        entry = await loop.add("items")
        await loop.caught_up()
        database.execute("INSERT INTO items VALUES (1, 'one')")
        await loop.caught_up()
        store = loop.app.house.store
        assert store.metrics.value(Metric.FLUSHES, Trigger.QUIET) == 1
        visible, durable = store.marks(entry.log)
        assert visible == durable
        assert not store.metrics.value(Metric.FLUSHES, Trigger.AGE)


async def test_a_trickle_of_commits_is_flushed_no_more_often_than_by_its_age(
    newest_database: Database, tmp_path: Path
) -> None:
    """Quiet after nearly every commit, since the client waits for each; and each still becomes durable."""
    age_seconds, commits_count = 0.3, 100
    newest_database.execute(ITEMS)
    async with looping(
        newest_database, tmp_path, store=StoreOptions(BufferOptions(flush_age_seconds=age_seconds))
    ) as loop:
        await loop.add("items")
        await loop.caught_up()
        metrics, collector = loop.app.house.store.metrics, loop.app.house.collector
        before, began = metrics.value(Metric.SYNCS), time.monotonic()
        for _ in range(commits_count):
            upto = collector.upto
            newest_database.execute("INSERT INTO items SELECT count(*), 'v' FROM items")
            await eventually(lambda upto=upto: collector.upto > upto, "the commit to come")  # type: ignore[misc]  # a lambda's default
        await loop.caught_up()
        seconds = time.monotonic() - began
        flushes = sum(metrics.value(Metric.FLUSHES, one) for one in (Trigger.QUIET, Trigger.AGE))
        assert metrics.value(Metric.FLUSHES, Trigger.QUIET) > 1
        assert flushes <= seconds / age_seconds + 3
        others = sum(metrics.value(Metric.FLUSHES, one) for one in (Trigger.COMMIT, Trigger.JOURNAL))
        # A new file takes two: the journal's first, and a log's own.
        assert metrics.value(Metric.SYNCS) - before <= flushes + 1 + 2 * others
