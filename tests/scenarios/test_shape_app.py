"""The shape endpoint over a store on a disk in memory: walks, wake-ups, bounds, and what is never said too early."""

import asyncio
import threading
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from shapes.endings import TRUNCATED
from shapes.http.limits import SEND_PIECE_BYTES
from shapes.http.metrics import HttpMetric
from shapes.http.params import ShapeQuery
from shapes.http.settings import HttpSettings
from storage.offset import LogOffset
from storage.rows import Kind
from storage.truncation import empty_base
from tests.memory_socket import Answer
from tests.shape_rig import Rig
from tests.waiting import eventually

QUICK = HttpSettings(long_poll_seconds=1.0, ready_seconds=0.2, sse_seconds=0.5, sse_keepalive_seconds=0.1)


def ids(answer: Answer) -> list[str]:
    return [one["value"]["id"] for one in answer.messages if "value" in one]


async def walk(rig: Rig, offset: str = "-1") -> tuple[list[str], list[Answer]]:
    """Follow `electric-offset` until up to date."""
    found, answers = [], []
    for _ in range(1_000):
        answer = await rig.follow(offset)
        assert answer.status == 200, answer.body
        found += ids(answer)
        answers.append(answer)
        if "electric-up-to-date" in answer.headers:
            return found, answers
        assert answer.headers["electric-offset"] != offset, "a reader would ask the same for ever"
        offset = answer.headers["electric-offset"]
    raise AssertionError("never up to date")


@given(
    transactions=st.lists(st.integers(1, 6), max_size=12),
    chunk_bytes=st.sampled_from([1, 150, 400, 10_000]),
    base=st.integers(0, 4),
    flush=st.booleans(),
)
def test_whoever_follows_gets_each_row_once_in_order(
    transactions: list[int], chunk_bytes: int, base: int, flush: bool
) -> None:
    async def run() -> None:
        rig = Rig(QUICK, chunk_bytes=chunk_bytes, rows=base)
        expected = [f"b{number}" for number in range(base)]
        for number, count in enumerate(transactions):
            rig.commit(200 + number, count)
            expected += [f"{200 + number}.{op}" for op in range(count)]
        if flush:
            rig.store.flush_all()
        found, answers = await walk(rig)
        assert found == expected
        again = [await walk(rig, answer.headers["electric-offset"]) for answer in answers]
        for answer, (rest, _) in zip(answers, again, strict=True):
            assert rest == expected[len(expected) - len(rest) :], answer.headers["electric-offset"]
        # `last` is on each transaction's last row and on no other, wherever chunks end.
        lasts = [one for answer in answers for one in answer.messages if one["headers"].get("last")]
        assert [one["value"]["id"] for one in lasts] == [f"{200 + n}.{c - 1}" for n, c in enumerate(transactions)]
        rig.app.stop()

    asyncio.run(run())


async def test_a_thousand_who_wait_are_woken_with_one_encoding() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30))
    held = [asyncio.create_task(rig.follow("0_inf", live="true")) for _ in range(1_000)]
    await eventually(lambda: rig.app.held == 1_000, "all to be held")
    before = rig.app.serving.pages.made
    threading.Thread(target=rig.commit, args=(500, 3)).start()
    answers = await asyncio.gather(*held)
    assert rig.app.serving.pages.made == before + 1
    assert {answer.body for answer in answers} == {answers[0].body}
    assert ids(answers[0]) == ["500.0", "500.1", "500.2"]
    assert answers[0].messages[-1] == {"headers": {"control": "up-to-date", "global_last_seen_lsn": "500"}}
    assert rig.app.held == 0
    rig.app.stop()


