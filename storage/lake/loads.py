"""A log's base as files of a state: what a table begins with.

Whoever has all of a base on the disk first records it; later cuts begin at the base's floor, and what a slower twin
wrote is nobody's. A run of chunks is a sorted file; if runs overlap, their keys are divided into ranges once more.

A record stays for as long as its log: a writer that starts anew finds there that the log is in the lake. Once the shape
has ended and the log is removed, no cut can begin with it any more, and `retire` takes the record away.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from storage.bases import Base
from storage.catalog_records import Shape
from storage.disk import Disk, LocalDisk
from storage.errors import UnknownFormat, named_faults
from storage.folder_reader import FolderReader
from storage.lake.cuts import Loaded
from storage.lake.delta_log import DeltaLog
from storage.lake.errors import LakeDamage
from storage.lake.lake_layout import (
    CHANGES,
    LOADS,
    SIDES,
    STAGING,
    STATE,
    generation_folder,
    numbered_path,
    side_folder,
)
from storage.lake.limits import STATE_FILE_BYTES, STATE_FILE_ROWS
from storage.lake.parquet_files import NewFile
from storage.lake.records import create_once, read_record, record_numbers
from storage.lake.table_schema import TableSchema
from storage.lake.tasks import SAMPLE_ROWS, Done, LoadChunks, SortRange, TableWork, Work
from storage.lake.versions import TableVersion
from storage.lake.widening import obstacle
from storage.offset import LogOffset

logger: Final = logging.getLogger(__name__)

FORMAT: Final = 1
Runner = Callable[[Sequence[Work]], list[Done]]
"""Does work somewhere, and returns what each piece has done, in order."""


@dataclass(frozen=True, slots=True)
class Load:
    """A base in the lake."""

    log: int
    name: str
    generation: int
    floor: LogOffset
    files: tuple[NewFile, ...]
    rows: int
    quarantined: int
    incarnation: str | None = None
    """The life of the slot in which it was loaded: numbers of logs mean nothing in another data folder.."""
    lsn: int = 0
    """.. nor in an older copy of this one, which was not as far as this G."""

    @property
    def loaded(self) -> Loaded:
        """What a cut needs of it."""
        return Loaded(self.log, self.generation, self.floor)

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self) | {"format": FORMAT, "floor": str(self.floor)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        if content.get("format") != FORMAT:
            raise UnknownFormat("the load has another format", found=content.get("format"), known=FORMAT)
        facts = {name: value for name, value in content.items() if name != "format"}
        try:
            files = tuple(NewFile(**file) for file in facts["files"])
            return cls(**facts | {"files": files, "floor": LogOffset.parse(facts["floor"])})
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownFormat(f"a field of the load is wrong or missing: {error!r}") from None


def read_load(lake: Disk, log: int) -> Load | None:
    """A log's load; None if it has not been loaded."""
    content = read_record(lake, numbered_path(LOADS, log))
    return None if content is None else Load.from_json(content)


def read_loads(lake: Disk) -> dict[int, Load]:
    """All of them, by log."""
    found = (read_load(lake, log) for log in record_numbers(lake, LOADS))
    return {load.log: load for load in found if load is not None}


def base_of(reader: FolderReader, shape: Shape) -> Base:
    """The base that a shape's newest handle stands on."""
    base = next((one for one in reader.bases(shape.log) if one.number == shape.base), None)
    if base is None or not base.is_complete:
        raise LakeDamage("a shape that is ready has no complete base", shape=shape.name, log=shape.log)
    return base


def load(lake: LocalDisk, data: str, shape: Shape, base: Base, before: TableVersion | None, run: Runner) -> Load:
    """Write a base as files, in the generation where the table goes on; nobody knows of them yet.

    `before` is the table of that name in the newest version.
    """
    assert shape.name is not None, "only named shapes are in the lake"
    root = Path(lake.root).resolve()
    schema = TableSchema.of_definition(shape.definition)
    generation = _generation(lake, root, shape, schema, before)
    folder = str(root / generation_folder(shape.name, generation))
    table = TableWork(data, folder, str(root / STAGING / "loads"), shape.name, shape.log, 0, schema)
    return base_files(table, generation, base, run)


