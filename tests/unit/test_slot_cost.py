"""What the slot costs: the rate of WAL over a window, and how long the room lasts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.lsn import Lsn
from cdc.status.slot_cost import Budget, SlotLook, WalRate, budget_of, seconds_left
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


SIZES = st.integers(0, 10**6)


@given(SIZES, st.none() | st.integers(-(10**6), 10**6), st.none() | st.integers(1, 10**6))
def test_the_budget_is_the_tighter_one(kept: int, safe: int | None, own: int | None) -> None:
    slot = replace(SLOT, restart_lsn=Lsn(5), safe_wal_bytes=safe)
    budget = budget_of(SlotLook(0, Lsn(5 + kept), slot), own)
    bounds = [bound for bound in (own, None if safe is None else max(kept + safe, 0)) if bound is not None]
    if not bounds:
        assert budget is None
        return
    assert budget is not None
    assert (budget.bytes, budget.retained_bytes) == (min(bounds), kept)
    assert budget.is_own == (own == min(bounds))
    assert budget.share == (kept / min(bounds) if min(bounds) else 1)
    assert safe is None or safe > 0 or own is not None or budget.share >= min(1, kept)


def test_a_slot_that_is_gone_has_no_budget() -> None:
    assert budget_of(None, 10) is None
    assert budget_of(SlotLook(0, Lsn(5), None), 10) is None
    assert budget_of(SlotLook(0, Lsn(5), replace(SLOT, wal_status="lost")), 10) is None
    assert Budget(0, 5, is_own=False).share == 1
