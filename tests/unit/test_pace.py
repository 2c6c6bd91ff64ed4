"""When a batch is gathered further, and when it is handed on at once."""

from cdc.source.limits import (
    BACKLOG_BYTES_MIN,
    BACKLOG_OVER_SECONDS,
    BACKLOG_QUIET_SECONDS,
    BACKLOG_READ_BYTES_MIN,
    BATCH_BYTES,
    BATCH_SECONDS,
)
from cdc.source.pace import Pace

MUCH, LITTLE = BACKLOG_READ_BYTES_MIN, BACKLOG_READ_BYTES_MIN - 1


def in_backlog() -> Pace:
    pace = Pace()
    pace.begin(0.0)
    assert pace.goes_on(0.0, MUCH, BACKLOG_BYTES_MIN)
    pace.begin(0.0)
    return pace


def test_a_live_change_is_handed_on_at_once() -> None:
    pace = Pace()
    pace.begin(0.0)
    assert not pace.goes_on(0.0, 0, 0)
    pace.waited(0.0, 5.0)
    assert not pace.goes_on(5.0, 10 * MUCH, 10 * MUCH)


def test_what_was_there_already_is_gathered_while_more_comes() -> None:
    pace = Pace()
    pace.begin(0.0)
    assert pace.goes_on(0.0, MUCH, MUCH)
    assert not pace.goes_on(0.0001, LITTLE, MUCH + LITTLE)


def test_a_backlog_is_patient_for_a_moment() -> None:
    pace = in_backlog()
    assert pace.goes_on(BACKLOG_QUIET_SECONDS * 0.9, 0, MUCH)
    assert pace.goes_on(BACKLOG_QUIET_SECONDS * 0.95, MUCH, MUCH)
    assert pace.goes_on(BACKLOG_QUIET_SECONDS * 1.5, 0, MUCH)
    assert not pace.goes_on(BACKLOG_QUIET_SECONDS * 2.5, 0, MUCH)


def test_a_backlog_outlives_a_short_wait_and_no_long_one() -> None:
    pace = in_backlog()
    pace.waited(1.0, 1.0 + BACKLOG_OVER_SECONDS / 2)
    assert pace.goes_on(1.0 + BACKLOG_OVER_SECONDS / 2, LITTLE, LITTLE)
    pace.waited(2.0, 2.0 + BACKLOG_OVER_SECONDS * 2)
    assert not pace.goes_on(2.0 + BACKLOG_OVER_SECONDS * 2, LITTLE, LITTLE)
    assert not pace.in_backlog


def test_no_batch_is_gathered_for_long_or_beyond_its_size() -> None:
    pace = in_backlog()
    assert not pace.goes_on(0.0, MUCH, BATCH_BYTES)
    assert pace.goes_on(BATCH_SECONDS * 0.9, MUCH, MUCH)
    assert not pace.goes_on(BATCH_SECONDS, MUCH, MUCH)


def test_a_batch_that_nobody_waits_for_grows_to_its_size() -> None:
    pace = in_backlog()
    assert pace.goes_on(BATCH_SECONDS * 9, MUCH, MUCH, is_awaited=False)
    assert pace.goes_on(BATCH_SECONDS * 9 + BACKLOG_QUIET_SECONDS * 2, 0, MUCH, is_awaited=False)
    assert not pace.goes_on(BATCH_SECONDS * 11, 0, MUCH, is_awaited=False)  # else it would be read for ever
    assert not pace.goes_on(BATCH_SECONDS * 9, MUCH, BATCH_BYTES, is_awaited=False)
    assert not pace.goes_on(BATCH_SECONDS * 9, MUCH, MUCH)