async def test_who_asks_what_is_asked_already_is_held_without_another_look() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30))
    await rig.follow("0_inf")
    first = asyncio.create_task(rig.follow("0_inf", live="true"))
    await eventually(lambda: rig.app.held == 1, "the first to be held")
    looks, resolve = [], rig.app.serving.resolve

    async def counted(query: ShapeQuery) -> Any:
        looks.append(query)
        return await resolve(query)

    rig.app.serving.resolve = counted  # type: ignore[method-assign]  # to count
    others = [asyncio.create_task(rig.follow("0_inf", live="true")) for _ in range(20)]
    await eventually(lambda: rig.app.held == 21, "all to be held")
    assert not looks
    assert rig.app.admission.present["existing"] == 21
    rig.commit(500)
    late = asyncio.create_task(rig.follow("0_inf", live="true"))  # before anybody is woken
    assert [ids(answer) for answer in await asyncio.gather(first, *others, late)] == [["500.0"]] * 22
    assert looks, "what is known of a question ends with the news"
    assert rig.app.admission.present["existing"] == 0
    rig.app.stop()


async def test_each_is_answered_when_his_own_time_is_up() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=0.5))
    loop = asyncio.get_running_loop()

    async def wait(**more: str) -> float:
        began = loop.time()
        answer = await rig.follow("0_inf", live="true", **more)
        assert (answer.status, answer.headers["electric-has-data"]) == (200, "false")
        assert "electric-up-to-date" in answer.headers
        return loop.time() - began

    early = [asyncio.create_task(wait(cursor=str(number % 3))) for number in range(9)]
    await early[0]
    later = [asyncio.create_task(wait(cursor=str(number % 3))) for number in range(9)]
    assert min(await asyncio.gather(*early, *later)) >= 0.5 - 0.01
    assert rig.app.held == 0
    rig.app.stop()


async def test_a_live_request_by_another_method_is_kept_by_no_cache() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30))
    asked = {"offset": "0_inf", "handle": rig.entry.handle, "live": "true"}
    post, head = (asyncio.create_task(rig.ask(method, None, **asked)) for method in ("POST", "HEAD"))
    await eventually(lambda: rig.app.held == 2, "both to be held")
    rig.commit(500)
    assert (await post).headers["cache-control"] == "no-cache"
    assert ids(await post) == ["500.0"]
    assert ((await head).status, (await head).body) == (200, b"")
    assert (await head).headers["content-length"] == (await post).headers["content-length"]
    rig.app.stop()


async def test_long_news_reach_all_who_are_held() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30))
    held = [asyncio.create_task(rig.follow("0_inf", live="true")) for _ in range(10)]
    await eventually(lambda: rig.app.held == 10, "all to be held")
    rig.commit(500, 3_000)
    for answer in await asyncio.gather(*held):
        assert len(answer.body) > SEND_PIECE_BYTES
        assert ids(answer) == [f"500.{number}" for number in range(3_000)]
    assert rig.app.outflow.bytes == 0
    rig.app.stop()


async def test_a_fault_is_told_to_all_who_are_held() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30))
    held = [asyncio.create_task(rig.follow("0_inf", live="true")) for _ in range(3)]
    await eventually(lambda: rig.app.held == 3, "all to be held")

    async def failing(*_: Any) -> Any:
        raise ValueError("a fault of ours")

    rig.app.serving.page = failing  # type: ignore[assignment, method-assign]  # whatever goes wrong in there
    rig.commit(500)
    assert {answer.status for answer in await asyncio.gather(*held)} == {500}
    assert rig.app.admission.present["existing"] == 0
    rig.app.stop()


async def test_readers_keep_up_with_a_writer() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=5), chunk_bytes=900)

    async def read() -> list[str]:
        offset, found = "0_inf", list[str]()
        while len(found) < 300:
            answer = await rig.follow(offset, live="true")
            assert answer.status == 200
            found += ids(answer)
            if "electric-up-to-date" in answer.headers:
                assert not found or answer.messages[-2]["headers"]["last"] is True
            offset = answer.headers["electric-offset"]
        return found

    readers = [asyncio.create_task(read()) for _ in range(20)]

    def write() -> None:
        for tx in range(100):
            rig.commit(1_000 + tx, 3)

    threading.Thread(target=write).start()
    expected = [f"{1_000 + tx}.{op}" for tx in range(100) for op in range(3)]
    for found in await asyncio.gather(*readers):
        assert found == expected
    rig.app.stop()


