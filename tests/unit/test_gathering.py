"""What is gathered of a backlog: in order, nothing lost, nothing waited for without need."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cdc.source.attempt import Arrived, Delivery
from cdc.source.fragments import Fragment, KeepAlive
from cdc.source.lsn import Lsn
from cdc.source.pgoutput import Decoder
from cdc.source.relations import Relations
from cdc.source.walsender import CopyBatch
from shapes.gathering import Gathering
from shapes.limits import (
    GATHER_CHANGES_MIN,
    GATHER_GAP_SECONDS,
    GATHER_LIKE_BEFORE_SECONDS_MAX,
    GATHER_SHAPES_MIN,
    GATHERED_CHANGES_MAX,
)
from tests.pgoutput_bytes import begin, commit, data_frame, insert, relation
from tests.unit.test_quiet import in_made_up_time, now, pause

MANY = 100 * GATHER_SHAPES_MIN
IDLE = Arrived(1, KeepAlive(Lsn(9), wants_reply=False))


def backlog(sizes: Sequence[int]) -> list[Delivery]:
    """A fragment of one transaction for each size."""
    decoder = Decoder(Relations(), fragment_changes_max=10**9, fragment_bytes_max=10**9)
    found: list[Delivery] = []
    described = [relation(7, "items", [("id", 23, True)])]
    for number, size in enumerate(sizes, 1):
        rows = [insert(7, [str(row)]) for row in range(size)]
        messages = [*described, begin(100 * number, 0, number), *rows, commit(100 * number, 100 * number + 48, 0)]
        events = decoder.feed(CopyBatch.join([data_frame(message) for message in messages]))
        found += [Arrived(1, event) for event in events if isinstance(event, Fragment)]
        described = []
    return found


class Stream:
    """Hands out what it has, then waits."""

    def __init__(self, ready: Sequence[Delivery | Exception]) -> None:
        self.ready = list(ready)
        self.more = asyncio.Event()
        self.waits = asyncio.Event()

    async def next(self) -> Delivery:
        while not self.ready:
            self.more.clear()
            self.waits.set()
            await self.more.wait()
        await asyncio.sleep(0)
        found = self.ready.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def bring(self, *deliveries: Delivery) -> None:
        self.ready += deliveries
        self.more.set()


def of_two_tables(sizes: Sequence[int]) -> list[Delivery]:
    """A fragment of one transaction for each size, with rows of one table and then of another."""
    decoder = Decoder(Relations(), fragment_changes_max=10**9, fragment_bytes_max=10**9)
    described = [relation(oid, f"table{oid}", [("id", 23, True)]) for oid in (7, 8)]
    decoder.feed(CopyBatch.join([data_frame(message) for message in described]))
    found: list[Delivery] = []
    for number, size in enumerate(sizes, 1):
        changes = [insert(7 + (row >= size // 2), [str(row)]) for row in range(size)]
        messages = [begin(100 * number, 0, number), *changes, commit(100 * number, 100 * number + 48, 0)]
        found += [Arrived(1, event) for event in decoder.feed(CopyBatch.join(list(map(data_frame, messages))))]
    return found


def counts(delivery: Delivery) -> Any:
    assert isinstance(delivery, Arrived)
    assert isinstance(delivery.event, Fragment)
    return delivery.event.transactions.changes.tolist()


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may stop us for longer than a backlog pauses."""
    monkeypatch.setattr("shapes.gathering.GATHER_GAP_SECONDS", 10.0)
    monkeypatch.setattr("shapes.gathering.GATHER_SECONDS_MAX", 10.0)


async def test_a_backlog_is_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    sizes = [2, 3, 1500]
    gathering = Gathering(Stream([*backlog(sizes), IDLE]).next)
    assert counts(await gathering.next(MANY)) == sizes
    assert await gathering.next(MANY) is IDLE


async def test_a_backlog_of_several_tables_is_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows them: each table costs for each fragment, whatever rows of it are in there."""
    patient(monkeypatch)
    sizes = [GATHER_CHANGES_MIN, 20]
    gathering = Gathering(Stream([*of_two_tables(sizes), IDLE]).next)
    assert counts(await gathering.next(2)) == sizes
    assert await gathering.next(2) is IDLE


async def test_a_backlog_of_one_table_is_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    sizes = [GATHER_CHANGES_MIN, 20, 1]
    gathering = Gathering(Stream([*backlog(sizes), IDLE]).next)
    assert counts(await gathering.next(1)) == sizes


async def test_a_stream_that_never_pauses_is_not_gathered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fragment comes before the gap is over; the first of them still waits for no longer than its limit."""
    patient(monkeypatch)
    monkeypatch.setattr("shapes.gathering.GATHER_SECONDS_MAX", 0.0)
    monkeypatch.setattr("shapes.gathering.GATHER_GAP_SECONDS", 0.02)
    sizes = [GATHER_CHANGES_MIN] + [1] * 50
    stream = Stream(backlog(sizes))

    async def slowly() -> Delivery:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.002):
                await asyncio.Event().wait()
        return await stream.next()

    found = counts(await Gathering(slowly).next(1))
    assert 1 <= len(found) < len(sizes)


async def test_an_error_that_looks_like_a_timeout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    gathering = Gathering(Stream([*backlog([2000]), TimeoutError("of the connection")]).next)
    assert counts(await gathering.next(1)) == [2000]
    with pytest.raises(TimeoutError, match="of the connection"):
        await gathering.next(1)


