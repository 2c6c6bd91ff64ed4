"""The head start: early when nobody did it a moment ago, and on the whole no more often than without it."""

from hypothesis import given
from hypothesis import strategies as st

from storage.head_start import HeadStart

INTERVAL = 10.0


def test_who_did_nothing_for_long_may_be_early_at_once() -> None:
    assert HeadStart(INTERVAL).allowed_at <= 0.0
    head_start = HeadStart(INTERVAL)
    head_start.done(100.0)
    assert head_start.allowed_at <= 100.0, "one is paid in advance"
    head_start.done(101.0)
    assert head_start.allowed_at == 110.0
    head_start.done(500.0)
    assert head_start.allowed_at <= 500.0, "what was saved for long buys no more than one"
    head_start.done(500.0)
    assert head_start.allowed_at == 510.0


def test_a_storm_is_not_paid_for_ever() -> None:
    """Many that had to be, one right after the other: early ones come again two intervals later at most."""
    head_start = HeadStart(INTERVAL)
    for _ in range(50):
        head_start.done(100.0)
    assert head_start.allowed_at <= 100.0 + INTERVAL


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.booleans()), min_size=1, max_size=60))
def test_no_stretch_of_time_has_more_than_it_would_have_and_two(tries: list[tuple[float, bool]]) -> None:
    """Somebody wants to be early again and again, and in between there are those that are not."""
    head_start, now = HeadStart(INTERVAL), 0.0
    done: list[float] = []
    for pause, is_early in tries:
        now += pause
        if now >= head_start.allowed_at if is_early else not done or now >= done[-1] + INTERVAL:
            head_start.done(now)
            done.append(now)
    for first in range(len(done)):
        for last in range(first, len(done)):
            assert last - first + 1 <= (done[last] - done[first]) / INTERVAL + 2 + 1e-9
