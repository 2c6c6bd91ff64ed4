"""What is refused before a lake is made or written: names of shapes that are not there, folders that will not do.

A name is kept by a lake for ever, so one that was mistyped would be waited for in silence.
"""

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from storage.catalog import CatalogState
from storage.catalog_records import Life
from storage.lake.cuts import REMOVED
from storage.lake.errors import MixedFolders, NoDataFolder, NotALake, UnknownShape
from storage.lake.lake_layout import SETTINGS
from storage.lake.limits import FILES_TOLD_MAX, SHAPES_TOLD_MAX
from storage.layout import CATALOG, PROGRESS

MOUNTED: Final = "lost+found"
"""What an empty disk has in it."""


def refuse_mixed_folders(data: Path, lake: Path) -> None:
    """Raise `MixedFolders` unless the two lie side by side, wherever links lead."""
    data, lake = data.resolve(), lake.resolve()
    if lake == data:
        message = "the lake's folder is the data folder itself"
    elif lake.is_relative_to(data):
        message = "the lake's folder lies inside the data folder"
    elif data.is_relative_to(lake):
        message = "the data folder lies inside the lake's folder"
    else:
        return
    raise MixedFolders(message, lake=str(lake), data_dir=str(data))


def refuse_no_folders(data: Path, lake: Path) -> None:
    """Raise `NoDataFolder` unless there is something to begin with, and `NotALake` for a file."""
    names = {path.name.partition(".")[0] for path in data.iterdir()} if data.is_dir() else set()
    if not {CATALOG, PROGRESS} <= names:
        what = "a file" if data.is_file() else "no data folder: nothing was confirmed in it yet"
        raise NoDataFolder(f"this is {what if data.exists() else 'no folder at all'}", path=str(data))
    if lake.exists() and not lake.is_dir():
        raise NotALake("the lake's folder is a file", folder=str(lake))


def refuse_other_files(lake: Path) -> None:
    """Raise `NotALake` for a folder in which no lake was begun and that has something in it.

    What a lake has is removed in time by where it lies: `delta/a/b/*.parquet` may have been somebody's own.
    """
    names = {path.name for path in lake.iterdir()}
    foreign = sorted(name for name in names if not (name.startswith((".", SETTINGS)) or name == MOUNTED))
    if foreign and SETTINGS not in names:  # a twin may have made it a moment ago
        raise NotALake("the folder has files, and no lake", folder=str(lake), files=foreign[:FILES_TOLD_MAX])


def refuse_unknown_shapes(wanted: Iterable[str], catalog: CatalogState, tables: Collection[str] = ()) -> None:
    """Raise `UnknownShape` for a name that no shape has, and that no table of the lake ever had."""
    there = {shape.name for shape in catalog.shapes.values() if (shape.life, shape.reason) != (Life.ENDED, REMOVED)}
    known = sorted(name for name in there if name)
    for name in wanted:
        if name not in there and name not in tables:
            raise unknown_shape(f"the data folder has no shape with the name {name!r}", name, known)


def unknown_shape(message: str, name: str, known: Collection[str]) -> UnknownShape:
    """The error, with the name that may have been meant, and some that are there."""
    near = difflib.get_close_matches(name, known, 1)
    told = f"{message}; did you mean {near[0]!r}?" if near else message
    shown = sorted(known)[:SHAPES_TOLD_MAX]
    more = {"and_more": len(known) - len(shown)} if len(known) > len(shown) else {}
    return UnknownShape(told, shapes=shown, **more)
