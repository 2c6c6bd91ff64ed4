"""Watermarks: who waits is woken once, after the value is there; nobody is forgotten, and nothing is kept of the idle.

The threads here wait for events, with a bound that is only met by a hang.
"""

import logging
import sys
import threading
from bisect import insort
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.offset import BEFORE_ALL, LogOffset
from storage.watermark import _LOCK, Subscription, Watermark

PATIENCE_SECONDS = 30.0

values = st.integers(0, 20)


class WatermarkLife(RuleBasedStateMachine):
    """Against a list of waits, each with the calls that it should have had and had."""

    def __init__(self) -> None:
        super().__init__()
        self.watermark = Watermark(0)
        self.value = 0
        self.closed = False
        self.waits: list[tuple[int, Subscription[int], list[int | None]]] = []
        self.expected: list[list[int | None]] = []
        self.cancelled: set[int] = set()

    def pending(self) -> list[int]:
        return [i for i, calls in enumerate(self.expected) if not calls and i not in self.cancelled]

    def wake(self) -> None:
        for index in self.pending():
            if self.waits[index][0] < self.value:
                self.expected[index] = [self.value]

    @rule(to=values)
    def advance(self, to: int) -> None:
        assert self.watermark.advance(to) is (to > self.value)
        self.value = max(self.value, to)
        self.wake()

    @rule(to=values)
    def reset(self, to: int) -> None:
        self.watermark.reset(to)
        self.value = to
        self.wake()

    @rule(above=values)
    def subscribe(self, above: int) -> None:
        calls: list[int | None] = []

        def callback(value: int | None) -> None:
            calls.append(value)
            assert value is None or self.watermark.value == value  # stored before anybody is woken

        self.waits.append((above, self.watermark.subscribe(above, callback), calls))
        self.expected.append([None] if self.closed and above >= self.value else [])
        self.wake()

    @rule(index=st.integers(0, 30))
    def cancel(self, index: int) -> None:
        if index < len(self.waits):
            assert self.waits[index][1].cancel() is (index in self.pending())
            if index in self.pending():
                self.cancelled.add(index)

    @rule(really=st.integers(0, 9))
    def close(self, really: int) -> None:
        if really == 0:
            for index in self.pending():
                self.expected[index] = [None]
            self.watermark.close("the end" if not self.closed else "again")
            self.closed = True

    @invariant()
    def all_calls_are_as_expected(self) -> None:
        assert self.watermark.value == self.value
        assert self.watermark.closed == ("the end" if self.closed else None)
        assert [calls for _, _, calls in self.waits] == self.expected
        waiters = self.watermark._waiters
        if not self.closed:
            assert waiters is None or isinstance(waiters, list)
            assert (waiters is None) is (not self.pending())
            assert len(waiters or []) == len(self.pending())


TestWatermarkLife = WatermarkLife.TestCase


def test_offsets_have_watermarks() -> None:
    watermark = Watermark(BEFORE_ALL)
    woken: list[LogOffset | None] = []
    watermark.subscribe(LogOffset(5, 3), woken.append)
    assert watermark.advance(LogOffset(5, 3))
    assert woken == []
    assert watermark.advance(LogOffset(6, 0))
    assert woken == [LogOffset(6, 0)]


def test_an_idle_watermark_is_small() -> None:
    watermark = Watermark(0)
    for value in range(1, 100):
        watermark.advance(value)
    assert watermark._waiters is None
    assert sys.getsizeof(watermark) < 100
    watermark.subscribe(1_000, lambda _: None).cancel()
    assert watermark._waiters is None


def test_a_callback_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    watermark = Watermark(0)
    woken: list[int | None] = []

    def fail(_: int | None) -> None:
        raise RuntimeError("Event loop is closed")

    for callback in (fail, woken.append, fail, woken.append):
        watermark.subscribe(0, callback)
    with caplog.at_level(logging.ERROR):
        assert watermark.advance(1)
    assert woken == [1, 1]
    assert "Event loop is closed" in caplog.text


