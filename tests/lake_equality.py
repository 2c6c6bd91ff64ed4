"""Two lakes of one log: whether they are made of the same, whoever made them and wherever.

Cuts say what each version is, so a single writer that finishes the same cuts in this process, without Spark, makes
what there is to compare with: table by table and file by file, the same ranges of offsets and cuts in the names, and
the same rows in the same order.
"""

import hashlib
import shutil
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from storage.lake.lake_layout import CUTS, SIDES
from storage.lake.lake_reader import open_lake
from tests.lakes import Lakes


def check_made_as_by_one(lakes: Lakes, root: Path) -> None:
    """Every version of a lake is what a single writer makes in this folder."""
    alone = made_by_one(lakes, root)
    for number in open_lake(lakes.root).numbers():
        made, expected = files_of(lakes.root, number), files_of(alone, number)
        assert made.keys() == expected.keys()
        for table, files in expected.items():
            assert made[table] == files, f"{table} in version {number}"


def made_by_one(lakes: Lakes, root: Path) -> Path:
    """A lake of the same cuts, that a single writer finishes one after the other."""
    root.mkdir()
    shutil.copytree(lakes.root / CUTS, root / CUTS)
    made, lakes.root = lakes.root, root
    try:
        writer = lakes.writer()
        writer._next.decide(None)  # loads what the cuts are made of
        while writer.step().version is not None:
            pass
    finally:
        lakes.root = made
    return root


def files_of(root: Path, number: int) -> dict[tuple[str, str], list[tuple[str, int, bytes]]]:
    """What each table is made of: names without what is unique in them, rows, and the rows themselves."""
    version = open_lake(root).version(number)
    return {
        (name, side): sorted(
            (Path(path).name.rpartition("-")[0], *content(path)) for path in version.table(name).files(side)
        )
        for name in version.tables
        for side in SIDES
    }


@cache
def content(path: str) -> tuple[int, bytes]:
    """How many rows, and which, in their order. A file never changes, and is in many versions."""
    rows = pq.read_table(path, partitioning=None).to_pylist()
    return len(rows), hashlib.sha256(repr(rows).encode()).digest()
