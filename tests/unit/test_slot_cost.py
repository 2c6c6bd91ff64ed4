"""What the slot costs: the rate of WAL over a window, and how long the room lasts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.lsn import Lsn
from cdc.status.slot_cost import SlotLook, WalRate, seconds_left
from tests.unit.test_checks import SLOT

LOOKS = st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 10**9)), min_size=1, max_size=30)


@given(LOOKS, st.floats(1, 500))
def test_the_rate_is_that_of_the_window(steps: list[tuple[float, int]], seconds: float) -> None:
    """Against all looks: the oldest one counted is the last at or before the window's start, or the first of all."""
    rate, looks = WalRate(seconds), [(0.0, 0)]
    rate.add(0.0, 0)
    assert rate.bytes_per_second is None
    for pause, growth in steps:
        looks.append((looks[-1][0] + pause, looks[-1][1] + growth))
        rate.add(*looks[-1])
    now, end = looks[-1]
    before = [look for look in looks[:-1] if look[0] <= now - seconds]
    began, start = before[-1] if before else looks[0]
    assert rate.bytes_per_second == pytest.approx((end - start) / (now - began))


def test_a_server_that_goes_back_begins_a_new_rate() -> None:
    rate = WalRate()
    rate.add(0, 1000)
    rate.add(10, 2000)
    rate.add(20, 500)
    assert rate.bytes_per_second is None
    rate.add(30, 1500)
    assert rate.bytes_per_second == 100


@pytest.mark.parametrize(
    ("safe", "rate", "left"),
    [(None, 10.0, None), (1000, None, None), (1000, 0.0, None), (1000, 10.0, 100.0), (-5, 10.0, 0.0)],
)
def test_time_left(safe: int | None, rate: float | None, left: float | None) -> None:
    assert seconds_left(safe, rate) == left


def test_bytes_of_a_look() -> None:
    assert (SlotLook(0, Lsn(5), None).retained_bytes, SlotLook(0, Lsn(5), None).unconfirmed_bytes) == (None, None)
    slot = replace(SLOT, restart_lsn=Lsn(100), confirmed_flush_lsn=Lsn(300))
    assert (SlotLook(0, Lsn(1000), slot).retained_bytes, SlotLook(0, Lsn(1000), slot).unconfirmed_bytes) == (900, 700)
    assert SlotLook(0, Lsn(50), slot).retained_bytes == 0