def test_a_callback_may_use_the_watermark() -> None:
    watermark = Watermark(0)
    seen: list[int | None] = []

    def again(value: int | None) -> None:
        seen.append(value)
        if value is not None and value < 3:
            watermark.subscribe(value, again)
            watermark.advance(value + 1)

    watermark.subscribe(0, again)
    watermark.advance(1)
    assert seen == [1, 2, 3]


def test_a_thread_waits_until_the_value_is_above() -> None:
    watermark = Watermark(0)
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(watermark.wait_above, above, PATIENCE_SECONDS) for above in (0, 1, 7)]
        watermark.advance(1)
        assert waits[0].result(PATIENCE_SECONDS) == 1
        watermark.advance(9)
        assert [wait.result(PATIENCE_SECONDS) for wait in waits] == [1, 9, 9]
    assert watermark._waiters is None


@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.001])
def test_a_wait_ends_with_its_time(timeout: float) -> None:
    watermark = Watermark(5)
    assert watermark.wait_above(5, timeout) is None
    assert watermark.wait_above(4, timeout) == 5
    assert watermark._waiters is None


def test_a_wait_whose_time_ends_while_it_is_woken_has_the_value() -> None:
    watermark = Watermark(0)
    woken: list[Subscription[int]] = []
    with ThreadPoolExecutor(1) as pool:
        while not woken:  # until the wait is in the list when we look
            wait = pool.submit(watermark.wait_above, 0, 0.01)
            while not wait.done() and not woken:
                with _LOCK:
                    woken = watermark._take_below(1)
        threading.Event().wait(0.03)  # nobody sets it: the other wait's time ends, and it finds itself taken
        woken[0]._call(1)
        assert wait.result(PATIENCE_SECONDS) == 1


def test_closing_ends_every_wait() -> None:
    watermark = Watermark(0)
    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(watermark.wait_above, 3, PATIENCE_SECONDS) for _ in range(4)]
        watermark.close("shutting down")
        assert [wait.result(PATIENCE_SECONDS) for wait in waits] == [None] * 4
    assert watermark.wait_above(3, PATIENCE_SECONDS) is None
    assert watermark.advance(4)  # what is durable may still be said
    assert watermark.wait_above(3, PATIENCE_SECONDS) == 4


def test_no_wake_up_is_lost_between_threads() -> None:
    """Each waits for the other's next step: one lost call, and this hangs."""
    ping, pong = Watermark(0), Watermark(0)
    steps = 500

    def answer() -> None:
        for step in range(steps):
            assert ping.wait_above(step, PATIENCE_SECONDS) is not None
            pong.advance(step + 1)

    thread = threading.Thread(target=answer)
    thread.start()
    for step in range(steps):
        ping.advance(step + 1)
        assert pong.wait_above(step, PATIENCE_SECONDS) is not None
    thread.join()


def test_two_who_advance_never_lower_the_value() -> None:
    watermark = Watermark(0)
    lowest: list[int] = []

    def advance(start: int) -> None:
        for value in range(start, 4_000, 2):
            before = watermark.value
            watermark.advance(value)
            if watermark.value < before:
                lowest.append(value)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(advance, (1, 2)))
    assert lowest == []
    assert watermark.value == 3_999


def test_a_wait_ends_though_the_callback_before_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.watermark.WAIT_SECONDS_MAX", 0.01)
    watermark = Watermark(0)
    is_blocked, goes_on = threading.Event(), threading.Event()

    def block(_: int | None) -> None:
        is_blocked.set()
        goes_on.wait(PATIENCE_SECONDS)

    watermark.subscribe(0, block)
    found: list[int | None] = []
    waits = threading.Thread(target=lambda: found.append(watermark.wait_above(1, 0.01)))
    subscribed = threading.Event()

    def insort_and_tell(*arguments: Any, **named: Any) -> None:
        insort(*arguments, **named)
        subscribed.set()

    monkeypatch.setattr("storage.watermark.insort", insort_and_tell)
    waits.start()
    assert subscribed.wait(PATIENCE_SECONDS)
    advances = threading.Thread(target=lambda: watermark.advance(2))
    advances.start()
    assert is_blocked.wait(PATIENCE_SECONDS)
    waits.join(PATIENCE_SECONDS)
    assert not waits.is_alive()
    assert found == [None]
    goes_on.set()
    advances.join(PATIENCE_SECONDS)
