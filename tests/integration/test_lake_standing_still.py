"""A writer that follows while nothing comes, or while a table holds it: what it says, and what it still brings in."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.lake import materialize as following
from storage.lake.materialize import Order, materialize
from storage.lake.spark import run_here
from storage.lake.writer import LakeWriter, Step
from tests.lakes import Lakes
from tests.waiting import until

EVERY_SECONDS = 0.02


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path, accounts=10)


@contextmanager
def follower(lakes: Lakes) -> Iterator[Order]:
    order = Order(lakes.data, lakes.root, every_seconds=EVERY_SECONDS)
    thread = threading.Thread(target=materialize, args=(order, run_here, lambda _: None), daemon=True)
    thread.start()
    try:
        yield order
    finally:
        order.stop.set()
        thread.join(30)
        assert not thread.is_alive()


def lsn_of(lakes: Lakes) -> int:
    return lakes.latest().lsn if (lakes.root / "versions").exists() and lakes.lake().numbers() else 0


def test_what_holds_the_lake_is_said(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While G goes on without it; and no more once the table's successor is there."""
    monkeypatch.setattr(following, "STALL_SECONDS", 3 * EVERY_SECONDS)
    bank, said = lakes.bank, "the lake stands still"
    lsn = bank.confirm()
    with follower(lakes), caplog.at_level(logging.WARNING, logger="storage.lake.materialize"):
        until(lambda: lsn_of(lakes) == lsn, "the first version")
        columns, rows = bank.columns["savings"], dict(bank.rows["savings"])
        old = bank.end_table("savings", "columns_changed")
        bank.play(5)
        bank.confirm()
        until(lambda: caplog.text.count("and G does not: savings") >= 2, "its words, again and again")
        assert not any("checking" in line for line in caplog.messages if said in line)
        assert lsn_of(lakes) == lsn
        bank.succeed_table("savings", old, columns, rows)
        lsn = bank.confirm()
        until(lambda: lsn_of(lakes) == lsn, "the version with the successor")
        caplog.clear()
        for _ in range(5):
            bank.play(3)
            lsn = bank.confirm()
            until(lambda lsn=lsn: lsn_of(lakes) == lsn, "the next version")  # type: ignore[misc]  # a lambda's default
        assert "savings" not in caplog.text
    lakes.check()


def test_who_is_overtaken_for_ever_and_sees_nothing_come_says_so(
    lakes: Lakes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the reason: a twin that is ahead brings the lake on, and nobody does here."""
    monkeypatch.setattr(following, "STALL_SECONDS", 3 * EVERY_SECONDS)
    monkeypatch.setattr(LakeWriter, "step", lambda *_, **__: Step(level=7, overtaken="a twin was first"))
    with follower(lakes), caplog.at_level(logging.WARNING, logger="storage.lake.materialize"):
        until(lambda: caplog.text.count("and G does not: a twin was first") >= 2, "its words, again and again")


class Waits(threading.Event):
    """A stop that nobody waits for; for how long somebody would have is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return super().wait(0)


def test_behind_a_cut_that_was_found_there_is_no_pause(lakes: Lakes) -> None:
    """Its writer died a while ago; a table whose log was folded since would be missing until the next look."""

    def kill(where: str) -> None:
        if where == "before the work":
            raise KeyboardInterrupt

    bank, stop = lakes.bank, Waits()
    bank.confirm()
    with pytest.raises(KeyboardInterrupt):
        lakes.writer(kill).step()
    bank.play(3)
    lsn = bank.confirm()
    order = Order(lakes.data, lakes.root, every_seconds=1000, stop=stop)
    materialize(order, run_here, lambda told: stop.set() if told.step.level == lsn else None)
    assert (lsn_of(lakes), stop.seconds[0]) == (lsn, 0.0)
    assert stop.seconds[1] > 0, "and one as usual behind the next"


def test_the_tail_of_a_quiet_shape_comes_without_another_change(lakes: Lakes) -> None:
    """And is safe then, for whoever asks how far the lake is; later moves of G make no version."""
    bank = lakes.bank
    bank.confirm()
    with follower(lakes) as order:
        bank.play(3)
        lsn = bank.confirm()
        until(lambda: lsn_of(lakes) == lsn, "the tail")
        number = lakes.latest().number
        quiet = bank.confirm()
        until(lambda: order.metrics.level == quiet, "a look at the G behind it")
        assert lakes.latest().number == number
    lakes.check_all()
