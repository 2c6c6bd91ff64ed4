"""A stream that fails at the same place again and again: the rule, and the session that goes by it."""

import logging
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source import session as module
from cdc.source.errors import ConnectionFault, StreamEnded, Unreachable
from cdc.source.identity import Identity, Known
from cdc.source.limits import STANDSTILL_FAILURES
from cdc.source.lsn import Lsn
from cdc.source.publication import PublicationState
from cdc.source.session import Session
from cdc.source.standstill import Standstill
from tests.follower import settings_for

OF_A_PLACE = ("XX000", "54000")
PASSING = (None, "53200", "57P01", "08006", "40001")

IDENTITY = Identity("7000", 1, "db", "s", MappingProxyType({}), PublicationState("p"))


def ended(sqlstate: str | None) -> StreamEnded:
    return StreamEnded("it failed", sqlstate=sqlstate)


@given(st.lists(st.tuples(st.integers(1, 2), st.sampled_from((*OF_A_PLACE, *PASSING))), max_size=40))
def test_it_stands_still_iff_the_last_failures_have_one_place_and_one_error(
    story: list[tuple[int, str | None]],
) -> None:
    standstill, told = Standstill(), []
    counted = []
    for place, sqlstate in sorted(story, key=lambda one: one[0]) + [(2, "XX000")] * STANDSTILL_FAILURES:
        told.append(standstill.failed(ended(sqlstate), Lsn(place)))
        counted += [(place, sqlstate)] * (sqlstate in OF_A_PLACE)
        last = counted[-STANDSTILL_FAILURES:]
        assert (standstill.fault is not None) == (len(last) == STANDSTILL_FAILURES and len(set(last)) == 1)
    assert any(told)
    standstill.passed(Lsn(2))
    assert standstill.fault is not None, "all below G is nothing new"
    standstill.passed(Lsn(3))
    assert standstill.fault is None


def test_it_is_told_once_and_again_when_it_stands_still_elsewhere() -> None:
    standstill = Standstill()
    for place in (1, 2):
        told = [standstill.failed(ended("XX000"), Lsn(place)) for _ in range(3 * STANDSTILL_FAILURES)]
        assert [number for number, one in enumerate(told, 1) if one] == [STANDSTILL_FAILURES]
    assert "0/2" in str(standstill.fault)
    assert "recover --resnapshot --new-stream" in str(standstill.fault)


def test_a_server_that_is_away_does_not_stand_still() -> None:
    standstill = Standstill()
    assert not any(standstill.failed(ConnectionFault("no", sqlstate="XX000"), Lsn(1)) for _ in range(20))


async def test_a_session_says_that_it_stands_still_and_tries_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = 0

    async def fails(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        raise StreamEnded("invalid memory alloc request size 1200000003", sqlstate="XX000")

    monkeypatch.setattr(module, "open_attempt", fails)
    known = Known(IDENTITY, Lsn(0x1234))
    settings = settings_for("host=nowhere", patience_seconds=0.5, reconnect_seconds=0.01)
    session = Session(settings, known=lambda: known)
    with caplog.at_level(logging.ERROR), pytest.raises(Unreachable):
        await session.next()
    assert attempts > STANDSTILL_FAILURES
    assert session.standstill.fault is not None
    assert "invalid memory alloc request size" in str(session.standstill.fault)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, "once is enough"
    assert "[stream_stuck]" in said[0]
    assert "0/1234" in said[0]
