"""What our client asks next: over pages, streams of events that break anywhere, 409s, and answers that fail."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.client_state import Batch, Follower, Position
from shapes.client_stream import ShapeStream
from shapes.http.errors import RequestRefused
from shapes.limits import (
    CLIENT_PAUSE_SECONDS_MAX,
    CLIENT_PAUSE_SECONDS_MIN,
    CLIENT_RETRY_AFTER_SECONDS_MAX,
    CLIENT_SHORT_STREAMS_MAX,
)

HEADERS = {"electric-handle": "h-1", "electric-schema": '{"id":{"type":"int4","pk_index":0}}'}
EVENTS = {"content-type": "text/event-stream", "electric-handle": "h-1", "electric-offset": "0_inf"}
TRANSACTIONS = st.lists(st.integers(1, 4), max_size=6)
"""How many rows each has."""


@dataclass
class PlainServer:
    """All rows there will be, and what is told of those above an offset."""

    rows: list[tuple[int, int]]

    @classmethod
    def of(cls, sizes: list[int]) -> "PlainServer":
        return cls([(100 * (number + 1), 2 * op) for number, size in enumerate(sizes) for op in range(size)])

    def above(self, offset: str) -> list[tuple[int, int]]:
        tx, op = offset.split("_")
        return [row for row in self.rows if row > (int(tx), 10**9 if op == "inf" else int(op))]

    def events(self, offset: str) -> bytes:
        """One `up-to-date` behind each transaction."""
        told, rows = [], self.above(offset)
        for number, (tx, op) in enumerate(rows):
            told.append(message(tx, op))
            if number + 1 == len(rows) or rows[number + 1][0] != tx:
                told.append({"headers": {"control": "up-to-date", "global_last_seen_lsn": str(tx + 1)}})
        return b": keep-alive\n\n" + b"".join(b"data: " + orjson.dumps(one) + b"\n\n" for one in told)


def message(tx: int, op: int) -> dict[str, Any]:
    headers = {"operation": "insert", "lsn": str(tx), "op_position": op}
    return {"key": f"{tx}/{op}", "value": {"id": str(tx)}, "headers": headers}


def places(batch: Batch | None) -> list[tuple[int, int]]:
    assert batch is not None
    return [(int(change.headers["lsn"]), change.headers["op_position"]) for change in batch.changes]


def at_the_end(follower: Follower, offset: str = "0_inf") -> Follower:
    """A reader that has asked once, and is up to date."""
    assert follower.take(200, {**HEADERS, "electric-offset": offset, "electric-up-to-date": ""}, b"[]") is not None
    return follower


def pieces(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    yield from (stream[start:end] for start, end in pairwise(edges))


@given(TRANSACTIONS, st.lists(st.integers(0, 5_000), max_size=5), st.lists(st.integers(0, 5_000), max_size=6))
def test_streams_that_break_anywhere_bring_every_row_once(sizes: list[int], breaks: list[int], cuts: list[int]) -> None:
    server = PlainServer.of(sizes)
    follower, seen = at_the_end(Follower({}, wants_events=True)), list[tuple[int, int]]()
    for length in [*breaks, 10**9]:
        assert follower.begins_stream(200, EVENTS)
        for piece in pieces(server.events(follower.position.offset)[:length], cuts):
            for batch in follower.feed(piece):
                seen += places(batch)
                assert batch.is_up_to_date
                assert server.above(follower.position.offset) == [row for row in server.rows if row not in seen]
        follower.stream_ended(5, brought_anything=True, is_broken=length < 10**9)
    assert seen == server.rows


def test_a_large_transaction_is_handed_on_in_parts_and_gone_on_with_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapes.client_state.CLIENT_EVENTS_BYTES", 200)
    server, follower = PlainServer.of([9]), at_the_end(Follower({}, wants_events=True))
    follower.begins_stream(200, EVENTS)
    stream = server.events("0_inf")
    batches = [(places(batch), batch.is_up_to_date) for batch in follower.feed(stream[: len(stream) // 2])]
    assert batches
    assert not any(is_up_to_date for _, is_up_to_date in batches)
    follower.stream_ended(5, brought_anything=True, is_broken=True)
    assert "live" not in follower.next_params()  # what is torn is not waited for
    seen = [place for found, _ in batches for place in found]
    assert server.above(follower.next_params()["offset"]) == server.rows[len(seen) :]


def test_live_requests_follow_what_is_up_to_date() -> None:
    follower = Follower({"table": "t"})
    assert follower.next_params() == {"table": "t", "offset": "-1"}
    assert not (follower.take(200, {**HEADERS, "electric-offset": "0_0"}, b"[]") or Batch()).is_up_to_date
    assert follower.next_params() == {"table": "t", "offset": "0_0", "handle": "h-1"}
    at_the_end(follower)
    follower.take(200, {**HEADERS, "electric-offset": "7_0", "electric-cursor": "40", "electric-up-to-date": ""}, b"[]")
    live = {"table": "t", "offset": "7_0", "handle": "h-1", "live": "true", "cursor": "40"}
    assert follower.next_params() == live
    follower.wants_events = True
    assert follower.next_params() == live | {"live_sse": "true"}


def test_a_saved_position_asks_for_the_columns_first() -> None:
    follower = Follower({}, Position.from_json(Position("7_0", "h-1").to_json()))
    assert follower.next_params() == {"offset": "7_0", "handle": "h-1"}


def test_after_a_409_all_begins_anew_and_soon() -> None:
    follower = at_the_end(Follower({}))
    assert follower.take(409, {"electric-handle": "h-2"}, b"[]") == Batch(must_refetch=True)
    asked = follower.next_params()
    assert asked == {"offset": "-1", "handle": "h-2", "expired_handle": "h-1", "cache-buster": "1"}
    assert follower.pause_seconds(1) == 0


def test_a_stream_may_say_that_all_begins_anew() -> None:
    follower = at_the_end(Follower({}, wants_events=True))
    follower.begins_stream(200, EVENTS)
    [batch] = follower.feed(b'data: {"headers":{"control":"must-refetch"}}\n\n')
    assert batch.must_refetch
    assert follower.next_params()["offset"] == "-1"


def pauses(follower: Follower, status: int, headers: Mapping[str, str] = HEADERS) -> list[float]:
    found = []
    for _ in range(30):
        follower.take(status, headers, b"[]")
        found.append(follower.pause_seconds(1))
    return found


@pytest.mark.parametrize("status", [409, 503, 500, 429])
def test_what_fails_again_and_again_is_asked_for_more_and_more_seldom(status: int) -> None:
    follower = at_the_end(Follower({}))
    found = pauses(follower, status)
    assert found == sorted(found)
    assert found[-1] == CLIENT_PAUSE_SECONDS_MAX
    assert found[3] > 0
    assert 0 < follower.pause_seconds(0) < follower.pause_seconds(1)
    at_the_end(follower)
    assert follower.pause_seconds(1) == 0


def test_a_first_page_between_two_409s_does_not_make_them_rare() -> None:
    """A cache that keeps the first page of a shape that is over, and a server that says so each time."""
    follower, found = Follower({}), []
    for _ in range(30):
        follower.take(200, {**HEADERS, "electric-offset": "0_0"}, b"[]")
        follower.take(409, HEADERS, b"[]")
        found.append(follower.pause_seconds(1))
    assert (found[0], found[-1]) == (0, CLIENT_PAUSE_SECONDS_MAX)
    assert follower.next_params()["cache-buster"] == "30"


@pytest.mark.parametrize(
    ("told", "least"), [("7", 7), ("1000000000", CLIENT_RETRY_AFTER_SECONDS_MAX), ("soon", 0), ("-5", 0)]
)
def test_a_server_may_say_when(told: str, least: float) -> None:
    follower = Follower({})
    follower.take(503, {"retry-after": told}, b"")
    assert least <= follower.pause_seconds(1) <= max(least, CLIENT_PAUSE_SECONDS_MAX)
    follower.lost()
    assert follower.pause_seconds(1) < 2


@pytest.mark.parametrize(
    ("is_broken", "brought_anything", "seconds"), [(False, False, 0.1), (True, False, 45.0), (True, False, 0.0)]
)
def test_where_streams_do_not_get_through_answers_are_asked_for(
    seconds: float, *, is_broken: bool, brought_anything: bool
) -> None:
    follower = at_the_end(Follower({}, wants_events=True))
    for _ in range(CLIENT_SHORT_STREAMS_MAX):
        assert "live_sse" in follower.next_params()
        follower.begins_stream(200, EVENTS)
        follower.stream_ended(seconds, brought_anything=brought_anything, is_broken=is_broken)
    assert "live_sse" not in follower.next_params()
    assert follower.pause_seconds(1) == 0


@pytest.mark.parametrize(("is_broken", "least"), [(False, 0.0), (True, CLIENT_PAUSE_SECONDS_MIN)])
def test_a_stream_without_news_ends_a_row_of_failures(least: float, *, is_broken: bool) -> None:
    follower = at_the_end(Follower({}, wants_events=True))
    for _ in range(8):
        follower.take(503, {"retry-after": "100"}, b"")
    follower.begins_stream(200, EVENTS)
    assert list(follower.feed(b": keep-alive\n\n")) == []
    follower.stream_ended(60, brought_anything=True, is_broken=is_broken)
    assert follower.pause_seconds(1) == least
    assert "live_sse" in follower.next_params()


def test_an_answer_that_is_no_stream_is_taken_as_one_that_is_whole() -> None:
    follower = at_the_end(Follower({}, wants_events=True))
    assert not follower.begins_stream(200, {**HEADERS, "content-type": "application/json"})
    assert not follower.begins_stream(409, {"content-type": "text/event-stream"})


@pytest.mark.parametrize("body", [b"", b'[{"key"', b"\xff"])
def test_an_answer_that_was_cut_off_comes_again(body: bytes) -> None:
    follower = Follower({})
    assert follower.take(200, {**HEADERS, "electric-offset": "5_0"}, body) is None
    assert follower.position == Position()
    assert follower.pause_seconds(1) > 0


@pytest.mark.parametrize(
    ("status", "headers", "told"),
    [
        (400, {}, "answered 400: why"),
        (401, {}, "answered 401"),
        (204, {}, "answered 204"),
        (302, {}, "answered 302"),
        (200, {}, "no electric-handle, electric-offset"),
    ],
)
def test_what_is_no_use_to_ask_again_is_raised(status: int, headers: dict[str, str], told: str) -> None:
    with pytest.raises(RequestRefused, match=told):
        Follower({}).take(status, headers, b"why")


def test_a_stream_that_a_cache_has_kept_does_not_come_at_once_for_ever() -> None:
    follower = at_the_end(Follower({}, wants_events=True))
    for _ in range(CLIENT_SHORT_STREAMS_MAX - 1):
        follower.begins_stream(200, EVENTS)
        assert list(follower.feed(b": keep-alive\n\n")) == []
        follower.stream_ended(0.01, brought_anything=True, is_broken=False)
        assert follower.pause_seconds(0) > 0
    follower.begins_stream(200, EVENTS)
    list(follower.feed(PlainServer.of([1]).events("0_inf")))
    follower.stream_ended(0.01, brought_anything=True, is_broken=False)
    assert follower.pause_seconds(1) == 0, "this one led on"


INSERT: dict[str, Any] = {"operation": "insert"}


@pytest.mark.parametrize(
    "content",
    [
        {"message": "maintenance"},
        None,
        [1],
        [{"a": 1}],
        [{"headers": [INSERT]}],
        [{"headers": INSERT, "value": {}}],
        [{"headers": INSERT, "key": "k", "value": ["1"]}],
        [{"headers": INSERT, "key": "k", "value": {"id": 1}}],
        [{"headers": INSERT, "key": "k", "value": {"id": {"a": "1"}}}],
        [{"headers": INSERT, "key": "k", "value": {}, "old_value": {"id": [1]}}],
        [{"headers": INSERT, "key": "k", "value": {}, "old_value": "x"}],
    ],
)
def test_json_of_somebody_else_is_raised(content: Any) -> None:
    with pytest.raises(RequestRefused, match="no messages of a shape"):
        Follower({}).take(200, {**HEADERS, "electric-offset": "5_0"}, orjson.dumps(content))
    if isinstance(content, list):
        follower = at_the_end(Follower({}, wants_events=True))
        assert follower.begins_stream(200, EVENTS)
        with pytest.raises(RequestRefused, match="no messages of a shape"):
            list(follower.feed(b"data: " + orjson.dumps(content[0]) + b"\n\n"))


def test_a_row_that_does_not_say_where_it_stands_waits_for_the_end_of_its_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shapes.client_state.CLIENT_EVENTS_BYTES", 1)
    follower = at_the_end(Follower({}, wants_events=True))
    follower.begins_stream(200, EVENTS)
    row = {"headers": {**INSERT, "lsn": "9"}, "key": "k", "value": {}}
    assert list(follower.feed(b"data: " + orjson.dumps(row) + b"\n\n")) == []
    end = {"headers": {"control": "up-to-date", "global_last_seen_lsn": "10"}}
    (batch,) = follower.feed(b"data: " + orjson.dumps(end) + b"\n\n")
    assert (len(batch.changes), batch.is_up_to_date, follower.position.offset) == (1, True, "10_0")


@pytest.mark.parametrize("schema", ["[1]", '{"id":1}', "5", '{"id":{"type":["int4"]}}'])
def test_a_schema_that_is_none_is_raised(schema: str) -> None:
    with pytest.raises(RequestRefused, match="electric-schema"):
        Follower({}).take(200, {**HEADERS, "electric-offset": "5_0", "electric-schema": schema}, b"[]")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 503, 520, 599])
def test_what_passes_by_itself_is_asked_for_again(status: int) -> None:
    follower = Follower({})
    assert follower.take(status, {}, b"<html>") is None
    assert follower.pause_seconds(0) > 0


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http:///v1/shape", "http://\0/", "http://xn--a/", "http://a:99999/", "http://a:x/"]
)
def test_an_address_that_is_none_is_told_at_once(url: str) -> None:
    with pytest.raises(RequestRefused, match="the address"):
        ShapeStream(url, "items")


@pytest.mark.parametrize("secret", ["sesame\n", "ses\r\name", " sesame", "ses\0ame", "sesame\ud800"])
def test_a_secret_that_no_header_has_is_told_at_once_and_not_shown(secret: str) -> None:
    with pytest.raises(RequestRefused, match="the header x-secret") as refused:
        ShapeStream("http://a/v1/shape", "items", headers={"x-secret": secret})
    assert "ses" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("as_text", "value"), [(False, {"id": 7, "tags": ["a", None]}), (True, {"id": "7", "tags": "{a,NULL}"})]
)
def test_values_are_typed_or_stay_the_texts_that_came(as_text: bool, value: dict[str, Any]) -> None:
    follower = Follower({"table": "items"}, parsers=None) if as_text else Follower({"table": "items"})
    schema = {"id": {"type": "int4"}, "tags": {"type": "text", "dims": 1}}
    headers = {**HEADERS, "electric-offset": "0_0", "electric-schema": orjson.dumps(schema).decode()}
    told = {"key": "k", "value": {"id": "7", "tags": "{a,NULL}"}, "headers": {"operation": "insert"}}
    batch = follower.take(200, headers, orjson.dumps([told]))
    assert batch is not None
    assert batch.changes[0].value == value
