"""Who keeps the slot's WAL: each case that an operator meets at night gets its keeper, and what frees it."""

from dataclasses import replace
from typing import Any

import pytest

from cdc.limits import SLOT_CALM_BYTES
from cdc.source.holders import Holder as Session
from cdc.source.lsn import Lsn
from cdc.status.custody import Custody, custody_of
from cdc.status.slot_cost import SlotLook
from cdc.status.words import insurance_words
from flush_tracker.explanation import Explanation, Hold, Holder, PendingTransaction
from flush_tracker.stream import Position
from storage.offset import LogOffset
from tests.unit.test_checks import SLOT

MUCH = 10 * SLOT_CALM_BYTES
END = 100 * SLOT_CALM_BYTES
OPEN = Session(42, "report", "ann", "idle in transaction", 7200.0)


def look(kept: int, unconfirmed: int, oldest: Session | None = None, **slot: Any) -> SlotLook:
    state = replace(SLOT, restart_lsn=Lsn(END - kept), confirmed_flush_lsn=Lsn(END - unconfirmed), active_pid=7)
    return SlotLook(0, Lsn(END), replace(state, **slot), oldest)


def explained(hold: Hold) -> Explanation:
    holder = Holder(3, PendingTransaction(LogOffset(2000, 3), 0), 0, 60.0, 1, None) if hold is Hold.ROWS else None
    return Explanation(Position(1, 0), Position(2, 0), hold, holder, None, 1)


@pytest.mark.parametrize(
    ("seen", "hold", "name", "holder", "freed_by"),
    [
        (look(MUCH, MUCH, active_pid=None), Hold.NOTHING, None, "no process reads", "pg_drop_replication_slot('"),
        (look(MUCH, 100, OPEN), Hold.NOTHING, None, "process 42 (report) of ann", "pg_terminate_backend(42)"),
        (look(MUCH, 100), Hold.NOTHING, None, "that has ended since", "next checkpoint"),
        (look(MUCH, MUCH), Hold.NOTHING, None, "640.0 MB are still to be read", "time"),
        (look(MUCH, MUCH), Hold.OPEN_TRANSACTION, None, "large transaction", "the commit of the transaction"),
        (look(MUCH, MUCH), Hold.ROWS, "orders", "the shape orders", "`shapelog shapes remove orders`"),
        (look(MUCH, MUCH, invalidation_reason="wal_removed"), Hold.ROWS, "orders", "lost", "`shapelog recover`"),
    ],
)
def test_each_case_has_its_keeper(seen: SlotLook, hold: Hold, name: str | None, holder: str, freed_by: str) -> None:
    found = custody_of(seen, explained(hold), name)
    assert found is not None
    assert holder in found.holder
    assert freed_by in found.freed_by


def test_a_slot_that_keeps_little_has_none() -> None:
    assert custody_of(look(SLOT_CALM_BYTES - 1, 0, active_pid=None), explained(Hold.ROWS)) is None
    assert custody_of(None, None) is None
    assert custody_of(SlotLook(0, Lsn(END), None), None) is None


def test_whose_memory_is_not_ours_is_asked() -> None:
    assert custody_of(look(MUCH, MUCH), None) == Custody(
        "process 7, which reads the slot", "ask it why: `shapelog status --url URL`"
    )


def test_words_of_insurance() -> None:
    facts = {"used_percent": 76.5, "budget_bytes": 6 << 30, "budget_is_own": False, "does": "no snapshot begins"}
    said = insurance_words(facts | {"ends_nobody_because": None})
    assert said == "76.5 % of the WAL budget of 6.0 GB (max_slot_wal_keep_size) is used: no snapshot begins"
    said = insurance_words(facts | {"budget_is_own": True, "ends_nobody_because": "the disk is at fault"})
    assert said.endswith("(--wal-budget) is used: no snapshot begins; no shape ends now: the disk is at fault")