def keep_load(lake: LocalDisk, made: Load, unique: str) -> Load:
    """Record it; returns the load that counts, which may be a twin's."""
    if not create_once(lake, numbered_path(LOADS, made.log), made.to_json(), unique):
        folder = Path(lake.root).resolve() / side_folder(made.name, made.generation, STATE)
        for file in made.files:
            (folder / file.name).unlink(missing_ok=True)
    return read_load(lake, made.log) or made


def forget_load(lake: Disk, found: Load) -> None:
    """Take its record away: the log went, or its number means another one now. Files that no table has go in time."""
    with named_faults(numbered_path(LOADS, found.log)):
        with contextlib.suppress(FileNotFoundError):
            lake.remove(numbered_path(LOADS, found.log))
        lake.sync_folder(LOADS)


def base_files(table: TableWork, generation: int, base: Base, run: Runner) -> Load:
    """Write a base as files of a state, which nobody else knows of."""
    schema = table.schema
    for side in SIDES:
        Path(table.folder, side).mkdir(parents=True, exist_ok=True)
    done = run([LoadChunks(table, base.number, *span) for span in _spans(base)]) if schema.has_state else []
    files = [file for one in done for file in one.state]
    if _overlap(files):
        files = _sorted(table, done, files, run)
    rows, quarantined = sum(one.rows for one in done), sum(one.quarantined for one in done)
    return Load(table.log, table.name, generation, base.floor, tuple(files), rows, quarantined)


def _spans(base: Base) -> Iterator[tuple[int, int]]:
    """Chunks in runs of about the size of a file."""
    start = rows = size = 0
    for number, ref in enumerate(base.chunks):
        rows, size = rows + ref.header.rows, size + ref.end - ref.position
        if rows >= STATE_FILE_ROWS or size >= STATE_FILE_BYTES or number + 1 == len(base.chunks):
            yield start, number + 1
            start, rows, size = number + 1, 0, 0


def _overlap(files: Sequence[NewFile]) -> bool:
    """Whether a key may be in two files."""
    bounds = sorted((file.low, file.high) for file in files)
    return any(before[1] >= after[0] for before, after in pairwise(bounds))  # type: ignore[operator]  # keys of one table are of one type


def _sorted(table: TableWork, done: Sequence[Done], runs: Sequence[NewFile], run: Runner) -> list[NewFile]:
    """Ranges of about equal size, each out of the runs that reach into it; the runs are removed."""
    keys = pa.array(sorted(key for one in done for key in one.samples))
    every = STATE_FILE_ROWS // SAMPLE_ROWS
    bounds = [None, *dict.fromkeys(keys.to_pylist()[every::every]), None]
    work = []
    for low, high in pairwise(bounds):
        names = tuple(
            file.name
            for file in runs
            if (low is None or file.high is None or file.high >= low) and (high is None or file.low < high)
        )
        if names:
            work.append(SortRange(table, names, low, high))
    files = [file for one in run(work) for file in one.state]
    for file in runs:
        Path(table.folder, "state", file.name).unlink(missing_ok=True)
    return files


def _generation(lake: Disk, root: Path, shape: Shape, schema: TableSchema, before: TableVersion | None) -> int:
    """That of the table as it is, if columns and history can go on in it; else the first that nobody has.

    A table that left the lake does not go on when it comes again: its files may be gone by then.
    """
    why = None if before is None else _obstacle(root, schema, shape.snapshot.birth, before)
    if before is not None and why is None:
        return before.generation
    name, number = shape.name or "", 1
    if (root / generation_folder(name, number)).exists():  # else nobody has loaded this table: records need no look
        loaded = {one.generation for one in read_loads(lake).values() if one.name == name}
        while number in loaded or any(DeltaLog(root / side_folder(name, number, side)).latest_cut() for side in SIDES):
            number += 1
    if why is not None:
        logger.warning("table %s: generation %d begins, with a history of its own: %s", name, number, why)
    return number


def _obstacle(root: Path, schema: TableSchema, birth: int, before: TableVersion) -> str | None:
    """Why a table cannot go on with the rows of another log; None if it can."""
    if birth < before.upto.tx:
        return "its transactions are numbered anew"  # the server is another one, or was restored
    wanted = {STATE: schema.state if schema.has_state else None, CHANGES: schema.changes}
    for side, columns in wanted.items():
        known = DeltaLog(root / side_folder(before.name, before.generation, side)).schema()
        why = obstacle(known, columns) if columns is not None and known is not None else None
        if why is not None:
            return why
    return None
