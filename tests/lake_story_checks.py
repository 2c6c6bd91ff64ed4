"""What must be true of a lake at the end of a chapter of `tests.lake_stories`, when a writer has just brought it level.

a version's states are the bank's rows of its G, and its tables those that the bank had; engines count the same rows
a history is in the order of its log, each change once, none missing but where a row of kind `refetch` says so; there is
one where another log took the table over, and nowhere else
the newest version has what the bank has now
the paths below `tables/` lead to the files of the newest version, and to no table that it does not have
"""

from itertools import pairwise
from pathlib import Path

import duckdb

from storage.lake.lake_layout import SIDES
from storage.lake.lake_reader import LakeTable, LakeVersion, open_lake
from storage.layout import is_temporary
from tests.bank import as_texts
from tests.lakes import Lakes

Change = tuple[int, int, str]
Columns = dict[int, dict[str, list[str]]]
"""What columns the bank's tables had at each G."""


def check_lake(lakes: Lakes, columns: Columns) -> None:
    """Everything, of every version."""
    versions = [*open_lake(lakes.root).versions()]
    for version in versions:
        check_version(lakes, version, columns[version.lsn])
    for newer, older in pairwise(versions):
        check_holes(older, newer)
    newest = lakes.latest()
    assert newest.lsn <= lakes.bank.lsn
    assert lakes.bank.history[newest.lsn] == lakes.bank.rows, "the lake is not level"
    check_views(lakes.root, newest)


def check_version(lakes: Lakes, version: LakeVersion, columns: dict[str, list[str]]) -> None:
    """Its rows, and its histories."""
    expected = lakes.bank.history[version.lsn]
    assert set(version.tables) == set(expected)
    for name in version.tables:
        table, where = version.table(name), f"{name} in version {version.number}"
        assert as_texts(table.arrow(), dict.fromkeys(columns[name], (0, 0))) == expected[name], where
        files = table.files()
        counted = duckdb.read_parquet(files).count("*").fetchall()[0][0] if files else 0
        assert counted == len(expected[name]), where
        if table.facts.changes is not None:
            check_history(table, [change for change in lakes.bank.changes[name] if change[0] < version.lsn], where)


def check_holes(older: LakeVersion, newer: LakeVersion) -> None:
    """A hole is told where the log is another one and the history goes on."""
    for name in {*older.tables} & {*newer.tables}:
        before, after = older.table(name), newer.table(name)
        if after.facts.changes is not None and before.facts.generation == after.facts.generation:
            is_taken_over = before.facts.log != after.facts.log
            assert holes(after) - holes(before) == is_taken_over, f"{name} in version {newer.number}"


def holes(table: LakeTable) -> int:
    kinds: list[str] = table.arrow("changes").column("_kind").to_pylist()
    return kinds.count("refetch")


def check_history(table: LakeTable, happened: list[Change], where: str) -> None:
    """What is told between two holes happened like that; only before a hole may something be missing."""
    rows = table.arrow("changes").select(["_tx", "_op", "_kind"]).to_pylist()
    told: list[Change] = [(row["_tx"], row["_op"], row["_kind"]) for row in rows]
    assert [tx for tx, _, _ in told] == sorted(tx for tx, _, _ in told), where
    runs: list[list[Change]] = [[]]
    for change in told:
        if change[2] == "refetch":
            runs.append([])
        else:
            runs[-1].append(change)
    end = len(happened)
    for place, run in reversed([*enumerate(runs)]):
        if run:
            begin = end - len(run) if place == len(runs) - 1 else happened.index(run[0])
            assert happened[begin : begin + len(run)] == run, where
            assert begin + len(run) <= end, where
            end = begin


def check_views(root: Path, newest: LakeVersion) -> None:
    """Plain paths have the newest version's files, no others."""
    shown = {
        path.relative_to(root / "tables").as_posix(): sorted(file.name for file in path.resolve().iterdir())
        for path in (root / "tables").glob("*/*")
        if not is_temporary(path.name)
    }
    tables = [newest.table(name) for name in newest.tables]
    assert shown == {
        f"{table.name}/{side}": sorted(Path(file).name for file in table.files(side))
        for table in tables
        for side in SIDES
        if table.facts.side(side) is not None
    }
