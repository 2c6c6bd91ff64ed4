"""A shape's rate of changes: what its log got between two looks, at half a minute's distance and not at every look."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc.limits import CHANGE_LOOK_SECONDS, CHANGE_RATE_SECONDS
from cdc.status.change_rates import ChangeRates

steps = st.lists(st.tuples(st.floats(0.1, 40), st.dictionaries(st.integers(1, 3), st.integers(0, 1000))), max_size=40)


@given(steps)
def test_a_rate_is_what_came_between_the_two_looks(steps: list[tuple[float, dict[int, int]]]) -> None:
    """Against all that ever was counted, searched again for every answer."""
    rates, now, totals = ChangeRates(), 100.0, dict.fromkeys((1, 2, 3), 0)
    counted: list[tuple[float, dict[int, int]]] = []

    def count() -> dict[int, int]:
        counted.append((now, dict(totals)))
        return dict(totals)

    for seconds, more in steps:
        now += seconds
        totals = {log: total + more.get(log, 0) for log, total in totals.items()}
        rates.look(now, count)
        ended, last = counted[-1]
        recent = [look for look in counted if ended - look[0] <= CHANGE_RATE_SECONDS]
        began, before = (recent if len(recent) > 1 else counted[-2:])[0]
        for log in totals:
            got = rates.of(log)
            assert got == (None if len(counted) < 2 else round((last[log] - before[log]) / (ended - began), 1))
    for (one, _), (other, _) in pairwise(counted):
        assert other - one >= CHANGE_LOOK_SECONDS


def test_a_log_that_was_not_open_got_nothing_and_one_that_was_opened_again_is_not_known() -> None:
    rates = ChangeRates()
    for at, counters in ((0.0, {1: 50, 2: 7}), (10.0, {1: 150, 2: 3, 3: 20})):
        rates.look(at, lambda counters=counters: counters)  # type: ignore[misc]  # the loop's value, not its name
    assert [rates.of(log) for log in (1, 2, 3, 4)] == [10.0, None, 2.0, 0.0]
