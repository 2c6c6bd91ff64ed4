"""The doctor's checks, shown servers that are well and servers that are not."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.checks import CHECKS, is_fit, run_checks
from cdc.source.facts import Facts, Level, Role
from cdc.source.holders import Holder
from cdc.source.limits import SLOT_UNREAD_BYTES
from cdc.source.lsn import Lsn
from cdc.source.publication import Member, PublicationState, TableState
from cdc.source.server_bugs import BUGS, Bug
from cdc.source.slot import SlotState
from tests.tree import ROOT

TABLE = TableState(1, "public", "t", "r", "p", "f", True, 1, schema_oid=9)
SLOT = SlotState("s", "pgoutput", "db", False, None, Lsn(1), Lsn(1), "reserved", None, None, None, None, None)

WELL = Facts(
    version=180_004,
    database="db",
    in_recovery=False,
    settings={
        "wal_level": "logical",
        "max_replication_slots": "10",
        "max_wal_senders": "10",
        "max_slot_wal_keep_size": "100000",
        "wal_sender_timeout": "60000",
        "server_encoding": "UTF8",
    },
    role=Role("r", superuser=False, replication=True, creates_in_database=True, bypasses_row_security=False),
    slots_used=1,
    walsenders_used=0,
    wal_bytes_per_second=1000.0,
    clock_skew_seconds=0.1,
    mode="managed",
    slot_name="s",
    slot=SLOT,
    retained_bytes=1_000_000,
    publication=PublicationState("p", 5, generated="s", tables={1: Member(2, 2, "public.t")}),
    wanted=(TABLE,),
    leaves={},
    owned=frozenset({1}),
    readable=frozenset({1}),
)


def role(**changed: Any) -> Role:
    return replace(WELL.role, **changed)


def setting(**changed: str) -> dict[str, str]:
    return {**WELL.settings, **changed}


def table(**changed: Any) -> tuple[TableState, ...]:
    return (replace(TABLE, **changed),)


def test_a_server_that_is_well_has_nothing_to_mend() -> None:
    findings = run_checks(WELL)
    assert is_fit(findings)
    assert {found.level for found in findings} == {Level.OK, Level.INFO}
    assert [found.check for found in findings if found.level is Level.INFO] == ["slot"]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.source.rpartition("/")[2])
def test_a_known_fault_is_named_with_its_source_from_its_first_release_to_its_last(bug: Bug) -> None:
    assert re.fullmatch(r"https://postgr\.es/c/[0-9a-f]{9,10}", bug.source)
    for major, (bad, good) in bug.releases.items():
        for minor in range(25):
            told = [found.text for found in run_checks(replace(WELL, version=major * 10_000 + minor))]
            assert any(bug.source in text for text in told) == (bad <= minor < good)


ILL: list[tuple[str, Level, dict[str, Any], str]] = [
    ("version", Level.FAULT, {"version": 130_020}, "too old"),
    ("version", Level.WARNING, {"version": 150_012}, "lost when a table is published"),
    ("version", Level.WARNING, {"version": 150_013}, "memory alloc"),
    ("version", Level.WARNING, {"version": 140_005}, "wrong catalog"),
    ("version", Level.WARNING, {"version": 150_007}, "amid a transaction"),
    ("version", Level.WARNING, {"version": 170_005}, "half-written"),
    ("version", Level.INFO, {"version": 190_000}, "newer"),
    ("recovery", Level.FAULT, {"in_recovery": True}, "standby"),
    ("wal_level", Level.FAULT, {"settings": setting(wal_level="replica")}, "restart"),
    ("slots_left", Level.FAULT, {"slot": None, "slots_used": 10}, "all 10"),
    ("walsenders_left", Level.FAULT, {"walsenders_used": 10}, "all 10"),
    ("role", Level.FAULT, {"role": role(replication=False)}, "replicate"),
    ("role", Level.FAULT, {"role": role(creates_in_database=False), "publication": PublicationState("p")}, "create"),
    ("role", Level.FAULT, {"readable": frozenset()}, "read"),
    ("role", Level.WARNING, {"wanted": table(row_security=True)}, "row security"),
    ("tables", Level.FAULT, {"unknown": ("x",)}, "no table x"),
    ("tables", Level.FAULT, {"wanted": table(kind="v")}, "a view"),
    ("tables", Level.FAULT, {"wanted": table(persistence="u")}, "unlogged"),
    ("publication", Level.FAULT, {"mode": "manual", "wanted": table(oid=3, root=3), "owned": frozenset({3})}, "manual"),
    ("publication", Level.FAULT, {"wanted": table(oid=3, root=3)}, "does not own"),
    ("publication", Level.INFO, {"wanted": table(replica_identity="d", toastable_columns=("t",))}, "will be run"),
    ("publication", Level.INFO, {"wanted": table(replica_identity="d", has_key=False)}, "will be run"),
    ("conditions", Level.INFO, {"wanted": table(replica_identity="d")}, 'with the first such shape: "public"."t"'),
    ("conditions", Level.INFO, {"wanted": table(replica_identity="d"), "mode": "manual"}, "for you to set"),
    (
        "publication",
        Level.FAULT,
        {"publication": replace(WELL.publication, tables={1: Member(2, 2, "public.t", row_filter="x")})},
        "filters",
    ),
    ("replica_identity", Level.FAULT, {"wanted": table(replica_identity="n")}, "fails now"),
    ("replica_identity", Level.FAULT, {"wanted": table(replica_identity="d", has_key=False)}, "fails now"),
    ("generated_columns", Level.INFO, {"version": 150_014, "wanted": table(generated_columns=("g",))}, "not be sent"),
    (
        "generated_columns",
        Level.WARNING,
        {"publication": replace(WELL.publication, generated="n"), "wanted": table(generated_columns=("g",))},
        "fails",
    ),
    ("slot", Level.INFO, {"slot": None}, "no slot"),
    ("slot", Level.FAULT, {"slot": replace(SLOT, wal_status="lost")}, "max_slot_wal_keep_size"),
    ("slot", Level.WARNING, {"retained_bytes": SLOT_UNREAD_BYTES}, "keeps 256 MB of WAL, and more as long as nobody"),
    ("wal_room", Level.WARNING, {"wal_bytes_per_second": 1e8}, "would be lost"),
    ("wal_room", Level.INFO, {"settings": setting(max_slot_wal_keep_size="-1")}, "unlimited"),
    ("wal_sender_timeout", Level.WARNING, {"settings": setting(wal_sender_timeout="0")}, "is 0"),
    ("transactions", Level.WARNING, {"transactions": (Holder(7, "app", "u", "idle", 301.0),)}, "process 7 (app)"),
    ("transactions", Level.WARNING, {"transactions": (Holder(None, "", "u", "", 1.0, "g'x"),)}, "g'x"),
    ("encoding", Level.WARNING, {"settings": setting(server_encoding="SQL_ASCII")}, "SQL_ASCII"),
    ("clock", Level.WARNING, {"clock_skew_seconds": -60.0}, "60 s"),
]


@pytest.mark.parametrize(("check", "level", "changed", "text"), ILL)
def test_a_check_sees_its_fault(check: str, level: Level, changed: dict[str, Any], text: str) -> None:
    findings = run_checks(replace(WELL, **changed))
    seen = [found for found in findings if found.check == check and found.level is level]
    assert any(text in found.text for found in seen), findings
    assert is_fit(findings) == all(found.level is not Level.FAULT for found in findings)
    if level is not Level.INFO:
        assert all(found.mend for found in seen)


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_has_been_shown_a_fault(check: str) -> None:
    shown = {name for name, *_ in ILL} | {"room"}  # room is slots_left and walsenders_left
    assert check in shown


@given(
    changes=st.lists(st.sampled_from([changed for _, _, changed, _ in ILL]), max_size=4),
)
def test_faults_together_are_each_found_and_mended(changes: list[dict[str, Any]]) -> None:
    facts = WELL
    for changed in changes:
        facts = replace(facts, **changed)
    findings = run_checks(facts)
    for found in findings:
        assert (found.level is Level.OK) == (not found.text)
        assert found.level in (Level.OK, Level.INFO) or found.mend
        assert all(line.endswith(";") or line.startswith("-- ") for line in found.mend)


def test_a_long_transaction_is_one_that_is_long() -> None:
    short = replace(WELL, transactions=(Holder(7, "app", "u", "active", 5.0),))
    assert is_fit(run_checks(short))
    assert not [found for found in run_checks(short) if found.level is Level.WARNING]


def test_the_statement_for_a_prepared_transaction_is_quoted() -> None:
    assert Holder(None, "", "u", "", 1.0, "g'x").mend == "ROLLBACK PREPARED 'g''x';"


def test_a_slot_of_ours_that_streams_does_not_count_against_us() -> None:
    streaming = replace(WELL, walsenders_used=10, slot=replace(SLOT, active_pid=5))
    assert is_fit(run_checks(streaming))


def test_every_check_is_in_the_document() -> None:
    text = (ROOT / Path("docs/doctor.md")).read_text("utf-8")
    checks = {name for name, *_ in ILL} | CHECKS.keys() - {"room"}
    assert [check for check in sorted(checks) if f"`{check}`" not in text] == []
