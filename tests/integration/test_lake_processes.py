"""Materializers as processes: killed at every point and at random times, and two at once, on one lake."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.disk import LocalDisk
from storage.lake.lake_layout import SIDES
from storage.lake.lake_reader import open_lake
from storage.lake.loads import read_loads
from storage.lake.retire import orphans_of
from tests.lake_equality import check_made_as_by_one
from tests.lakes import POINTS, Lakes
from tests.tree import ROOT
from tests.waiting import until

STEP_SECONDS = 60.0


@contextmanager
def process(lakes: Lakes, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.lake_process", str(lakes.data), str(lakes.root), *more]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path, accounts=30)


def played(lakes: Lakes) -> int:
    lakes.bank.play(8)
    return lakes.bank.confirm()


def lsn_of(lakes: Lakes) -> int:
    numbers = open_lake(lakes.root).numbers() if (lakes.root / "lake.json").exists() else []
    return lakes.latest().lsn if numbers else 0


def test_killed_at_each_point_in_turn(lakes: Lakes) -> None:
    """One lake through all kills: each process dies somewhere else, the next one goes on."""
    for point in POINTS:
        played(lakes)
        if point in {"before a load", "after a load"}:
            name = f"more-{len(lakes.bank.logs)}"
            lakes.bank.open_table(name, lakes.bank.accounts(name, 5))
            lakes.bank.confirm()
        with process(lakes, point, "1") as started:
            assert started.wait(STEP_SECONDS) == -signal.SIGKILL, point
    lsn = played(lakes)
    with process(lakes) as started:
        assert started.stdout is not None
        while lsn_of(lakes) < lsn:
            assert started.stdout.readline(), started.stderr and started.stderr.read()
    lakes.check_all()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nemesis)])
def test_two_at_once_and_kills_at_random_times(lakes: Lakes, seed: int) -> None:
    """Both converge, no cut is skipped, every version is right, and no file is in a table twice."""
    chance = random.Random(seed)
    for _ in range(3):
        with process(lakes) as first, process(lakes) as second:
            for _ in range(chance.randrange(2, 6)):
                lsn = played(lakes)
            until(lambda lsn=lsn: lsn_of(lakes) >= lsn, f"the lake to be at {lsn}", STEP_SECONDS)  # type: ignore[misc]  # a lambda's default
            chance.choice([first, second]).kill()
            lsn = played(lakes)
            until(lambda lsn=lsn: lsn_of(lakes) >= lsn, f"the lake to be at {lsn}", STEP_SECONDS)  # type: ignore[misc]  # a lambda's default
    lakes.writer().show()
    lakes.check_all()
    numbers = open_lake(lakes.root).numbers()
    assert numbers == [*range(1, len(numbers) + 1)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "seconds"), [(1, 30.0), pytest.param(2, 120.0, marks=pytest.mark.nemesis)])
def test_a_race_with_pauses_makes_what_one_writer_makes(
    lakes: Lakes, tmp_path: Path, seed: int, seconds: float
) -> None:
    """Both stay behind now and then, at a point or anywhere; one of them always gets on, and no file is left over."""
    chance, end = random.Random(seed), time.monotonic() + seconds
    with process(lakes, "pauses", str(seed)) as first, process(lakes, "pauses", str(seed + 100)) as second:
        while time.monotonic() < end:
            stopped = chance.choice([first, second, None])
            if stopped is not None:
                os.kill(stopped.pid, signal.SIGSTOP)
            lsn = played(lakes)
            until(lambda lsn=lsn: lsn_of(lakes) >= lsn, f"the lake to be at {lsn}", STEP_SECONDS)  # type: ignore[misc]  # a lambda's default
            if stopped is not None:
                os.kill(stopped.pid, signal.SIGCONT)
        until(lambda: not orphans(lakes), "the slower one to remove what it wrote in vain", STEP_SECONDS)
        assert (first.poll(), second.poll()) == (None, None)
    lakes.writer().show()
    lakes.check_all()
    numbers = open_lake(lakes.root).numbers()
    assert numbers == [*range(1, len(numbers) + 1)]
    check_made_as_by_one(lakes, tmp_path / "alone")


def orphans(lakes: Lakes) -> set[str]:
    """Files that no commit names, and no load: bases that were rewritten since."""
    version = lakes.latest()
    tables = [version.table(name) for name in version.tables]
    loads = read_loads(LocalDisk(lakes.root))
    loaded = {file.name for load in loads.values() for file in load.files}
    counted = sum(orphans_of(lakes.root, table.facts, side, loads) for table in tables for side in SIDES)
    return (lakes.files_on_disk() - named_ever(lakes) - loaded) if counted else set()


def named_ever(lakes: Lakes) -> set[str]:
    """Files of any version; all of them are there yet."""
    lake = open_lake(lakes.root)
    return {
        Path(path).name
        for version in lake.versions()
        for name in version.tables
        for side in SIDES
        for path in version.table(name).files(side)
    }
