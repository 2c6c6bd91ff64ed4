"""The write buffer: what it counts, what it refuses, which logs are due and why, and in which order."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BufferFull, Hole
from storage.offset import LogOffset
from storage.shape_log import Mode, Recovered, ShapeLog
from storage.share import Share, Source
from storage.write_buffer import SHARE_COST_BYTES, BufferOptions, Trigger, WriteBuffer
from tests.unit.builders import rows

OPTIONS = BufferOptions(
    log_bytes_max=10_000, bytes_max=50_000, flush_log_bytes=4_000, flush_log_rows=20, flush_age_seconds=10.0
)


class Bench:
    """A buffer, some logs, and the plain list of what each of them holds."""

    def __init__(self, options: BufferOptions = OPTIONS, logs: int = 3) -> None:
        self.buffer = WriteBuffer(options)
        self.logs = {number: new_log(number) for number in range(1, logs + 1)}
        self._tx = 0

    def source(self, count: int = 1, text: str = "") -> Source:
        self._tx += 1
        return Source(rows([(self._tx, 2 * index) for index in range(count)], text=text))

    def append(
        self, number: int, source: Source | None = None, selected: list[int] | None = None, now: float = 0.0
    ) -> Share:
        log = self.logs[number]
        source = source or self.source()
        share = Share(source, None if selected is None else np.array(selected), at=now)
        self.buffer.admit(log, share.size, 0 if source.holders else source.size)
        log.take(share, now)
        self.buffer.hold(log, share)
        return share

    def commit(self, number: int) -> None:
        log = self.logs[number]
        log.commit(LogOffset(log.last.tx, log.last.op + 1))
        self.buffer.touch(log)

    def drain(self, *numbers: int) -> None:
        for number in numbers:
            self.buffer.forget(self.logs[number])
            self.logs[number].drain()

    def end(self, *numbers: int) -> None:
        for number in numbers:
            log = self.logs[number]
            assert log.window is not None
            self.buffer.release(log.window.shares)
            log.flushed(0)
            self.buffer.touch(log)

    def fail(self, *numbers: int) -> None:
        for number in numbers:
            self.logs[number].failed()
        self.buffer.restore([self.logs[number] for number in numbers])
        for number in numbers:
            self.buffer.touch(self.logs[number])

    def due(self, now: float = 0.0) -> dict[int, Trigger]:
        return {number: trigger for number, (_, trigger) in self.buffer.due(now).items()}

    def counted(self) -> int:
        """What the buffer should count: each source once, and a cost for each share."""
        shares = [share for log in self.logs.values() for share, _ in log.in_memory()]
        sources = {id(share.source): share.source.size for share in shares}
        return sum(sources.values()) + sum(cost(shares))


def new_log(number: int) -> ShapeLog:
    return ShapeLog(number, f"handle-{number}", Mode.APPEND, Recovered())


def cost(shares: Iterable[Share]) -> list[int]:
    return [SHARE_COST_BYTES + (0 if share.rows is None else share.rows.nbytes) for share in shares]


# Triggers.


def test_nothing_is_due_of_nothing() -> None:
    bench = Bench()
    assert bench.due(now=1e9) == {}
    assert bench.buffer.next_due_at() is None
    assert bench.buffer.oldest_at() is None


def test_bytes() -> None:
    bench = Bench()
    bench.append(1, bench.source(text="x" * 3_900))
    assert bench.due() == {}
    bench.append(1, bench.source(text="x" * 100))
    assert bench.due() == {1: Trigger.BYTES}
    assert bench.buffer.next_due_at() == 0.0


def test_rows() -> None:
    bench = Bench()
    bench.append(1, bench.source(19))
    bench.append(2, bench.source(5))
    assert bench.due() == {}
    bench.append(1)
    assert bench.due() == {1: Trigger.ROWS}


def test_age_takes_all_along_and_needs_no_append() -> None:
    bench = Bench()
    bench.append(1, now=3.0)
    bench.append(2, now=7.0)
    assert bench.buffer.next_due_at() == 13.0
    assert bench.due(now=12.9) == {}
    assert bench.due(now=13.0) == {1: Trigger.AGE, 2: Trigger.AGE}


def test_the_age_is_not_that_of_the_newest_row() -> None:
    bench = Bench()
    for now in range(10):
        bench.append(1, now=float(now))
        assert bench.buffer.oldest_at() == 0.0


def test_rows_wait_for_no_others_once_it_is_quiet() -> None:
    bench = Bench()
    bench.append(1, now=3.0)
    bench.append(2, now=4.0)
    assert bench.buffer.take_news(), "of the first row"
    bench.buffer.quiet()
    assert bench.buffer.take_news(), "whoever waits for the age has to be woken"
    assert bench.buffer.next_due_at() <= 4.0  # type: ignore[operator]  # it is a moment
    assert bench.due(now=4.0) == {1: Trigger.QUIET, 2: Trigger.QUIET}


def test_quiet_is_over_with_the_next_row() -> None:
    bench = Bench()
    bench.append(1, now=3.0)
    bench.buffer.quiet()
    bench.append(1, now=3.5)
    assert bench.due(now=4.0) == {}
    assert bench.buffer.next_due_at() == 13.0


def test_who_wants_quiet_rows_to_wait_has_them_wait_for_their_age() -> None:
    bench = Bench(BufferOptions(flush_age_seconds=10.0, flushes_when_quiet=False))
    bench.append(1, now=0.0)
    bench.buffer.quiet()
    assert bench.due(now=9.9) == {}
    assert bench.due(now=10.0) == {1: Trigger.AGE}


def test_quiet_without_rows_is_nothing() -> None:
    bench = Bench()
    bench.buffer.quiet()
    assert not bench.buffer.take_news()
    assert bench.buffer.next_due_at() is None
    bench.append(1, now=3.0)
    assert bench.due(now=3.0) == {}


def test_a_trickle_is_flushed_as_often_as_by_its_age() -> None:
    """Quiet after each row: two flushes come early, and then one in the time of the age."""
    bench, flushes = Bench(), list[float]()
    for now in range(100):
        bench.append(1, now=float(now))
        bench.buffer.quiet()
        if bench.due(now=float(now)):
            flushes.append(float(now))
            bench.drain(1)
            bench.end(1)
    assert flushes == [0.0, 1.0, *map(float, range(10, 100, 10))]


def test_the_age_is_met_however_quiet_it_is() -> None:
    """Two flushes came early, and a row waits: no longer than it would have waited without."""
    bench = Bench()
    for now in (100.0, 100.1):
        bench.append(1, now=now)
        bench.buffer.quiet()
        assert bench.due(now=now) == {1: Trigger.QUIET}
        bench.drain(1)
        bench.end(1)
    bench.append(1, now=100.2)
    bench.buffer.quiet()
    assert bench.due(now=109.9) == {}
    assert bench.due(now=110.2)


def test_a_commit_behind_its_rows() -> None:
    bench = Bench()
    bench.append(1)
    bench.drain(1)
    bench.end(1)
    assert bench.due() == {}
    bench.commit(1)
    assert bench.due() == {1: Trigger.COMMIT}
    assert bench.buffer.oldest_at() is None  # no row waits


def test_a_commit_with_rows_to_carry_it_waits_with_them() -> None:
    bench = Bench()
    bench.append(1)
    bench.commit(1)
    assert bench.due() == {}


def test_pressure() -> None:
    bench = Bench(BufferOptions(bytes_max=3_000, flush_age_seconds=10.0))
    bench.append(1, bench.source(text="x" * 1_000))
    assert bench.due() == {}
    bench.append(2, bench.source(text="x" * 1_200))
    assert bench.due() == {1: Trigger.PRESSURE, 2: Trigger.PRESSURE}
    assert bench.buffer.next_due_at() == 0.0


def test_pressure_of_shares() -> None:
    """A share costs memory however few rows it has: two of them are the bound, and rows are far from theirs."""
    bench = Bench(BufferOptions(shares_max=2, flush_age_seconds=10.0))
    source = bench.source(3)
    bench.append(1, source, [0])
    assert bench.buffer.has_room(1, None)
    assert bench.due() == {}
    bench.append(2, source, [1])
    assert not bench.buffer.has_room(1, None)
    assert bench.buffer.next_due_at() == 0.0
    assert bench.due() == {1: Trigger.PRESSURE, 2: Trigger.PRESSURE}
    bench.append(3, source, [2])  # a batch that was let in is taken by all who want it
    with pytest.raises(BufferFull, match="in 3 shares of at most 2"):
        bench.append(1, bench.source())
    bench.drain(1, 2)
    assert not bench.buffer.has_room(1, None), "they are in memory until their flush has ended"
    bench.end(1, 2)
    bench.append(1, bench.source())
    assert bench.buffer.shares_count == 2


def test_demand() -> None:
    bench = Bench()
    bench.append(1)
    bench.buffer.demand([bench.logs[1], bench.logs[2]])
    assert bench.due() == {1: Trigger.DEMAND}  # log 2 holds nothing


def test_a_log_keeps_its_own_reason_among_all() -> None:
    bench = Bench()
    bench.append(1, bench.source(20))
    bench.append(2)
    assert bench.due(now=100.0) == {1: Trigger.ROWS, 2: Trigger.AGE}


@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_trigger_has_a_name_for_metrics(trigger: Trigger) -> None:
    assert trigger.value.isidentifier()


# Bounds.


def test_a_log_is_bounded() -> None:
    bench = Bench()
    bench.append(1, bench.source(text="x" * 6_000))
    with pytest.raises(BufferFull, match="log 1 holds"):
        bench.append(1, bench.source(text="x" * 6_000))
    bench.append(2, bench.source(text="x" * 6_000))


def test_all_logs_are_bounded_together() -> None:
    bench = Bench(logs=9)
    for number in range(1, 9):
        bench.append(number, bench.source(text="x" * 5_100))
    with pytest.raises(BufferFull, match="all logs hold"):
        bench.append(9, bench.source(text="x" * 9_000))
    assert bench.buffer.has_room(1_000, None)
    assert not bench.buffer.has_room(9_000, None)


def test_a_window_counts_until_its_flush_has_ended() -> None:
    """R8: memory is memory, in the buffer or on its way to the disk."""
    bench = Bench()
    bench.append(1, bench.source(text="x" * 9_000))
    size = bench.buffer.size
    bench.drain(1)
    assert bench.buffer.size == size
    bench.end(1)
    assert bench.buffer.size == 0


def test_one_append_above_the_bounds_is_let_in_alone() -> None:
    bench = Bench()
    bench.append(1, bench.source(text="x" * 90_000))
    assert bench.due() == {1: Trigger.PRESSURE} or bench.due() == {1: Trigger.BYTES}
    with pytest.raises(BufferFull):
        bench.append(2)
    bench.drain(1)
    with pytest.raises(BufferFull):
        bench.append(2)  # what is in flight is still in memory
    bench.end(1)
    bench.append(2)


def test_a_source_above_the_bound_is_let_in_for_all_its_logs() -> None:
    """One fragment is one append, however many logs take rows of it: the later ones need no more room."""
    bench = Bench()
    source = bench.source(3, text="x" * 60_000)
    for number in (1, 2, 3):
        bench.append(number, source, [number - 1])
    assert bench.buffer.size == source.size + 3 * (SHARE_COST_BYTES + 8)


def test_refused_rows_leave_nothing_behind() -> None:
    bench = Bench()
    bench.append(1, bench.source(text="x" * 6_000))
    size, due = bench.buffer.size, bench.due()
    with pytest.raises(BufferFull):
        bench.append(1, bench.source(text="x" * 6_000))
    assert (bench.buffer.size, bench.due()) == (size, due)


# Order.


def test_small_logs_go_along() -> None:
    bench = Bench()
    bench.append(1, bench.source(text="x" * 3_000))
    bench.append(2)
    bench.append(3)
    bench.drain(3)
    assert [log.number for log in bench.buffer.small(1_000)] == [2]


def test_after_a_failed_flush_its_logs_are_the_oldest_again() -> None:
    bench = Bench()
    bench.append(1, now=1.0)
    bench.drain(1)
    bench.append(2, now=5.0)
    assert bench.buffer.oldest_at() == 5.0
    bench.fail(1)
    assert bench.buffer.oldest_at() == 1.0
    assert list(bench.due(now=20.0)) == [1, 2]


def test_of_several_failed_logs_the_oldest_counts() -> None:
    bench = Bench()
    bench.append(1, now=1.0)
    bench.append(2, now=5.0)
    bench.drain(2, 1)
    bench.fail(2, 1)
    assert bench.buffer.oldest_at() == 1.0


def test_rows_keep_their_order_over_failed_flushes() -> None:
    bench = Bench()
    expected = [bench.append(1, now=1.0)]
    bench.drain(1)
    expected.append(bench.append(1, now=2.0))
    bench.fail(1)
    bench.drain(1)
    expected.append(bench.append(1, now=3.0))
    bench.fail(1)
    assert bench.logs[1].pending == expected
    assert bench.logs[1].pending_since == 1.0


def test_a_poisoned_log_is_due_for_nothing() -> None:
    bench = Bench()
    bench.append(1, bench.source(30))
    bench.buffer.release(bench.logs[1].poison(Hole("gone")))
    bench.buffer.touch(bench.logs[1])
    assert bench.due(now=1e9) == {}
    assert bench.buffer.size == 0


def test_news_is_told_once() -> None:
    bench = Bench()
    assert not bench.buffer.take_news()
    bench.append(1)
    assert bench.buffer.take_news()
    bench.append(1)
    assert not bench.buffer.take_news()  # the flusher knows already when to look
    bench.append(1, bench.source(30))
    assert bench.buffer.take_news()
    assert not bench.buffer.take_news()


# Accounting, against a plain sum.

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "shared", "commit", "drain", "end", "fail", "abandon"]), st.integers(1, 3)),
    max_size=40,
)


@given(STEPS)
def test_the_size_is_the_sum_of_what_is_held(steps: list[tuple[str, int]]) -> None:
    bench = Bench(BufferOptions(bytes_max=10**9, log_bytes_max=10**9, flush_age_seconds=10.0))
    now = 0.0
    for step, number in steps:
        now += 1.0
        log = bench.logs[number]
        match step:
            case "append":
                bench.append(number, now=now)
            case "shared":
                source = bench.source(6)
                for other in bench.logs:
                    bench.append(other, source, [other - 1, other + 2], now=now)
            case "commit" if log.has_open_rows:
                bench.commit(number)
            case "drain" if log.window is None:
                bench.drain(number)
            case "end" if log.window is not None:
                bench.end(number)
            case "fail" if log.window is not None:
                bench.fail(number)
            case "abandon" if log.window is None:
                bench.buffer.release(log.drop_open_rows())
                if log.has_open_rows_on_disk:
                    log.open_rows_were_cut(0)
                if not log.pending:
                    bench.buffer.forget(log)
                bench.buffer.touch(log)
        assert bench.buffer.size == bench.counted()
        waiting = [one.pending_since for one in bench.logs.values() if one.pending]
        assert bench.buffer.oldest_at() == min(waiting, default=None)
        owing = {one.number for one in bench.logs.values() if one.owes_commit_block}
        holding = {one.number for one in bench.logs.values() if one.pending}
        assert set(bench.due(now=1e9)) == (holding | owing if holding else owing)
        assert owing <= set(bench.due(now=now))
