"""What is old goes, in an order in which no reader is left with a name that leads nowhere.

    1. version records, the oldest first: from then on nobody opens them
    2. views that no kept version shows
    3. files that no kept version has: those that a commit took out of the table, and, once old, those that no commit
       ever named (a task that was run twice, a writer that died)
    4. commits of Delta logs before the last checkpoint that the oldest kept version needs; old cuts

Before 3 go the records of loads that no cut can begin with any more. Only a writer knows which: `lake vacuum` has no
data folder, and takes none. That a load is of no use is asked before the open cut is read, and stays so; a cut that is
decided later is worked on without a log that is over.

Every step may be repeated, and a crash between two leaves too much and never too little. So may two at once: what one
does not find any more, the other has removed.

Invariant: a file goes only if all commits from the oldest that is needed were read, or if it is in none and old.
"""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.disk import LocalDisk, folder_of
from storage.errors import named_faults
from storage.lake.delta_log import DeltaLog, files_at
from storage.lake.errors import LakeDamage, NoVersion
from storage.lake.lake_layout import (
    CUTS,
    DELTA,
    SIDES,
    STAGING,
    VERSIONS,
    VIEWS,
    numbered_path,
    side_folder,
    view_cut,
)
from storage.lake.limits import ORPHAN_AGE_SECONDS_MIN, VERSION_AGE_SECONDS_MIN, VERSIONS_KEPT
from storage.lake.loads import Load, forget_load, read_loads
from storage.lake.next_cut import read_cut
from storage.lake.parquet_files import is_whole
from storage.lake.records import record_numbers
from storage.lake.versions import TableVersion, Version, read_version
from storage.lake.views import shown_cut
from storage.layout import is_temporary

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\..*)?\.parquet")


@dataclass(slots=True)
class Retired:
    """What went."""

    versions: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    orphans: int = 0
    """Files that no commit names, and that are too young to go: somebody may be about to."""


def retire(
    root: Path,
    *,
    now: float,
    kept: int = VERSIONS_KEPT,
    age_seconds: float = VERSION_AGE_SECONDS_MIN,
    orphan_seconds: float = ORPHAN_AGE_SECONDS_MIN,
    is_of_use: Callable[[Load], bool] = lambda _: True,
) -> Retired:
    """Keep the newest versions, and those that are young; remove what only others needed."""
    with folder_of(LocalDisk(root)) as lake, named_faults(str(root)):
        versions, retired = _retire_versions(root, lake, now, kept, age_seconds)
        if versions:
            _retire_views(root, versions, now - age_seconds, now - orphan_seconds)
            _retire_loads(lake, versions[-1], is_of_use)
            _retire_rest(root, lake, versions, now - orphan_seconds, retired)
        return retired


def _retire_versions(
    root: Path, lake: LocalDisk, now: float, kept: int, age_seconds: float
) -> tuple[list[Version], Retired]:
    retired = Retired()
    numbers = record_numbers(lake, VERSIONS)
    for number in numbers[:-kept] if kept else []:
        path = root / numbered_path(VERSIONS, number)
        with contextlib.suppress(FileNotFoundError):
            if now - path.stat().st_mtime < age_seconds:
                break
            path.unlink()
            retired.versions += 1
    if retired.versions:
        lake.sync_folder(VERSIONS)
    found = (read_version(lake, number) for number in record_numbers(lake, VERSIONS))
    return [version for version in found if version is not None], retired


def _retire_loads(lake: LocalDisk, newest: Version, is_of_use: Callable[[Load], bool]) -> None:
    """Records of loads whose logs are gone; those of the newest version's tables are looked at another time."""
    current = {table.log for table in newest.tables}
    gone = [load for log, load in read_loads(lake).items() if log not in current and not is_of_use(load)]
    open_cuts = [read_cut(lake, number) for number in record_numbers(lake, CUTS) if number > newest.number]
    begun = {table.log for cut in open_cuts if cut is not None for table in cut.tables}
    for load in gone:
        if load.log not in begun:
            forget_load(lake, load)


def _retire_rest(root: Path, lake: LocalDisk, versions: list[Version], orphans_before: float, retired: Retired) -> None:
    """Files, commits, cuts, what was staged."""
    newest_log = {table.name: table.log for version in versions for table in version.tables}
    unborn = {
        file.name
        for load in read_loads(lake).values()
        if load.log > newest_log.get(load.name, 0)
        for file in load.files
    }
    for folder, oldest in _tables(root, versions):
        if oldest is None and DeltaLog(folder).latest_cut() > versions[-1].number:
            continue  # its first version is about to be published
        _retire_files(folder, oldest, unborn, orphans_before, retired)
        _retire_commits(folder, oldest, retired)
    for number in record_numbers(lake, CUTS):
        if number < versions[0].number:
            (root / numbered_path(CUTS, number)).unlink(missing_ok=True)
    for path in (root / STAGING).glob("*"):
        if path.name.isdecimal() and int(path.name) <= versions[-1].number:
            shutil.rmtree(path, ignore_errors=True)


