"""Readers who bring a token each: those of one shape share all that follows from it, those of two share nothing."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from shapes.http.metrics import HttpMetric
from shapes.http.settings import HttpSettings
from shapes.http.tokens import ShapeTokens
from shapes.requests import define
from tests.memory_socket import Answer
from tests.shape_rig import Rig
from tests.waiting import eventually

SIGNING = "thirty-two-bytes-of-a-signing-key"
BROWSERS = 1_000


def token(number: int, **claims: Any) -> str:
    """That of one browser."""
    content = {"table": "items", "sub": str(number), "exp": int(time.time()) + 600, **claims}
    return jwt.encode(content, SIGNING, "HS256")


def counted(of: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        calls.append(of.__name__)
        return of(*arguments, **more)

    return call


async def test_a_thousand_browsers_with_a_token_each_share_definition_encoding_and_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30, initial_requests_max=BROWSERS), tokens=ShapeTokens(SIGNING))
    calls: list[str] = []
    monkeypatch.setattr("shapes.http.definitions.define", counted(define, calls))
    monkeypatch.setattr(rig.app.serving, "resolve", counted(rig.app.serving.resolve, calls))
    tokens = [token(number) for number in range(BROWSERS)]

    async def all_ask(**asked: str) -> list[Answer]:
        return await asyncio.gather(*(rig.ask("GET", None, token=one, **asked) for one in tokens))

    assert {answer.status for answer in await all_ask(offset="-1")} == {200}
    await all_ask(offset="0_2", handle=rig.entry.handle)
    assert calls.count("define") == 1
    assert rig.app.numbers()[HttpMetric.ENCODED_PAGES] == 2  # the base, and its end

    calls.clear()
    asking = asyncio.create_task(all_ask(offset="0_inf", handle=rig.entry.handle, live="true"))
    await eventually(lambda: rig.app.held == BROWSERS, "all to be held")
    assert calls.count("resolve") < BROWSERS / 10, "who asks what is asked already is held beside him"
    before = rig.app.numbers()[HttpMetric.ENCODED_PAGES]
    rig.commit(500, 3)
    answers = await asking
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert rig.app.numbers()[HttpMetric.ENCODED_PAGES] == before + 1
    rig.app.stop()


async def test_who_may_see_another_shape_is_not_held_beside() -> None:
    """The same address by two readers, whose tokens make two questions of it."""
    rig = Rig(HttpSettings(long_poll_seconds=30), tokens=ShapeTokens(SIGNING))
    live = {"offset": "0_inf", "handle": rig.entry.handle, "live": "true"}
    first = asyncio.create_task(rig.ask("GET", None, token=token(1), **live))
    await eventually(lambda: rig.app.held == 1, "the first to be held")
    other = await rig.ask("GET", None, token=token(2, where="id = 'b1'"), **live)
    assert other.status == 503, other.body  # the rig makes no shapes, and that one is not there
    for bad in (jwt.encode({"table": "items", "exp": 2**40}, "x" * 40, "HS256"), token(3, exp=1)):
        assert (await rig.ask("GET", None, token=bad, **live)).status == 401
    assert (await rig.ask("GET", None, token=token(4), **{**live, "columns": "id"})).status == 403
    assert rig.app.held == 1
    rig.commit(500)
    assert (await first).status == 200
    rig.app.stop()


async def test_an_answer_without_news_is_private_too() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=0.05), tokens=ShapeTokens(SIGNING))
    live = {"offset": "0_inf", "handle": rig.entry.handle, "live": "true"}
    by_token, by_secret = await rig.ask("GET", None, token=token(1), **live), await rig.ask("GET", None, **live)
    assert [answer.headers["electric-has-data"] for answer in (by_token, by_secret)] == ["false", "false"]
    assert by_token.headers["cache-control"].startswith("private, ")
    assert by_secret.headers["cache-control"].startswith("public, ")
    rig.app.stop()


async def test_who_brings_the_secret_is_held_beside_who_brings_a_token() -> None:
    rig = Rig(HttpSettings(long_poll_seconds=30), tokens=ShapeTokens(SIGNING))
    live = {"offset": "0_inf", "handle": rig.entry.handle, "live": "true"}
    asking = [
        asyncio.create_task(rig.ask("GET", None, **{name: text}, **live))
        for name, text in (("token", token(1)), ("secret", "s"))
    ]
    await eventually(lambda: rig.app.held == 2, "both to be held")
    before = rig.app.numbers()[HttpMetric.ENCODED_PAGES]
    rig.commit(500)
    by_token, by_secret = await asyncio.gather(*asking)
    assert by_token.body == by_secret.body
    assert by_token.headers["etag"] == by_secret.headers["etag"]
    assert by_token.headers["cache-control"] == "private, max-age=5, stale-while-revalidate=5"
    assert by_secret.headers["cache-control"] == "public, max-age=5, stale-while-revalidate=5"
    assert rig.app.numbers()[HttpMetric.ENCODED_PAGES] == before + 1
    rig.app.stop()
