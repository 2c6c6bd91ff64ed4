"""What a step relies on is on the disk before that: a power cut leaves no commit without its files, nor a version.

Bytes and names that nobody synced are what a power cut may take. So each sync is noted: of a file its bytes, of a
folder the names that it has at that moment.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.lake.delta_log import DeltaLog
from tests.bank import COLUMNS
from tests.lakes import Lakes


class Synced:
    """What a power cut would leave."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._bytes: dict[int, int] = {}
        self._names: dict[int, set[str]] = {}
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._noted(getattr(os, name)))

    def _noted(self, sync: Any) -> Any:
        def note(descriptor: int) -> None:
            sync(descriptor)
            path, facts = Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor)
            if path.is_dir():
                self._names[facts.st_ino] = {one.name for one in path.iterdir()}
            else:
                self._bytes[facts.st_ino] = facts.st_size

        return note

    def lacks(self, path: Path, root: Path) -> bool:
        """Whether the file could be without its bytes, or gone with a folder around it, up to the root."""
        facts, around = path.stat(), [path, *path.parents][: len(path.relative_to(root).parts)]
        is_named = all(one.name in self._names.get(one.parent.stat().st_ino, ()) for one in around)
        return not is_named or self._bytes.get(facts.st_ino) != facts.st_size


@pytest.fixture
def lakes(tmp_path: Path) -> Lakes:
    return Lakes(tmp_path.resolve(), accounts=20)


def records(lakes: Lakes, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (lakes.root / folder).glob("*.json")


def commits(lakes: Lakes) -> Iterator[Path]:
    return (lakes.root / "delta").rglob("_delta_log/*.json")


def shown(lakes: Lakes) -> Iterator[Path]:
    return (lakes.root / "views").rglob("*.parquet")


def test_nothing_is_relied_on_before_it_is_on_the_disk(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of first loads, of rows that come, of a successor, of a compaction: at each commit, and behind it."""
    synced, write, bank = Synced(monkeypatch), DeltaLog._write, lakes.bank
    seen = {"files": 0, "records": 0, "commits": 0, "views": 0}

    def check(what: str, paths: Iterator[Path]) -> None:
        for path in paths:
            seen[what] += 1
            root = path.parent if what == "views" else lakes.root  # a view that is gone is made again, a torn one not
            assert not synced.lacks(path, root), f"a power cut may take {path}"

    def checked(log: DeltaLog, handle: Any, schema: Any, new: Any, *more: Any) -> None:
        check("files", (log.folder / file.name for file in new))
        check("records", records(lakes, "loads", "cuts"))
        write(log, handle, schema, new, *more)

    def at(where: str) -> None:
        if where == "before the cut":
            check("records", records(lakes, "loads", "versions"))
        if where == "before the work":
            check("records", records(lakes, "cuts"))
        if where == "after a commit":
            check("commits", commits(lakes))
        if where == "after the version":
            check("records", records(lakes, "versions"))
        if where == "after the views":
            check("views", shown(lakes))

    monkeypatch.setattr(DeltaLog, "_write", checked)
    writer = lakes.writer(at)
    for _ in range(3):
        bank.play(10)
        bank.confirm()
        assert writer.step().version is not None
    old = bank.end_table("savings", "altered")
    bank.succeed_table("savings", old, COLUMNS | {"branch": (25, -1)}, bank.accounts("savings", 8))
    bank.confirm()
    assert writer.step().version is not None
    assert writer.compact().version is not None
    assert all(seen.values()), "there was something of each kind"
