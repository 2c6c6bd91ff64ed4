"""How often a server is asked that is away: a few times a second, and then less, or a thousand of us would wake it."""

import pytest

from cdc.source import session as module
from cdc.source.errors import ConnectionFault, Unreachable
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
