"""The verdict on a connection, against the promises at the head of `identity.py`."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.errors import (
    AccessRefused,
    ConnectionFault,
    NotPublished,
    OtherServer,
    Refusal,
    ServerStopping,
    ServerUnfit,
    SlotAhead,
    SlotExists,
    SlotLost,
    SourceError,
    StreamEnded,
)
from cdc.source.identity import (
    AheadGap,
    Behind,
    Fresh,
    Identity,
    Known,
    Lost,
    OtherHistory,
    OtherSystem,
    OtherTimeline,
    PublicationChanged,
    Resume,
    ServerState,
    Unclaimed,
    compare_histories,
    judge,
    refusal,
)
from cdc.source.lsn import Lsn
from cdc.source.publication import Member, PublicationState
from cdc.source.refusals import history_refusal
from cdc.source.server_state import parse_history
from cdc.source.slot import SlotState

PUBLICATION = PublicationState(
    "p", 10, 700, tables={1: Member(20, 701, "public.t")}, partitions={"7": {"8": "/8:700"}, "9": {}}
)
IDENTITY = Identity("7000", 1, "db", "s", MappingProxyType({"proto_version": "1"}), PUBLICATION)


def slot(confirmed: int = 100, **more: Any) -> SlotState:
    facts = {
        "slot_name": "s",
        "plugin": "pgoutput",
        "database": "db",
        "temporary": False,
        "active_pid": None,
        "restart_lsn": "0/10",
        "confirmed_flush_lsn": f"0/{confirmed:X}",
        "wal_status": "reserved",
        "safe_wal_size": None,
    }
    return SlotState.from_row(facts | more)


def server(present: SlotState | None, wal_end: int = 1000, **changed: Any) -> ServerState:
    switch_points = changed.pop("switch_points", {})
    return ServerState(replace(IDENTITY, **changed), present, Lsn(wal_end), switch_points)


def known(durable: int) -> Known:
    return Known(IDENTITY, Lsn(durable))


def test_the_first_start_makes_a_slot() -> None:
    assert judge(None, server(None)) == Fresh(None)


def test_a_slot_that_nobody_knows_is_taken_only_when_told_to() -> None:
    assert judge(None, server(slot())) == Unclaimed(slot())
    assert judge(None, server(slot()), adopt=True) == Fresh(slot())
    assert isinstance(judge(None, server(slot(plugin="wal2json")), adopt=True), Lost)
    assert isinstance(judge(None, server(slot(wal_status="lost")), adopt=True), Lost)


@given(confirmed=st.integers(1, 50), durable=st.integers(1, 50), wal_end=st.integers(1, 50))
def test_positions(confirmed: int, durable: int, wal_end: int) -> None:
    """Streaming begins at G, and only if nothing lies between the slot and G that will not be sent again."""
    verdict = judge(known(durable), server(slot(confirmed), wal_end))
    if confirmed > durable:
        assert verdict == AheadGap(Lsn(confirmed), Lsn(durable))
    elif wal_end < durable:
        assert isinstance(verdict, OtherSystem)
    elif confirmed == durable:
        assert verdict == Resume(Lsn(durable))
    else:
        assert verdict == Behind(Lsn(durable), Lsn(confirmed))


@given(
    ours=st.lists(st.integers(1, 6), max_size=6, unique=True).map(sorted),
    theirs=st.lists(st.integers(1, 6), max_size=6, unique=True).map(sorted),
    fork=st.integers(0, 3),
    confirmed=st.integers(0, 3),
    start=st.integers(0, 4),
    kept=st.sets(st.integers(0, 6)),
)
def test_a_history_is_ours_iff_its_last_commit_below_g_is(
    ours: list[int], theirs: list[int], fork: int, confirmed: int, start: int, kept: set[int]
) -> None:
    """Against whole histories: a commit is a place and a time, and after the fork every time is another one.

    Our stream began at `start`; of what lies below nothing is known. Of other places, Gs were kept of some.
    """
    confirmed, durable = min(confirmed, fork), 7
    old = {at: 1_000 + at for at in ours}
    new = {at: time for at, time in old.items() if at < fork} | {at: 2_000 + at for at in theirs if at >= fork}
    gs = sorted({start, durable} | {one for one in kept if one > start})

    def last(history: dict[int, int], first: int, end: int) -> int | None:
        return next((history[at] for at in sorted(history, reverse=True) if first <= at < end), None)

    def around(lsn: int) -> tuple[int, ...]:
        places = {max(one for one in gs if one <= lsn), min(one for one in gs if one >= lsn)} if lsn >= start else set()
        return tuple(last(old, start, one) or 0 for one in sorted(places))

    again = last(new, confirmed, durable)
    other = compare_histories(Known(IDENTITY, Lsn(durable), around), Lsn(confirmed), again)
    is_same = last(old, start, durable) == last(new, start, durable)
    if (confirmed < start and last(old, start, durable) is None) or is_same:
        assert other is None, "there is nothing to compare, or no difference"
    elif confirmed <= start or confirmed in gs or again is not None:
        assert other is not None
    if other is not None:
        assert isinstance(other, OtherHistory)
        assert other.confirmed == confirmed


def test_who_knows_no_times_compares_no_histories() -> None:
    assert compare_histories(known(100), Lsn(50), 7) is None


def test_another_history_says_what_was_found_and_what_was_expected() -> None:
    mine = Known(IDENTITY, Lsn(100), lambda lsn: (60_000_000 if lsn == 100 else 0,))
    missing, another = (compare_histories(mine, Lsn(50), again) for again in (None, 61_000_001))
    assert missing is not None
    assert "has no commit, and ours was of 1970-01-01 00:01:00+00:00" in missing.reason
    assert another is not None
    assert "another commit, of 1970-01-01 00:01:01.000001+00:00" in another.reason


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (ServerStopping("terminating", sqlstate="57P01"), ServerStopping),
        (ConnectionFault("no room on the disk", sqlstate="53100"), ConnectionFault),
        (AccessRefused("permission denied", sqlstate="42501"), AccessRefused),
        (ServerUnfit("temporary file size exceeds temp_file_limit", sqlstate="53400"), ServerUnfit),
        (SlotLost("publication does not exist", sqlstate="42704"), NotPublished),
        (ServerUnfit("the slot cannot be read any more", sqlstate="55000"), SlotLost),
        (Refusal("invalid memory alloc request size", sqlstate="XX000"), StreamEnded),
    ],
)
def test_a_slot_that_does_not_show_what_it_would_send_says_why(failed: SourceError, kind: type[SourceError]) -> None:
    """As the stream itself would fail there; but what only this question meets keeps its own name."""
    found = history_refusal(failed, "reader")
    assert type(found) is kind
    assert isinstance(found, SourceError)
    assert failed.message in found.message


REFUSING: list[tuple[SlotState | None, dict[str, Any], type[Refusal], str]] = [
    (None, {}, SlotLost, "no such slot"),
    (slot(restart_lsn=None), {}, SlotLost, "max_slot_wal_keep_size"),
    (slot(wal_status="lost"), {}, SlotLost, "max_slot_wal_keep_size"),
    (slot(wal_status="lost", invalidation_reason="idle_timeout"), {}, SlotLost, "idle_replication_slot_timeout"),
    (slot(invalidation_reason="news"), {}, SlotLost, "the server says news"),
    (slot(conflicting=True), {}, SlotLost, "standby"),
    (slot(plugin="test_decoding"), {}, SlotLost, "test_decoding"),
    (slot(plugin=None, database=None), {}, SlotLost, "physical"),
    (slot(database="other"), {}, SlotLost, "'other'"),
    (slot(101), {}, SlotAhead, "0/64 to 0/65"),
    (slot(), {"wal_end": 99}, OtherServer, "set back"),
    (slot(), {"system": "8000"}, OtherServer, "system identifier"),
    (slot(), {"database": "other"}, OtherServer, "database"),
]


@pytest.mark.parametrize(("present", "changed", "error", "reason"), REFUSING)
def test_refusals_say_why(
    present: SlotState | None, changed: dict[str, Any], error: type[Refusal], reason: str
) -> None:
    # A changed publication on top never hides them.
    for publication in (PUBLICATION, PublicationState("p")):
        verdict = judge(known(100), server(present, **{**changed, "publication": publication}))
        assert isinstance(verdict, Lost | AheadGap | OtherSystem)
        refused = refusal(verdict)
        assert type(refused) is error
        assert reason in str(refused)


def test_an_unclaimed_slot_is_refused_as_such() -> None:
    assert type(refusal(Unclaimed(slot()))) is SlotExists


ALTERED: list[tuple[PublicationState, int | None]] = [
    (replace(PUBLICATION, xmin=900), None),
    (replace(PUBLICATION, oid=11), None),
    (PublicationState("p"), None),
    (replace(PUBLICATION, tables={}), 1),
    (replace(PUBLICATION, tables={1: Member(21, 900, "public.t")}), 1),
    (replace(PUBLICATION, tables={**PUBLICATION.tables, 2: Member(22, 900, "public.u")}), 2),
    (replace(PUBLICATION, partitions={"7": {"8": "/8:900"}, "9": {}}), 7),
    (replace(PUBLICATION, partitions={"7": {}, "9": {}}), 7),
    (replace(PUBLICATION, partitions={"7": {"8": "/8:700"}, "9": {"10": "/10:900"}}), 9),
    (replace(PUBLICATION, schemas={5: Member(23, 900, "public")}), None),
]


@pytest.mark.parametrize(("publication", "table"), ALTERED)
@pytest.mark.parametrize("durable", [100, 200])
def test_what_others_altered_is_found_beside_the_position(
    publication: PublicationState, table: int | None, durable: int
) -> None:
    verdict = judge(known(durable), server(slot(100), publication=publication))
    assert isinstance(verdict, PublicationChanged)
    assert [change.table for change in verdict.changes] == [table]
    assert verdict.start == durable


def test_a_renamed_table_is_still_the_same() -> None:
    renamed = replace(PUBLICATION, tables={1: Member(20, 701, "public.renamed")})
    assert judge(known(100), server(slot(100), publication=renamed)) == Resume(Lsn(100))


def test_other_options_of_the_stream_concern_all_tables() -> None:
    verdict = judge(known(100), server(slot(100), options={"proto_version": "2"}))
    assert isinstance(verdict, PublicationChanged)
    assert [change.table for change in verdict.changes] == [None]


@given(switch=st.integers(1, 50), received=st.integers(1, 50), confirmed=st.integers(1, 50))
def test_another_timeline_is_for_the_layers_above(switch: int, received: int, confirmed: int) -> None:
    state = server(slot(confirmed), timeline=2, switch_points={1: Lsn(switch)})
    verdict = judge(known(received), state)
    assert verdict == OtherTimeline(2, Lsn(switch), Lsn(confirmed))
    assert isinstance(verdict, OtherTimeline)
    assert verdict.continues(Lsn(received)) == (confirmed <= received <= switch)


def test_a_timeline_without_a_switch_point_continues_nothing() -> None:
    verdict = judge(known(100), server(slot(100), timeline=2))
    assert isinstance(verdict, OtherTimeline)
    assert not verdict.continues(Lsn(1))


def test_a_history_file_is_read_line_by_line() -> None:
    content = "1\t0/3000148\tno recovery target specified\n\n2\t16/B374D848\tbefore 2026-01-01 00:00:00+00\n"
    assert parse_history(content) == {1: 0x3000148, 2: 0x16B374D848}
    assert parse_history("") == {}
