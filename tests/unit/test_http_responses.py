"""Headers of answers: caches, tags, cursors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.http.responses import (
    Facts,
    cache_control,
    cors_headers,
    etag_of,
    for_request,
    matches,
    next_cursor,
    options_headers,
    problem_headers,
)
from shapes.http.settings import HttpSettings
from storage.offset import BEFORE_ALL, LogOffset

AT = LogOffset(7, 2)
FIRST = "public, max-age=604800, s-maxage=3600, stale-while-revalidate=2629746"
SETTINGS = HttpSettings(cache_max_age_seconds=11, cache_stale_age_seconds=12)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            Facts("h", BEFORE_ALL, AT, is_first=True),
            "public, max-age=604800, s-maxage=3600, stale-while-revalidate=2629746",
        ),
        (Facts("h", AT, AT), "public, max-age=11, stale-while-revalidate=12"),
        (Facts("h", AT, AT, live=True), "public, max-age=5, stale-while-revalidate=5"),
        (Facts("h", AT, AT, live=True, sse=True), "public, max-age=59"),
    ],
)
def test_how_long_answers_are_kept(facts: Facts, expected: str) -> None:
    assert cache_control(facts, SETTINGS) == expected


def test_how_long_refusals_are_kept() -> None:
    assert problem_headers(409, has_handle=True) == [("cache-control", "public, max-age=60, must-revalidate")]
    assert problem_headers(409, has_handle=False) == [("cache-control", "public, max-age=1, must-revalidate")]
    assert dict(problem_headers(503, has_handle=False)) == {
        "cache-control": "no-store",
        "surrogate-control": "no-store",
    }


def test_what_a_token_opens_is_kept_by_its_reader_only() -> None:
    headers = [("etag", "x"), ("cache-control", FIRST)]
    assert for_request(headers, "HEAD") == headers
    mine = dict(for_request(headers, "GET", has_token=True))
    assert mine == {"etag": "x", "cache-control": "private, max-age=604800, stale-while-revalidate=2629746"}
    for has_token in (False, True):
        assert dict(for_request(headers, "POST", has_token=has_token))["cache-control"] == "no-cache"


def test_what_makes_an_answer_another_one() -> None:
    assert dict(cors_headers(None, of_shape=True))["vary"] == "authorization"
    assert dict(cors_headers("https://a.example", of_shape=True))["vary"] == "authorization, origin"
    assert dict(cors_headers("https://a.example", of_shape=False))["vary"] == "origin"
    assert "vary" not in dict(cors_headers(None, of_shape=False))


def test_tags() -> None:
    assert etag_of(Facts("h", None, AT), 5) == "h:now:7_2"
    assert etag_of(Facts("h", AT, AT, live=True, has_data=False), 5) == "h:7_2:7_2:5"
    assert matches(['"a", "h:now:7_2"'], "h:now:7_2")
    assert matches(['W/"h:now:7_2"'], "h:now:7_2")
    assert matches(['"a"', '"b",W/"h:now:7_2"'], "h:now:7_2"), "a list may have several lines"
    assert not matches(['"h:now:7_2x"', "*"], "h:now:7_2")
    assert not matches([], "h:now:7_2")


@given(
    now=st.floats(1.7e9, 2e9), step=st.floats(0, 100), seen=st.none() | st.integers(0, 10**12), by=st.integers(1, 3600)
)
def test_a_cursor_is_above_the_one_that_was_seen(now: float, step: float, seen: int | None, by: int) -> None:
    cursor = next_cursor(seen, now, step, lambda *_: by)
    if step < 1:
        assert cursor == 0
    else:
        assert seen is None or cursor > seen
        assert seen == cursor - by or cursor % int(step) == 0


def test_what_a_browser_may_send() -> None:
    asked = "If-None-Match, x-other, traceparent, Authorization, content-type"
    allowed = dict(options_headers(asked))["access-control-allow-headers"]
    assert allowed == "if-none-match,traceparent,authorization,content-type"
    assert "access-control-allow-headers" not in dict(options_headers("x-other"))
