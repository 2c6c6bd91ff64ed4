"""Requests that are held, beside each other: nobody gets another's answer, nobody is forgotten, and all are counted."""

import asyncio
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.http.access import Guard
from shapes.http.connections import Connections
from shapes.http.envelope import Envelope
from shapes.http.limits import CONNECTIONS_SLICE
from shapes.http.metrics import HttpMetric
from shapes.http.settings import HttpSettings
from shapes.registry import REMOVED
from storage.offset import SNAPSHOT_END
from tests.memory_socket import Answer, MemorySocket
from tests.shape_rig import Rig
from tests.waiting import eventually

SECONDS = 20
"""Whoever is held for so long was forgotten: far longer than a wake, and shorter than he is held."""

PATIENT = HttpSettings(long_poll_seconds=600)


def live(rig: Rig, method: str = "GET", headers: str = "", query: str = "", body: str = "") -> bytes:
    """A request that is held where there is no news."""
    target = f"/v1/shape?table=items&offset=0_inf&handle={rig.entry.handle}&live=true{query}"
    length = f"content-length: {len(body)}\r\n" if body else ""
    return f"{method} {target} HTTP/1.1\r\nhost: x\r\n{headers}{length}\r\n{body}".encode()


def asked(connections: Connections, request: bytes) -> MemorySocket:
    socket = MemorySocket(connections)
    socket.send(request)
    return socket


async def taken(socket: MemorySocket, method: str = "GET") -> Answer:
    async with asyncio.timeout(SECONDS):
        answer = await socket.answer(method)
    socket.close()
    await socket.closed.wait()
    return answer


def is_empty(rig: Rig) -> bool:
    numbers = rig.app.numbers()
    present = (HttpMetric.HELD_REQUESTS, HttpMetric.FOLLOWING_REQUESTS, HttpMetric.SENDING_BYTES)
    return not any(numbers[name] for name in present) and rig.registry.readers_of(rig.entry.handle) == 0


async def test_each_gets_his_own_headers_and_nobody_more_than_he_may_have() -> None:
    rig = Rig(PATIENT)
    connections = Connections(Envelope(Guard(rig.app, "s")))
    mine = "authorization: Bearer s\r\n"
    origins = [None, "https://one.example", "https://two.example"]
    held = [asked(connections, live(rig, headers=mine + (f"origin: {one}\r\n" if one else ""))) for one in origins]
    head = asked(connections, live(rig, "HEAD", mine))
    posted = asked(connections, live(rig, "POST", mine))
    await eventually(lambda: rig.app.held == 5, "all to be held")
    for headers in ("", "authorization: Bearer t\r\n", "authorization: Bearer \r\n"):
        refused = await taken(asked(connections, live(rig, headers=headers)))
        assert (refused.status, refused.body) == (401, b'{"message":"Unauthorized - Invalid API secret"}')
    rig.commit(500)
    answers = [await taken(socket) for socket in held]
    assert [one.headers["access-control-allow-origin"] for one in answers] == ["*", *origins[1:]]
    assert [one.headers.get("vary") for one in answers] == ["authorization", *2 * ["authorization, origin"]]
    assert len({one.headers["x-request-id"] for one in answers}) == 3
    assert len({one.body for one in answers}) == 1
    empty, by_post = await taken(head, "HEAD"), await taken(posted)
    assert (empty.body, empty.headers["content-length"]) == (b"", str(len(answers[0].body)))
    assert (by_post.body, by_post.headers["cache-control"]) == (answers[0].body, "no-cache")
    assert is_empty(rig)
    rig.app.stop()


async def test_what_is_asked_in_a_body_is_not_taken_for_what_is_asked_without() -> None:
    rig = Rig(PATIENT)
    connections = Connections(Envelope(rig.app))
    waiting = asked(connections, live(rig, "POST"))
    await eventually(lambda: rig.app.held == 1, "the first to be held")
    other = await taken(asked(connections, live(rig, "POST", body='{"limit": 0}')))
    assert (other.status, b'"subset":{"limit":["must be greater than 0"]' in other.body) == (400, True)
    rig.commit(500)
    assert (await taken(waiting)).status == 200
    rig.app.stop()


