"""`materialize --once`: what would pass is tried again, a few times; what would not ends it, with its own error."""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from storage.errors import SharedDiskFault, StorageError
from storage.lake.errors import CommitUnknown, LaggingWriter, LakeDamage, TaskFailed
from storage.lake.lake_layout import CUTS, numbered_path
from storage.lake.limits import ONCE_ATTEMPTS_MAX
from storage.lake.materialize import Order, Told, materialize
from storage.lake.metrics import LakeMetric
from storage.lake.spark import run_here
from storage.lake.tasks import Done, Work
from tests.lakes import POINTS, Lakes


class Impatient(Event):
    """Nobody stops it, and its pauses take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return self.is_set()


@dataclass
class Once:
    """Runs it, and keeps what it said."""

    lakes: Lakes
    stop: Impatient = field(default_factory=Impatient)
    told: list[Told] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.order = Order(self.lakes.data, self.lakes.root, stop=self.stop)

    def run(
        self,
        at: Callable[[str], None] = lambda _: None,
        run: Callable[[Sequence[Work]], list[Done]] = run_here,
    ) -> None:
        materialize(self.order, run, self.told.append, at)


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    made = Lakes(tmp_path, accounts=20)
    made.bank.play(10)
    made.bank.confirm()
    return made


@pytest.mark.parametrize("point", POINTS)
def test_a_full_disk_is_waited_for_at_any_point(lakes: Lakes, point: str) -> None:
    once, met = Once(lakes), list[str]()

    def fail_twice(where: str) -> None:
        if where == point and len(met) < 2:
            met.append(where)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    once.run(fail_twice)
    assert 1 <= len(once.stop.pauses) == len(met), "some points are passed once"
    assert lakes.latest().lsn == lakes.bank.lsn
    assert once.order.metrics.counters[LakeMetric.FAULTS, SharedDiskFault.code] == len(met)
    lakes.check_all()


def test_a_task_that_dies_is_tried_again(lakes: Lakes) -> None:
    once, jobs = Once(lakes), list[int]()

    def dies_at_first(work: Sequence[Work]) -> list[Done]:
        jobs.append(len(work))
        if len(jobs) == 1:
            raise TaskFailed("an executor was killed")
        return run_here(work)

    once.run(run=dies_at_first)
    assert once.stop.pauses
    lakes.check_all()


@pytest.mark.parametrize("error", [CommitUnknown, TaskFailed, SharedDiskFault])
def test_a_fault_that_stays_ends_it_with_its_code(lakes: Lakes, error: type[StorageError]) -> None:
    once, tries = Once(lakes), list[str]()

    def fail(where: str) -> None:
        if where == "before the commits":
            tries.append(where)
            raise error("it stays")

    with pytest.raises(error):
        once.run(fail)
    assert len(tries) == ONCE_ATTEMPTS_MAX
    assert sum(pause or 0 for pause in once.stop.pauses) > 10, "time enough for what passes"
    assert sorted(once.stop.pauses, key=lambda pause: pause or 0) == once.stop.pauses
    once.run()
    lakes.check_all()


def test_a_fault_that_cannot_pass_is_not_tried_again(lakes: Lakes) -> None:
    once, tries = Once(lakes), list[str]()

    def fail(where: str) -> None:
        if where == "before the work":
            tries.append(where)
            raise LakeDamage("a file is gone")

    with pytest.raises(LakeDamage):
        once.run(fail)
    assert len(tries) == 1
    assert once.stop.pauses == []


def test_who_is_told_to_stop_does_not_wait(lakes: Lakes) -> None:
    once, tries = Once(lakes), list[str]()

    def fail(where: str) -> None:
        if where == "before the commits":
            tries.append(where)
            once.stop.set()
            raise TaskFailed("an executor was killed")

    with pytest.raises(TaskFailed):
        once.run(fail)
    assert len(tries) == 1


@pytest.mark.parametrize("lead", [2, 3])
def test_a_lost_race_is_no_end(lakes: Lakes, lead: int) -> None:
    """Others were faster, and G has moved since: there is more to do."""
    once, met = Once(lakes), list[str]()
    twin = lakes.writer()

    def overtake(where: str) -> None:
        if where == "before the commits" and not met:
            met.append(where)
            for _ in range(lead):
                twin.step()
                lakes.bank.play(5)
                lakes.bank.confirm()

    once.run(overtake)
    assert met
    assert lakes.latest().lsn == lakes.bank.lsn
    lakes.check_all()


def test_who_decided_first_had_seen_less(lakes: Lakes) -> None:
    """The version that was asked for is the one behind it."""
    once, cut, kept = Once(lakes), lakes.root / numbered_path(CUTS, 1), lakes.root / "kept"

    def kill(where: str) -> None:
        if where == "after the cut":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lakes.writer(kill).step()
    cut.rename(kept)
    lakes.bank.play(10)
    lakes.bank.confirm()

    def decide(where: str) -> None:
        if where == "before the cut" and kept.exists():
            kept.rename(cut)

    once.run(decide)
    assert lakes.latest().number == 2
    assert lakes.latest().lsn == lakes.bank.lsn
    lakes.check_all()


def test_races_that_are_lost_for_ever_end_it(lakes: Lakes) -> None:
    once, twin = Once(lakes), lakes.writer()

    def overtake(where: str) -> None:
        if where == "before the commits":
            for _ in range(2):
                twin.step(even_if_quiet=True)
                lakes.bank.play(5)
                lakes.bank.confirm()

    with pytest.raises(LaggingWriter):
        once.run(overtake)
    lakes.check_all()