async def test_who_has_the_last_row_is_held_though_v_is_above_it() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30))
    rig.commit(500)
    held = asyncio.create_task(rig.follow("500_0", live="true"))
    stream = asyncio.create_task(rig.follow("500_0", live="true", live_sse="true"))
    await eventually(lambda: rig.app.held == 2, "both to be held")
    made = rig.app.serving.pages.made
    for _ in range(50):
        await asyncio.sleep(0)
    assert rig.app.serving.pages.made == made, "nobody looks again before there is news"
    rig.commit(600)
    assert ids(await held) == ["600.0"]
    rig.app.stop()
    assert b"600.0" in (await stream).body


async def test_a_client_that_leaves_frees_its_handler() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=600))
    gone = asyncio.Event()
    held = asyncio.create_task(rig.ask(gone=gone, offset="0_inf", handle=rig.entry.handle, live="true"))
    await eventually(lambda: rig.app.held == 1, "the request to be held")
    gone.set()
    async with asyncio.timeout(5):
        answer = await held
    assert answer.status == 0
    assert rig.app.admission.present == {"initial": 0, "existing": 0}
    rig.app.stop()


async def test_a_stop_answers_all_who_are_held() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=600, sse_seconds=600, sse_keepalive_seconds=600))
    polls = [asyncio.create_task(rig.follow("0_inf", live="true")) for _ in range(50)]
    streams = [asyncio.create_task(rig.follow("0_inf", live="true", live_sse="true")) for _ in range(50)]
    await eventually(lambda: rig.app.held == 100, "all to be held")
    rig.app.stop()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*polls, *streams)
    assert {answer.status for answer in answers} == {200}
    assert all(answer.ended for answer in answers)


async def test_nothing_is_up_to_date_before_the_stream_has_passed_the_birth() -> None:
    rig = Rig(QUICK)
    rig.collector.tracker.seen.lsn = rig.entry.shape.snapshot.birth - 1
    early = await rig.follow("0_inf")
    assert early.status == 503
    assert early.headers["retry-after"] == "1"
    waiting = asyncio.create_task(rig.follow("0_inf"))
    await asyncio.sleep(0)
    rig.collector.tracker.seen.lsn = rig.entry.shape.snapshot.birth
    assert "electric-up-to-date" in (await waiting).headers


async def test_a_reader_who_is_ahead_of_us_waits_while_we_catch_up() -> None:
    rig = Rig(QUICK)
    rig.commit(500)
    rig.house.wal_end_at_connect = 10**9
    assert (await rig.follow("700_0")).status == 503
    assert (await rig.follow("501_0")).status == 200, "behind the last commit: nothing lies between"
    rig.house.wal_end_at_connect = 0
    refused = await rig.follow("700_0")
    assert refused.status == 400
    waiting = asyncio.create_task(rig.follow("700_0"))
    await asyncio.sleep(0)
    rig.collector.upto = LogOffset(800, 1)
    assert (await waiting).status == 200


async def test_of_a_transaction_that_is_open_nobody_is_told() -> None:
    rig = Rig(QUICK)
    rig.commit(500)
    rig.collector.upto, rig.collector.tracker.open_tx = LogOffset(900, 7), 900
    end = (await rig.follow("500_0")).messages[-1]
    assert end["headers"]["global_last_seen_lsn"] == "899"


async def test_a_truncated_shape_is_begun_anew() -> None:
    rig = Rig(QUICK)
    held = asyncio.create_task(rig.follow("0_inf", live="true"))
    await eventually(lambda: rig.app.held == 1, "the request to be held")
    rig.commit(500, kind=Kind.TRUNCATE)
    rig.store.flush_all()
    base = empty_base(rig.store, rig.entry.log, LogOffset(500, 0), written_at=1)
    assert base is not None
    newer = rig.registry.rebased(rig.entry.handle, base.number, base.floor, TRUNCATED)
    answer = await held
    assert (answer.status, answer.headers["electric-handle"]) == (409, newer.handle)
    rig.entry = newer
    rig.commit(600)
    found, _ = await walk(rig)
    assert found == ["600.0"]


