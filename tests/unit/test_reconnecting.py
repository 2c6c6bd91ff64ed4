"""How often a server is asked that is away: a few times a second, and then less, or a thousand of us would wake it."""

import asyncio
from dataclasses import dataclass

import pytest

from cdc.source import session as module
from cdc.source.attempt import Delivery
from cdc.source.errors import ConnectionFault, Refusal, Unreachable
from cdc.source.session import Session
from tests.follower import settings_for


async def test_attempts_have_pauses_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def is_away(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionFault("nobody is there")

    monkeypatch.setattr(module, "open_attempt", is_away)
    session = Session(settings_for("host=nowhere", patience_seconds=0.5), known=lambda: None)
    with pytest.raises(Unreachable, match="nobody is there"):
        await session.next()
    assert session.fault is not None
    assert 1 < attempts < 50


ATTEMPTS = 40
"""With pauses that grow up to 15 s, as many take minutes."""


@dataclass
class CutSoon:
    """A connection that is cut as soon as something was confirmed on it."""

    number: int
    started: float = float("inf")
    was_good: bool = True

    async def deliveries(self) -> list[Delivery]:
        raise ConnectionFault("it was cut") if self.number < ATTEMPTS else Refusal("enough")

    async def close(self) -> None:
        pass


async def test_after_a_connection_that_got_something_done_the_next_is_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However short it was: who cuts connections again and again shall not stop the stream for 15 s each time."""

    async def is_there(*_: object) -> None:
        pass

    monkeypatch.setattr(module, "open_attempt", is_there)
    monkeypatch.setattr(module, "Attempt", lambda number, *_: CutSoon(number))
    session = Session(settings_for("host=somewhere", reconnect_seconds=15.0), known=lambda: None)
    async with asyncio.timeout(20):
        with pytest.raises(Refusal, match="enough"):
            await session.next()
    assert session.attempts_count == ATTEMPTS
