"""Courses of events by chance: writers that die, overtake each other and join files, tables that come and go.

What a story is, and how to repeat one, is in `tests.lake_stories`; what must be true, in `tests.lake_story_checks`.
Stories are worth what they find: each of the defects below is put into the lake, and one of a few stories must fail.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage.disk import Disk
from storage.lake import retire, writer
from storage.lake.cuts import TableCut
from storage.lake.delta_log import Committed, DeltaLog
from storage.lake.records import create_once
from storage.lake.table_step import TableStep
from storage.lake.tasks import Work
from storage.lake.versions import TableVersion, Version, publish
from storage.lake.writer import LakeWriter
from tests.lake_stories import Story

pytestmark = pytest.mark.timeout(300)

CHAPTERS = 8
STORIES_MAX = 5
"""One of so many stories finds each defect."""

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_lake_agrees_with_the_bank_whatever_happens(tmp_path: Path, seed: int) -> None:
    Story(tmp_path, seed).play(CHAPTERS)


@pytest.mark.nemesis
@pytest.mark.parametrize("seed", range(100, 160))
def test_lakes_agree_with_the_bank_in_long_stories(tmp_path: Path, seed: int) -> None:
    Story(tmp_path, seed).play()


def write_unasked(
    self: DeltaLog, cut: int, schema: Any, new: Any, gone: Any, facts: dict[str, Any], **_: int
) -> Committed:
    """A commit without a question before it."""
    handle = self.open()
    assert handle is not None, "it was created"
    self._write(handle, schema, new, gone, {**facts, "cut": cut})
    self._handle = None
    committed = self.known(cut)
    assert committed is not None, "it was just made"
    return committed


def appends_without_comparing(patch: Patch) -> None:
    """What a table was like when the work began is not asked again (A10)."""
    patch.setattr(DeltaLog, "commit", write_unasked)


def takes_a_replay_for_news(patch: Patch) -> None:
    """A cut that a table has already is worked on and committed once more."""
    adopted = DeltaLog.adopted

    def forgetful(self: DeltaLog, cut: int) -> None:
        adopted(self, cut)  # who is further is still noticed

    patch.setattr(DeltaLog, "adopted", forgetful)
    patch.setattr(DeltaLog, "commit", write_unasked)


def takes_half_a_table_for_all(patch: Patch) -> None:
    """Whoever finds one side of a table at a cut takes the other for committed too."""

    def is_begun(self: TableStep) -> bool:
        return any(log.adopted(self.cut.number) is not None for log in self.sides.values())

    patch.setattr(TableStep, "is_done", is_begun)


def publishes_before_the_commits(patch: Patch) -> None:
    """A version's record is written, and then its tables."""
    work = LakeWriter._work

    def early(self: LakeWriter, steps: list[TableStep], parts: list[TableCut], known: dict[str, TableVersion]) -> None:
        if steps and all(part.name in known for part in parts):
            cut, tables = steps[0].cut, tuple(known[part.name] for part in parts)
            publish(self._lake, Version(cut.number, cut.incarnation, cut.lsn, cut.commit_time, tables), "early")
        work(self, steps, parts, known)

    patch.setattr(LakeWriter, "_work", early)


def decides_a_cut_again(patch: Patch) -> None:
    """A cut's record is replaced: who reads it later works to another end."""

    def create_again(disk: Disk, path: str, facts: dict[str, Any], unique: str) -> bool:
        if disk.exists(path):
            disk.remove(path)
        return create_once(disk, path, facts, unique)

    patch.setattr(writer, "create_once", create_again)


def keeps_no_files_of_older_versions(patch: Patch) -> None:
    """What is removed is what the newest version does without."""
    remove = retire._retire_files

    def careless(folder: Path, oldest: int | None, *rest: Any) -> None:
        newest = DeltaLog(folder).open()
        remove(folder, oldest if oldest is None or newest is None else newest.version(), *rest)

    patch.setattr(retire, "_retire_files", careless)


def joins_twice(patch: Patch) -> None:
    """A run of small files comes into two files."""
    joins = TableStep._joins

    def doubled(self: TableStep) -> list[Work]:
        found = joins(self)
        return [*found, *found[:1]]

    patch.setattr(TableStep, "_joins", doubled)


def tells_of_no_hole(patch: Patch) -> None:
    """A log takes another's place, and the history does not say what is missing."""
    patch.setattr(TableStep, "refetched", None)


DEFECTS: Sequence[tuple[Callable[[Patch], None], int]] = (
    (appends_without_comparing, 3),
    (takes_a_replay_for_news, 9),
    (takes_half_a_table_for_all, 9),
    (publishes_before_the_commits, 1),
    (decides_a_cut_again, 43),
    (keeps_no_files_of_older_versions, 1),
    (joins_twice, 2),
    (tells_of_no_hole, 2),
)
"""Each with the seed of a story that found it: if stories come to be others, one of the next does."""


@pytest.mark.parametrize(("defect", "seed"), DEFECTS, ids=lambda one: getattr(one, "__name__", ""))
def test_stories_notice(tmp_path: Path, monkeypatch: Patch, defect: Callable[[Patch], None], seed: int) -> None:
    defect(monkeypatch)
    with pytest.raises(Exception) as noticed:  # noqa: PT011 - an error of the lake is as good as a wrong row
        play(tmp_path, range(seed, seed + STORIES_MAX))
    assert any("To repeat it" in note for note in noticed.value.__notes__)


def play(folder: Path, seeds: Sequence[int]) -> None:
    for seed in seeds:
        own = folder / str(seed)
        own.mkdir()
        Story(own, seed).play(CHAPTERS)