async def test_a_truncate_that_is_not_settled_is_not_passed() -> None:
    rig = Rig(QUICK)
    rig.commit(500, kind=Kind.TRUNCATE)
    answer = await rig.follow("0_inf")
    assert answer.status == 503


async def test_a_stream_that_was_silent_ends_in_time() -> None:
    rig = Rig(QUICK)
    answer = await rig.follow("0_inf", live="true", live_sse="true")
    assert answer.headers["content-type"] == "text/event-stream"
    assert set(answer.body.split(b"\n\n")) == {b": keep-alive", b""}
    assert answer.headers["cache-control"] == "public, max-age=0"


async def test_a_stream_sends_what_is_there_and_ends() -> None:
    rig = Rig(QUICK, chunk_bytes=200)
    for tx in range(500, 520):
        rig.commit(tx, 3)
    answer = await rig.follow("0_inf", live="true", live_sse="true")
    events: list[dict[str, Any]] = [
        orjson.loads(event.removeprefix(b"data: ")) for event in answer.body.split(b"\n\n")[:-1]
    ]
    assert [one["value"]["id"] for one in events[:-1]] == [f"{tx}.{op}" for tx in range(500, 520) for op in range(3)]
    assert events[-1]["headers"] == {"control": "up-to-date", "global_last_seen_lsn": "520"}


async def test_a_server_without_a_stream_says_when_to_come_again() -> None:
    rig = Rig(QUICK)
    rig.house.is_streaming = False
    answer = await rig.ask(offset="-1")
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.headers["electric-internal-known-error"] == "true"


async def test_more_than_may_be_under_way_is_refused() -> None:
    rig = Rig(HttpSettings(sent_bytes_max=10))
    rig.app.outflow.enter(9, 6)
    assert (await rig.ask(offset="-1")).status == 503
    rig.app.outflow.leave(9)
    assert (await rig.ask(offset="-1")).status == 200, "one answer alone is let through, however long"
    assert rig.app.outflow.bytes == 0


async def test_what_is_counted_has_a_name() -> None:
    rig = Rig(QUICK)
    await rig.ask(offset="-1")
    numbers = rig.app.numbers()
    assert set(numbers) | set(rig.app.reasons()) == set(HttpMetric)
    assert numbers[HttpMetric.ENCODED_PAGES] == 1


NAMES = [
    "table",
    "offset",
    "handle",
    "live",
    "live_sse",
    "cursor",
    "where",
    "params[1]",
    "columns",
    "queryable_columns",
    "replica",
    "log",
    "secret",
    "x",
]
TEXTS = ["", "-1", "now", "0_0", "0_inf", "500_0", "9_9", "true", "false", "id", "id,v", '"id"', "id = $1", "v = 'x'"]
TEXTS += [
    "(",
    "full",
    "changes_only",
    "items",
    "public.items",
    "é\u2028",
    "1" * 30,
    "a.b.c.d",
    "id IN (SELECT 1)",
    "\0",
]


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT"]),
    fields=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS) | st.text(max_size=6), max_size=6),
    is_ours=st.booleans(),
)
def test_whatever_is_asked_is_answered_and_never_with_a_500(method: str, fields: dict[str, str], is_ours: bool) -> None:
    async def run() -> None:
        rig = Rig(HttpSettings(long_poll_seconds=0.05, sse_seconds=0.05, birth_seconds=0.1, allow_delete=True))
        rig.commit(500)
        sound = {name: text.encode("utf-8", "replace").decode() for name, text in fields.items()}
        asked = sound | ({"handle": rig.entry.handle, "table": "items"} if is_ours else {})
        async with asyncio.timeout(10):
            answer = await rig.ask(method, None, **asked)
        assert answer.status in {200, 202, 204, 304, 400, 404, 405, 409, 503}, answer.body
        assert answer.ended

    asyncio.run(run())