def orphans_of(root: Path, table: TableVersion, side: str, loads: Mapping[int, Load]) -> int:
    """Files in a table's folder that no commit names, and none of the lake's loads that waits for its first commit."""
    of_version = table.side(side)
    assert of_version is not None, "the side is there"
    folder = root / side_folder(table.name, table.generation, side)
    commits = _commits(folder).values()
    unborn = {file.name for load in loads.values() if load.log > table.log for file in load.files}
    named = _names(commits) | unborn | set(files_at(folder, of_version.delta))
    return sum(path.name not in named for path in folder.glob("*.parquet"))


def _retire_views(root: Path, versions: list[Version], before: float, unfinished_before: float) -> None:
    """Views of kept versions stay, and the one that is shown, and young ones: somebody may be in them.

    A view that somebody died over holds its files' bytes until it goes.
    """
    wanted = {
        (table.name, side, of_version.cut)
        for version in versions[-1:]
        for table in version.tables
        for side in SIDES
        if (of_version := table.side(side)) is not None
    }
    for folder in (root / VIEWS).glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            if is_temporary(folder.name) and folder.stat().st_ctime < unfinished_before:
                shutil.rmtree(folder, ignore_errors=True)
            for side in SIDES:
                cut = view_cut(folder.name, side)
                if cut is None or (folder.parent.name, side, cut) in wanted:
                    continue
                if shown_cut(root, folder.parent.name, side) != cut and folder.stat().st_ctime < before:
                    shutil.rmtree(folder, ignore_errors=True)


def _tables(root: Path, versions: list[Version]) -> Iterator[tuple[Path, int | None]]:
    """Every table's folder, and the oldest version of its log that is needed; None if none is."""
    oldest: dict[str, int] = {}
    for version in versions:
        for table in version.tables:
            for side in SIDES:
                of_version = table.side(side)
                if of_version is not None:
                    path = side_folder(table.name, table.generation, side)
                    oldest[path] = min(oldest.get(path, of_version.delta), of_version.delta)
    for folder in (root / DELTA).glob("*/*/*"):
        yield folder, oldest.get(str(folder.relative_to(root)))


def _retire_files(folder: Path, oldest: int | None, unborn: set[str], before: float, retired: Retired) -> None:
    commits = _commits(folder)
    if oldest is None:
        kept = set[str]()  # no version has this generation any more, or there was none yet
    else:
        behind = range(oldest, max(commits, default=oldest) + 1)
        if not commits.keys() >= {*behind}:
            return  # somebody else is removing commits, and needs less than this one thought
        try:
            kept = set(files_at(folder, oldest)).union(*(commits[number].added for number in behind))
        except (LakeDamage, NoVersion):
            if oldest in _commits(folder):
                raise
            return
    named = _names(commits.values())
    for path in folder.glob("*.parquet"):
        if path.name in kept or (path.name in unborn and path.name not in named):
            continue
        with contextlib.suppress(FileNotFoundError):
            facts = path.stat()
            if path.name not in named and facts.st_mtime >= before:
                retired.orphans += 1
                continue
            path.unlink()
            retired.files, retired.bytes = retired.files + 1, retired.bytes + facts.st_size


@dataclass(frozen=True, slots=True)
class _Commit:
    """The files that a commit named."""

    added: set[str]
    removed: set[str]


def _commits(folder: Path) -> dict[int, _Commit]:
    """Those of a table's log that are there, by version."""
    found = dict[int, _Commit]()
    for path in sorted((folder / "_delta_log").glob("*.json")):
        if (match := _COMMIT.fullmatch(path.name)) is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            actions = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            found[int(match[1])] = _Commit(
                {action["add"]["path"] for action in actions if "add" in action},
                {action["remove"]["path"] for action in actions if "remove" in action},
            )
    return found


def _names(commits: Iterable[_Commit]) -> set[str]:
    return {name for commit in commits for name in commit.added | commit.removed}


def _retire_commits(folder: Path, oldest: int | None, retired: Retired) -> None:
    log = folder / "_delta_log"
    checkpoints = [
        int(match[1])
        for path in log.glob("*.parquet")
        if (match := _CHECKPOINT.fullmatch(path.name)) and is_whole(path)
    ]
    needed = max((number for number in checkpoints if oldest is not None and number <= oldest), default=None)
    if needed is None:
        return
    for path in log.iterdir():
        match = _COMMIT.fullmatch(path.name) or _CHECKPOINT.fullmatch(path.name)
        if match is not None and int(match[1]) < needed:
            path.unlink(missing_ok=True)
            retired.commits += 1
