"""A lake and the compaction of logs: what was folded before the lake had it is missed aloud, and before any work."""

from pathlib import Path

import pytest

from storage.clocks import Clocks
from storage.compaction import CompactionOptions, compact
from storage.flush_control import FlushOptions
from storage.lake.errors import LogGap
from storage.lake.lake_reader import open_lake
from storage.lake.limits import LEASE_SECONDS
from storage.rows import Kind
from storage.store import Store, StoreOptions
from tests.lakes import Lakes

AWAY = int(3 * LEASE_SECONDS * 1_000_000)
"""Leases that were taken at the writers' time are over by then."""


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    """Every flush is a segment of its own, so that there is something to fold soon."""
    made = Lakes(tmp_path, accounts=5)
    options = StoreOptions(flush=FlushOptions(own_segment_bytes=1, segment_bytes_max=1))
    made.bank.store = Store(made.bank.disk, Clocks(lambda: 0.0), options, confirmed_tx=0)
    return made


def update(lakes: Lakes, times: int) -> int:
    """The same row again and again."""
    for number in range(times):
        lakes.bank.commit(("savings", Kind.UPDATE, {"id": "1", "note": f"note {number}"}))
        lakes.bank.store.flush_all()
    return lakes.bank.confirm()


def fold(lakes: Lakes, now: int) -> bool:
    log = lakes.bank.logs["savings"]
    return compact(lakes.bank.store, log, now=now, options=CompactionOptions(segments_kept=1)) is not None


def test_changes_that_were_folded_are_missed_before_a_cut_is_decided(lakes: Lakes) -> None:
    update(lakes, 2)
    lakes.writer().step()
    update(lakes, 8)
    assert fold(lakes, AWAY), "nobody leased the rows any more"
    writer = lakes.writer()
    with pytest.raises(LogGap, match=r"'savings'.* folded") as caught:
        writer.step()
    assert {"after", "upto", "folded"} <= set(caught.value.facts)
    lake = open_lake(lakes.root)
    assert (lake.latest().number, lake.open_cut()) == (1, None)
    lakes.check()


def test_what_a_lake_leases_stays_as_it_is(lakes: Lakes) -> None:
    update(lakes, 6)
    lakes.writer().step()
    update(lakes, 6)
    fold(lakes, now=2)
    assert lakes.writer().step().version is not None
    lakes.check_all()


def test_rows_that_are_folded_while_they_are_read_stop_the_cut(lakes: Lakes) -> None:
    update(lakes, 2)
    lakes.writer().step()
    update(lakes, 8)

    def at(where: str) -> None:
        if where == "before the work":
            assert fold(lakes, AWAY)

    with pytest.raises(LogGap, match="folded"):
        lakes.writer(at).step()
    assert lakes.latest().number == 1
    lakes.check_all()
