"""A day of small batches as a writer works it: few files in each table at every moment, and few of everything else."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from storage.disk import LocalDisk
from storage.lake.limits import CHECKPOINT_COMMITS
from storage.lake.retire import retire
from storage.rows import Kind
from tests.lakes import Lakes

FILES_MAX = 64
"""For each table, whatever comes."""

KEPT = 20
"""Versions. A follower looks as often for old ones."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("batches", [60, pytest.param(1000, marks=pytest.mark.nemesis)])
def test_files_stay_few(tmp_path: Path, batches: int) -> None:
    """Rows come, change and go at random, a few with each version; old versions are retired meanwhile."""
    lakes, chance = Lakes(tmp_path, accounts=300), random.Random(1)
    writer, most = lakes.writer(), Counter[str]()
    lakes.bank.confirm()
    writer.step()
    for number in range(batches):
        for name in ("checking", "savings"):
            keys = chance.sample(sorted(lakes.bank.rows[name]), 3)
            lakes.bank.commit(
                (name, Kind.UPDATE, {"id": keys[0], "note": f"note {number}"}),
                (name, Kind.DELETE, {"id": keys[1]}),
                (name, Kind.INSERT, lakes.bank.account(name, str(10_000 + chance.randrange(10**6)))),
            )
        lakes.bank.confirm()
        step = writer.step()
        assert step.version is not None
        for table in map(lakes.latest().table, ("checking", "savings")):
            for side in ("state", "changes"):
                most[side] = max(most[side], len(table.files(side)))
        if number % KEPT == 0:
            retire(lakes.root, now=time.time(), kept=KEPT, age_seconds=0.0, orphan_seconds=0.0)
            lakes.check()
    retire(lakes.root, now=time.time() + 1, kept=KEPT, age_seconds=0.0, orphan_seconds=0.0)
    lakes.check_all()
    assert most["state"] == 1
    assert 8 <= most["changes"] <= FILES_MAX, "they are joined, and not one by one"
    versions = KEPT
    folders = [*(lakes.root / "delta").glob("*/*/*")]
    assert len(folders) == 4
    for folder in folders:
        held = len([*folder.glob("*.parquet")])
        assert held <= FILES_MAX + 2 * versions, "those of the kept versions"
        assert len([*(folder / "_delta_log").iterdir()]) <= 2 * (versions + 2 * CHECKPOINT_COMMITS)
    assert len([*(lakes.root / "views").glob("*/*")]) <= 4 + 4 * versions
    for name, bound in {"versions": versions, "cuts": versions + 1, "loads": 2, "staging": 1}.items():
        assert len([*(lakes.root / name).glob("*")]) <= bound, name


def test_a_step_reads_what_came_and_not_all_that_there_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that nobody made shorter: the thousandth step of a day costs what the first did."""
    lakes, counted, read = Lakes(tmp_path, accounts=20), Counter[str](), LocalDisk.read
    lakes.end_segments(1 << 20)
    lakes.bank.confirm()
    writer = lakes.writer()

    def counting(disk: LocalDisk, path: str, position: int, size: int) -> bytes:
        counted["reads"] += 1
        return read(disk, path, position, size)

    def reads_of_a_step(blocks: int) -> int:
        for _ in range(blocks):
            lakes.bank.commit(("savings", Kind.UPDATE, {"id": "1", "note": "x"}))
            lakes.bank.store.flush_all()
        lakes.bank.confirm()
        counted.clear()
        assert writer.step().version is not None
        return counted["reads"]

    monkeypatch.setattr(LocalDisk, "read", counting)
    reads_of_a_step(5)
    first = reads_of_a_step(5)
    reads_of_a_step(300)
    assert reads_of_a_step(5) <= first + 10
    lakes.check()
