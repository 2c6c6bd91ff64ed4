"""The marks of each log: who waits for one is woken by it, and by nothing else.

Invariants:
    a mark is stored before anybody is woken; it never falls
    a move between the look at the state and the wait is not missed
    a log that nobody watches costs nothing
"""

import threading

from hypothesis import given
from hypothesis import strategies as st

from storage.marks import LogMarks, Marks
from storage.offset import SNAPSHOT_END, LogOffset

LONG_SECONDS = 30.0


def at(tx: int) -> LogOffset:
    return LogOffset(tx, 1)


def test_there_is_an_entry_for_a_log_that_is_watched() -> None:
    marks = LogMarks()
    assert not marks
    marks.visible(1, at(1))
    marks.durable(1, at(1))
    marks.close(1, "removed")
    assert not marks
    found = marks.watch(1, at(5), at(3))
    assert marks
    assert (found.visible.value, found.durable.value) == (at(5), at(3))


def test_all_who_watch_a_log_share_its_marks() -> None:
    marks = LogMarks()
    first = marks.watch(1, at(5), at(3))
    marks.visible(1, at(7))
    assert marks.watch(1, at(7), at(3)) is first
    assert marks.watch(2, at(7), at(3)) is not first


def test_data_and_durability_wake_apart() -> None:
    marks = LogMarks()
    watched = marks.watch(1, at(5), at(5))
    woken: list[tuple[str, LogOffset | None]] = []
    watched.visible.subscribe(at(5), lambda value: woken.append(("visible", value)))
    watched.durable.subscribe(at(5), lambda value: woken.append(("durable", value)))
    marks.visible(2, at(9))
    assert woken == []
    marks.visible(1, at(6))
    assert woken == [("visible", at(6))]
    marks.durable(1, at(6))
    assert woken == [("visible", at(6)), ("durable", at(6))]


def test_a_log_that_is_removed_wakes_its_waiters_empty_handed() -> None:
    marks = LogMarks()
    watched = marks.watch(1, at(5), at(5))
    woken: list[LogOffset | None] = []
    watched.visible.subscribe(at(5), woken.append)
    watched.durable.subscribe(at(5), woken.append)
    marks.close(1, "the log was removed")
    assert woken == [None, None]
    assert not marks
    assert watched.visible.closed == watched.durable.closed == "the log was removed"
    assert watched.durable.wait_above(at(5), LONG_SECONDS) is None
    marks.visible(1, at(8))
    assert watched.visible.value == at(5)


Move = tuple[str, int, int]


@given(st.lists(st.tuples(st.sampled_from(["visible", "durable", "watch"]), st.integers(1, 2), st.integers(1, 20))))
def test_marks_grow_as_the_greatest_that_was_told(moves: list[Move]) -> None:
    marks = LogMarks()
    watched: dict[int, Marks] = {}
    model: dict[tuple[str, int], LogOffset] = {}
    for what, log, tx in moves:
        if what == "watch":
            if log not in watched:
                model["visible", log] = model["durable", log] = SNAPSHOT_END
            watched[log] = marks.watch(log, SNAPSHOT_END, SNAPSHOT_END)
        else:
            (marks.visible if what == "visible" else marks.durable)(log, at(tx))
            if log in watched:
                model[what, log] = max(model[what, log], at(tx))
        assert {
            (name, one): mark.value
            for one, found in watched.items()
            for name, mark in (("visible", found.visible), ("durable", found.durable))
        } == model


def test_threads_that_wait_for_each_move_miss_none() -> None:
    """Each waits for the next one above what it saw last, while the marks move on."""
    marks = LogMarks()
    last = 300
    failures: list[str] = []

    def follow() -> None:
        seen = SNAPSHOT_END
        watched = marks.watch(1, SNAPSHOT_END, SNAPSHOT_END)
        while seen < at(last):
            value = watched.visible.wait_above(seen, LONG_SECONDS)
            if value is None or value <= seen or watched.visible.value < value:
                failures.append(f"{value} after {seen}")
                return
            seen = value

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    marks.watch(1, SNAPSHOT_END, SNAPSHOT_END)
    for tx in range(1, last + 1):
        marks.visible(1, at(tx))
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
