"""What is wrong and which way leads out: as the session judges, and no slot is dropped that is not ours."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import NothingToRecover
from cdc.recover.diagnosis import EVERYTHING, Found, Plan, Way, Wish, diagnose, is_ours, plan
from cdc.source.identity import Known, Refused, ServerState, judge
from cdc.source.lsn import Lsn
from tests.unit.test_identity import IDENTITY, server, slot

KNOWN = Known(IDENTITY, Lsn(100))
SOUND = Found("s", known=KNOWN, system="7000", server=server(slot(100)))
GONE = replace(SOUND, server=server(None))
AHEAD = replace(SOUND, server=server(slot(500)))
ELSEWHERE = replace(SOUND, server=server(None, system="7001"))
OTHER_SLOT = replace(SOUND, server=server(slot(100), system="7001"))
OTHER_DATABASE = replace(SOUND, server=server(slot(100, database="another")))
UNCLAIMED = Found("s", server=server(slot(100)))
ALL_ANEW = Plan((), None, drops_slot=True, forgets_stream=True)


def damaged(*files: str, **more: Any) -> Found:
    known = None if "stream.json" in files else KNOWN
    return replace(SOUND, known=known, faults=dict.fromkeys(files, "bytes"), **more)


@pytest.mark.parametrize(
    ("found", "code", "way"),
    [
        (GONE, "slot_lost", Way.STREAM),
        (AHEAD, "slot_ahead", Way.STREAM),
        (ELSEWHERE, "other_server", Way.STREAM),
        (UNCLAIMED, "slot_exists", Way.STREAM),
        (damaged("stream.json"), "damaged", Way.STREAM),
        (damaged("progress"), "damaged", Way.STREAM),
        (damaged("catalog"), "damaged", Way.FOLDER),
        (replace(SOUND, damaged={"orders": "bytes"}), "damaged", Way.SHAPES),
        (replace(SOUND, server=None, server_fault="away"), "server_unknown", Way.NOTHING),
        (replace(SOUND, server=server(slot(100), timeline=2)), "other_timeline", Way.NOTHING),
    ],
)
def test_what_is_wrong(found: Found, code: str, way: Way) -> None:
    (trouble, *_) = diagnose(found)
    assert (trouble.code, trouble.way) == (code, way)
    assert trouble.loss


def test_nothing_is_wrong() -> None:
    assert diagnose(SOUND) == []
    assert diagnose(Found("s", server=server(None))) == []
    assert diagnose(Found("s", is_claimed=True, server=server(slot(100)))) == []


def test_a_publication_that_is_gone() -> None:
    publication = replace(IDENTITY.publication, oid=None)
    state = server(slot(100))
    found = replace(SOUND, server=replace(state, identity=replace(state.identity, publication=publication)))
    (trouble,) = diagnose(found)
    assert (trouble.code, trouble.way) == ("not_published", Way.STREAM)


@given(st.integers(1, 200), st.integers(1, 200), st.sampled_from(["7000", "7001"]), st.booleans())
def test_whatever_the_session_refuses_has_a_way_out(confirmed: int, durable: int, system: str, is_there: bool) -> None:
    state: ServerState = server(slot(confirmed) if is_there else None, system=system)
    found = replace(SOUND, known=Known(IDENTITY, Lsn(durable)), server=state)
    is_refused = isinstance(judge(found.known, state), Refused)
    assert is_refused == any(trouble.way is Way.STREAM for trouble in diagnose(found))
    if is_refused:
        todo = plan(found, Wish(drop_slot=True))
        assert (todo.ends, todo.forgets_stream, todo.drops_slot) == (None, True, is_there)
    else:
        assert plan(found, Wish()) == Plan((), None, drops_slot=False, forgets_stream=False)


def test_some_shapes_or_all() -> None:
    some = replace(SOUND, living={"h-1": "a", "h-2": None})
    assert plan(some, Wish(("a", "h-2"))).ends == ("a", "h-2")
    with pytest.raises(NothingToRecover, match="name or handle nobody") as refused:
        plan(some, Wish(("a", "nobody")))
    assert refused.value.advice == "Those with a name are: a."
    assert plan(SOUND, Wish()) == Plan((), None, drops_slot=False, forgets_stream=False)
    assert plan(SOUND, Wish(new_stream=True)) == ALL_ANEW
    with pytest.raises(NothingToRecover, match="some shapes"):
        plan(GONE, Wish(("a",)))


def test_what_cannot_be_read_is_set_aside() -> None:
    assert plan(damaged("progress"), Wish()) == replace(ALL_ANEW, sets_aside=("progress",))
    assert plan(damaged("catalog", "stream.json"), Wish()) == replace(ALL_ANEW, sets_aside=EVERYTHING)
    assert plan(damaged("stream.json"), Wish()) == ALL_ANEW


@pytest.mark.parametrize("found", [UNCLAIMED, OTHER_SLOT, OTHER_DATABASE, damaged("stream.json", system=None)])
def test_a_slot_that_is_not_known_as_ours_is_dropped_only_when_told_to(found: Found) -> None:
    assert not is_ours(found)
    with pytest.raises(NothingToRecover, match="nothing here says"):
        plan(found, Wish())
    assert plan(found, Wish(drop_slot=True)).drops_slot


def test_a_slot_that_is_read_or_a_server_that_is_silent_stops_it() -> None:
    read = replace(AHEAD, server=server(slot(500, active_pid=77)))
    with pytest.raises(NothingToRecover, match="77"):
        plan(read, Wish(drop_slot=True))
    with pytest.raises(NothingToRecover, match="does not say"):
        plan(damaged("stream.json", server=None), Wish(drop_slot=True))
