"""The names in a lake's folder, and what they say.

    lake.json                                  how the lake was made: format, which shapes
    cuts/<n>.json                              what version n will be; decided before the work
    loads/<log>.json                           a log's base as files of a state
    versions/<n>.json                          what version n is; written after all the work
    delta/<table>/<generation>/state, changes  tables with a Delta log; files come and go
    views/<table>/state.<n>, changes.<n>       a version's files, as hard links; never changed
    tables/<table>/state, changes              links to the newest of those: plain Parquet for everybody
    staging/<n>/                               what tasks of cut n hand to each other

Names of tables are the shapes' names, which are fit for files.
"""

import re
from collections.abc import Sequence
from typing import Final

from storage.offset import LogOffset

SETTINGS: Final = "lake.json"
CUTS: Final = "cuts"
LOADS: Final = "loads"
VERSIONS: Final = "versions"
DELTA: Final = "delta"
VIEWS: Final = "views"
TABLES: Final = "tables"
STAGING: Final = "staging"

STATE: Final = "state"
CHANGES: Final = "changes"
SIDES: Final = (STATE, CHANGES)
"""The two tables of a shape."""
FOLDERS_AROUND: Final = 3
"""A table with a Delta log lies in so many, of which `delta` is the outermost."""

_NUMBERED: Final = re.compile(r"(\d+)\.json")
_VIEW: Final = re.compile(r"(state|changes)\.(\d+)")


def numbered_path(folder: str, number: int) -> str:
    """A record, in a folder of them; names sort as numbers do."""
    return f"{folder}/{number:012d}.json"


def record_number(name: str) -> int | None:
    """The number of a record, or None if the file is none."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def generation_folder(table: str, generation: int) -> str:
    return f"{DELTA}/{table}/{generation}"


def side_folder(table: str, generation: int, side: str) -> str:
    """A table with a Delta log."""
    return f"{DELTA}/{table}/{generation}/{side}"


def view_folder(table: str, side: str, cut: int) -> str:
    return f"{VIEWS}/{table}/{side}.{cut}"


def view_cut(name: str, side: str) -> int | None:
    """The cut of a view of this side, or None if the folder is none."""
    match = _VIEW.fullmatch(name)
    return int(match[2]) if match and match[1] == side else None


def link_path(table: str, side: str) -> str:
    return f"{TABLES}/{table}/{side}"


def staging_folder(cut: int) -> str:
    return f"{STAGING}/{cut}"


def changes_name(after: LogOffset, upto: LogOffset, unique: str) -> str:
    """A file of changes: the range of offsets that it has all rows of, and a name of its own."""
    return f"{_hex(after)}-{_hex(upto)}-{unique}.parquet"


def changes_order(name: str) -> tuple[str, str]:
    """What files of changes are ordered by: where they end. Some of old lakes begin, by their names, too early."""
    after, upto, _ = name.split("-", 2)
    return upto, after


def changes_joined(names: Sequence[str], previous: str | None, unique: str) -> str:
    """The name of a file of changes that has the rows of neighbours; it begins where the file before it ends."""
    end = "" if previous is None else changes_order(previous)[0]
    return f"{max(names[0].partition('-')[0], end)}-{changes_order(names[-1])[0]}-{unique}.parquet"


def is_misnamed(name: str, previous: str) -> bool:
    """Whether a file of changes begins, by its name, before its neighbour ends."""
    return name.partition("-")[0] < changes_order(previous)[0]


def state_name(cut: int, unique: str) -> str:
    """A file of a state, written for a cut."""
    return f"{cut:012d}-{unique}.parquet"


def _hex(offset: LogOffset) -> str:
    return offset.to_bytes()[:8].hex() + "_" + offset.to_bytes()[8:].hex()