async def test_a_commit_just_before_a_request_is_held_is_not_missed() -> None:
    """Whatever was looked at says that there is nothing, and then there is."""
    rig = Rig(PATIENT)
    connections = Connections(Envelope(rig.app))
    hold, tx = rig.app.holding.hold, 500

    def late(*given: Any) -> None:
        nonlocal tx
        tx += 100
        rig.commit(tx)
        hold(*given)

    rig.app.holding.hold = late  # type: ignore[assignment, method-assign]  # the moment that matters
    for _ in range(3):
        offset = f"{tx}_inf" if tx > 500 else "0_inf"
        request = live(rig).replace(b"0_inf", offset.encode())
        assert (await taken(asked(connections, request))).messages[0]["value"]["id"] == f"{tx}.0"
    assert is_empty(rig)
    rig.app.stop()


async def test_those_who_stand_alone_are_answered_some_at_a_time_too() -> None:
    rig = Rig(PATIENT)
    connections = Connections(Envelope(rig.app))
    count = 3 * CONNECTIONS_SLICE
    held = [asked(connections, live(rig, query=f"&cursor={number}")) for number in range(count)]
    await eventually(lambda: rig.app.held == count, "all to be held")
    rig.commit(500)
    left = [count]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(rig.app.holding.count)
    assert max(before - after for before, after in pairwise(left)) <= CONNECTIONS_SLICE
    assert {(await taken(socket)).status for socket in held} == {200}
    rig.app.stop()


async def test_no_number_is_below_zero_while_all_leave() -> None:
    rig = Rig(PATIENT)
    connections = Connections(Envelope(rig.app))
    held = [asked(connections, live(rig)) for _ in range(3)]
    await eventually(lambda: rig.app.held == 3, "all to be held")
    page, reading, go_on = rig.app.serving.page, asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> Any:
        reading.set()
        await go_on.wait()
        return await page(*given)

    rig.app.serving.page = slow  # type: ignore[assignment, method-assign]  # so that they leave
    rig.commit(500)
    await reading.wait()
    seen = [rig.app.held]
    for socket in held:
        socket.close()
        await socket.closed.wait()
        seen.append(rig.app.held)
    go_on.set()
    await eventually(lambda: is_empty(rig) and len(asyncio.all_tasks()) == 1, "nobody to be counted")
    assert seen == [3, 2, 1, 0]
    rig.app.stop()


async def test_the_end_of_a_shape_is_told_to_all_and_at_once() -> None:
    rig = Rig(PATIENT)
    connections = Connections(Envelope(rig.app))
    held = [asked(connections, live(rig, query=f"&cursor={number % 5}")) for number in range(2 * CONNECTIONS_SLICE)]
    await eventually(lambda: rig.app.held == len(held), "all to be held")
    rig.registry.ended(rig.entry.handle, SNAPSHOT_END, REMOVED)
    assert {(await taken(socket)).status for socket in held} == {409}
    assert rig.app.held == rig.app.admission.present["existing"] == 0
    rig.app.stop()


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["ask", "ask other", "commit", "leave", "turn", "turn"]), max_size=40),
    stops=st.booleans(),
)
def test_whoever_comes_is_answered_or_leaves_whatever_happens_between(steps: list[str], stops: bool) -> None:
    async def run() -> None:
        rig = Rig(PATIENT)
        connections = Connections(Envelope(rig.app))
        held: list[MemorySocket] = []
        tx, offset = 500, "0_inf"
        for number, step in enumerate(steps):
            match step:
                case "ask" | "ask other":
                    query = "" if step == "ask" else f"&cursor={number}"
                    many = [live(rig, query=query).replace(b"0_inf", offset.encode())] * 3
                    held += [asked(connections, request) for request in many]
                case "commit":
                    tx += 100
                    rig.commit(tx)
                    offset = f"{tx}_inf" if number % 2 else offset
                case "leave" if held:
                    held.pop(number % len(held)).close()
                case _:
                    await asyncio.sleep(0)
        if stops:
            rig.app.stop()
        else:
            rig.commit(tx + 100)
        found = [await taken(socket) for socket in held]
        assert {answer.status for answer in found} <= ({200, 503} if stops else {200})
        await eventually(lambda: is_empty(rig) and not len(connections), "nobody to be counted")
        rig.app.stop()
        await connections.end(1)
        await eventually(lambda: len(asyncio.all_tasks()) == 1, "no task to be left")

    asyncio.run(run())