async def test_a_few_changes_of_several_tables_wait_for_nothing() -> None:
    deliveries = of_two_tables([GATHER_CHANGES_MIN - 1, 20])
    gathering = Gathering(Stream(deliveries).next)
    assert await gathering.next(2) is deliveries[0]


@pytest.mark.parametrize(
    ("touched", "took_seconds", "waits_seconds"),
    [(MANY, 0.5, 0.5), (MANY, 60.0, GATHER_LIKE_BEFORE_SECONDS_MAX), (1, 0.5, GATHER_GAP_SECONDS)],
)
def test_where_many_shapes_are_touched_a_fragment_waits_as_long_as_the_one_before_took(
    touched: int, took_seconds: float, waits_seconds: float
) -> None:
    async def story() -> None:
        stream = Stream(backlog([2000]))
        gathering = Gathering(stream.next)
        await gathering.next(0)
        await pause(took_seconds)
        stream.bring(*backlog([2000]))
        began = now()
        assert counts(await gathering.next(touched)) == [2000]
        assert now() - began == pytest.approx(waits_seconds)

    in_made_up_time(story)


async def test_few_shapes_wait_for_nothing() -> None:
    deliveries = backlog([20, 20])
    gathering = Gathering(Stream(deliveries).next)
    assert await gathering.next(GATHER_SHAPES_MIN - 1) is deliveries[0]
    assert await gathering.next(GATHER_SHAPES_MIN - 1) is deliveries[1]


async def test_no_more_than_the_limit_and_one_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    sizes = [GATHERED_CHANGES_MAX // 2 + 1] * 3
    gathering = Gathering(Stream([*backlog(sizes), IDLE]).next)
    assert counts(await gathering.next(MANY)) == sizes[:2]
    assert counts(await gathering.next(0)) == sizes[2:]


async def test_the_limit_counts_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    monkeypatch.setattr("shapes.gathering.GATHERED_CHANGES_MAX", 30)
    gathering = Gathering(Stream(backlog([20] * 6)).next)
    assert [counts(await gathering.next(MANY)) for _ in range(3)] == [[20, 20]] * 3


async def test_wide_rows_are_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    deliveries = backlog([500] * 6)
    sizes = [one.event.rows_bytes for one in deliveries if isinstance(one, Arrived) and isinstance(one.event, Fragment)]
    monkeypatch.setattr("shapes.gathering.GATHERED_BYTES_MAX", sizes[0] + 1)
    gathering = Gathering(Stream(deliveries).next)
    assert [counts(await gathering.next(MANY)) for _ in range(3)] == [[500, 500]] * 3
    assert min(sizes) > 500 * (8 + 8 + 1)


async def test_what_does_not_come_is_not_waited_for() -> None:
    stream = Stream(backlog([2000]))
    gathering = Gathering(stream.next)
    assert counts(await gathering.next(MANY)) == [2000]
    stream.bring(IDLE)
    assert await gathering.next(MANY) is IDLE


async def test_a_batch_that_is_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes longer than the gap to come; what has come of it says that the server is not silent."""
    patient(monkeypatch)
    monkeypatch.setattr("shapes.gathering.GATHER_GAP_SECONDS", 0.001)
    first, second = backlog([2000, 3000])
    stream, looks = Stream([first]), list[bool]()

    def is_receiving() -> bool:
        looks.append(True)
        if len(looks) == 5:
            stream.bring(second, IDLE)
        return True

    assert counts(await Gathering(stream.next, is_receiving).next(1)) == [2000, 3000]


async def test_a_batch_that_never_ends_is_waited_for_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapes.gathering.GATHER_GAP_SECONDS", 0.001)
    monkeypatch.setattr("shapes.gathering.GATHER_SECONDS_MAX", 0.02)
    assert counts(await Gathering(Stream(backlog([2000])).next, lambda: True).next(1)) == [2000]


async def test_quiet_is_told_with_nothing_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapes.gathering.QUIET_SECONDS", 0.001)
    told = asyncio.Event()
    stream = Stream(backlog([2000]))
    gathering = Gathering(stream.next, on_quiet=told.set)
    assert counts(await gathering.next(1)) == [2000]
    assert not told.is_set(), "rows in hand are not in the store yet"
    following = asyncio.create_task(gathering.next(1))
    await told.wait()
    stream.bring(IDLE)
    assert await following is IDLE


async def test_an_error_comes_behind_what_came_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    broken = ConnectionError("broken")
    gathering = Gathering(Stream([*backlog([2000, 2000]), broken, IDLE]).next)
    assert counts(await gathering.next(MANY)) == [2000, 2000]
    with pytest.raises(ConnectionError, match="broken"):
        await gathering.next(MANY)
    assert await gathering.next(MANY) is IDLE


async def test_another_connection_is_another_fragment() -> None:
    first, second = backlog([2000, 2000])
    assert isinstance(second, Arrived)
    gathering = Gathering(Stream([first, Arrived(2, second.event)]).next)
    assert counts(await gathering.next(MANY)) == [2000]
    again = await gathering.next(0)
    assert isinstance(again, Arrived)
    assert again.attempt == 2


async def test_whoever_is_cancelled_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    stream = Stream(backlog([2000]))
    gathering = Gathering(stream.next)
    waiting = asyncio.create_task(gathering.next(MANY))
    await stream.waits.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    stream.bring(*backlog([2000, 1000])[1:], IDLE)
    found = await gathering.next(MANY)
    assert counts(found) == [2000, 1000]
    assert isinstance(found, Arrived)
    assert isinstance(found.event, Fragment)
    assert np.array_equal(np.unique(found.event.changes[0].transaction), [0, 1])
