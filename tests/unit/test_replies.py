"""When status replies go out and what they say, over random histories."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cdc.source.fragments import KeepAlive
from cdc.source.limits import (
    FLOOD_REQUESTS,
    FLOOD_SECONDS,
    REPLY_SECONDS_MIN,
    SILENCE_SECONDS_MAX,
    STATUS_SECONDS_MAX,
    STATUS_SHARE_OF_TIMEOUT,
)
from cdc.source.lsn import Lsn
from cdc.source.replies import Replies

START = Lsn(100)

# What happens, and how many seconds after what came before.
heard = st.tuples(st.just("heard"), st.integers(100, 200), st.booleans())
told = st.tuples(st.just("told"), st.integers(100, 200), st.just(False))
looked = st.tuples(st.just("looked"), st.just(0), st.just(False))
histories = st.lists(st.tuples(st.floats(0, 3), st.one_of(heard, told, looked)), max_size=60)


@given(histories=histories, timeout=st.sampled_from([0.0, 0.05, 1.0, 60.0, 3600.0]))
def test_replies_are_in_time_not_too_often_and_repeat_what_they_were_told(
    histories: list[tuple[float, tuple[str, int, bool]]], timeout: float
) -> None:
    replies = Replies(START, START, timeout, 0.0)
    received, flushed, now = START, START, 0.0
    sent: list[float] = []

    def look() -> None:
        status = replies.take(now)
        if status is not None:
            assert (status.received, status.flushed) == (received, min(flushed, received))
            sent.append(now)

    look()
    assert sent == [0.0], "the first reply goes out at once"
    for pause, (what, lsn, wants_reply) in histories:
        # The shell looks whenever a reply is due: here, before anything else happens.
        end = now + pause
        while replies.due <= end:
            now = max(now, replies.due)
            before = len(sent)
            look()
            assert len(sent) == before + 1, "a reply that is due is there"
        now = end
        if what == "heard":
            received = max(received, Lsn(lsn))
            replies.heard(Lsn(lsn), KeepAlive(Lsn(lsn), wants_reply), now)
            assert not wants_reply or replies.due <= max(now, sent[-1] + REPLY_SECONDS_MIN)
        elif what == "told":
            flushed = max(flushed, Lsn(lsn))
            replies.flushed_to(Lsn(lsn))
        look()
    gaps = [after - before for before, after in itertools.pairwise(sent)]
    assert all(gap >= min(REPLY_SECONDS_MIN, replies.interval) - 1e-9 for gap in gaps)
    assert all(gap <= replies.interval + 1e-9 for gap in gaps)
    assert replies.interval <= STATUS_SECONDS_MAX
    assert not timeout or replies.interval * STATUS_SHARE_OF_TIMEOUT <= timeout + 1e-9


def test_a_flood_at_one_place_is_a_shutdown() -> None:
    replies = Replies(START, START, 60.0, 0.0)
    for number in range(FLOOD_REQUESTS):
        assert not replies.shutdown_seen
        replies.heard(START, KeepAlive(START, True), number * FLOOD_SECONDS / FLOOD_REQUESTS)
    assert replies.shutdown_seen


def test_requests_at_several_places_or_at_leisure_are_no_shutdown() -> None:
    replies = Replies(START, START, 60.0, 0.0)
    for number in range(50):
        replies.heard(Lsn(START + number), KeepAlive(Lsn(START + number), True), number * 0.01)
        replies.heard(Lsn(START + number), KeepAlive(Lsn(START + number), False), number * 0.01)
    for number in range(50):
        replies.heard(Lsn(200), KeepAlive(Lsn(200), True), 10 + number * FLOOD_SECONDS / 2)
    assert not replies.shutdown_seen


def test_a_silent_server_is_asked_once_and_then_given_up() -> None:
    replies = Replies(START, START, 0.0, 0.0)
    assert not replies.last(0.0).wants_reply
    assert replies.last(STATUS_SECONDS_MAX).wants_reply
    assert not replies.last(2 * STATUS_SECONDS_MAX).wants_reply
    end = STATUS_SECONDS_MAX + SILENCE_SECONDS_MAX
    assert not replies.is_silent(0.0, end)
    assert replies.is_silent(0.0, end + 1)
    assert not replies.is_silent(end, end + 1), "nobody read until just now"
    replies.heard(START, None, end + 1)
    assert not replies.is_silent(0.0, end + 100)


def test_a_silence_that_has_its_reason_is_borne_and_counted_on() -> None:
    replies = Replies(START, START, 0.0, 0.0)
    replies.bear(1.0)
    replies.last(STATUS_SECONDS_MAX)
    end = STATUS_SECONDS_MAX + SILENCE_SECONDS_MAX + 1
    assert replies.is_silent(0.0, end)
    replies.bear(end)
    assert not replies.is_silent(0.0, end + SILENCE_SECONDS_MAX)
    assert replies.is_silent(0.0, end + SILENCE_SECONDS_MAX + 1)
    assert replies.silent_seconds(end) == end, "nothing came since the start"
    replies.heard(START, None, end + 2)
    assert replies.silent_seconds(end + 2) == 0
