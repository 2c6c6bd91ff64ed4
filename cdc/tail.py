"""Following a shape: its rows as they become visible, over the shape's changes of handle.

Two sources, one walk: a running server (`cdc.tail_server`), or the files of a folder, which are here. A source gives
steps; a step is rows, or the news that all begins anew, with a base that is read from its start: the shape has a
successor, its table was truncated, or what follows the position was folded into a newer base.

Invariant: what a step gives out is never given out again, unless a step has said that all begins anew.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TextIO

import orjson

from cdc.inspect.walk import LogRows, rows_as_json, shown
from cdc.limits import TAIL_LOOK_SECONDS
from cdc.mistake import Mistake
from storage.catalog import CatalogReader
from storage.catalog_records import Life, Shape
from storage.disk import LocalDisk
from storage.errors import AboveUpper, Refetch, UnknownLog
from storage.folder_reader import FolderReader
from storage.offset import BEFORE_ALL, LogOffset

NOW: Final = "now"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, each as JSON as `shapelog read` prints it."""

    lines: list[str]


@dataclass(frozen=True, slots=True)
class Moved:
    """The shape goes on under this handle, from its base on; what was told before counts no more."""

    handle: str


Step = Rows | Moved


def folder_steps(disk: LocalDisk, shape: str, after: str) -> Iterator[Step]:
    """From the files of a folder, whoever writes to it."""
    catalog, reader = CatalogReader(disk), FolderReader(disk)
    catalog.refresh()
    found = _find(catalog, shape)
    if found is None:
        names = ", ".join(sorted(one.name for one in catalog.state.living() if one.name)) or "none"
        raise Mistake(f"no shape has the name or handle {shape}; the shapes with a name are: {names}")
    position = reader.upper(found.log) if after == NOW else LogOffset.parse(after)
    while True:
        rows = LogRows(disk, reader, found.log, position)
        try:
            yield from _until_it_ends(catalog, rows, found)
            found = _successor(catalog, found)
        except Refetch:  # a new base has taken the place of what follows
            catalog.refresh()
            found = catalog.state.newest_of(found.log) or found
        position = BEFORE_ALL
        yield Moved(found.handle)


def print_steps(steps: Iterator[Step], out: TextIO, notes: TextIO, *, as_json: bool) -> None:
    """Write rows to one, notes to the other, for ever."""
    for step in steps:
        if isinstance(step, Moved):
            notes.write(f"the shape begins anew as {step.handle}; its rows follow from the start\n")
            notes.flush()
            continue
        out.writelines(f"{line if as_json else as_text(orjson.loads(line))}\n" for line in step.lines)
        out.flush()


def as_text(row: dict[str, Any]) -> str:
    """A row on one line, as `shapelog read` prints it."""
    words = [row["offset"], row["kind"], *([f"xid:{row['xid']}"] if "xid" in row else [])]
    words += [f"{name}={shown(value)}" for name, value in (row.get("new") or {}).items()]
    words += [f"old.{name}={shown(value)}" for name, value in (row.get("old") or {}).items()]
    return " ".join(words)


def _find(catalog: CatalogReader, shape: str) -> Shape | None:
    named = catalog.state.named(shape)
    return named if named is not None and named.life is not Life.ENDED else catalog.state.shapes.get(shape)


def _until_it_ends(catalog: CatalogReader, rows: LogRows, shape: Shape) -> Iterator[Step]:
    """The rows of one handle, until it has no more."""
    while True:
        is_over = _is_over(catalog, shape)
        try:
            for batch in rows.batches():
                yield Rows(list(rows_as_json(batch)))
        except AboveUpper:
            pass  # the writer is recovering: what was seen comes again
        except UnknownLog:
            return
        if is_over:
            return
        time.sleep(TAIL_LOOK_SECONDS)
        rows.forget_files()


def _is_over(catalog: CatalogReader, shape: Shape) -> bool:
    catalog.refresh()
    newest = catalog.state.newest_of(shape.log)  # a log with a new base goes on, and so does whoever reads it
    return newest is None or newest.life is Life.ENDED


def _successor(catalog: CatalogReader, shape: Shape) -> Shape:
    """Who has the shape's name now, waited for; raises `Mistake` if nobody will."""
    while True:
        catalog.refresh()
        state = catalog.state
        newest = state.newest_of(shape.log) or shape
        named = None if newest.name is None else state.named(newest.name)
        if named is None or (named.life is Life.ENDED and named.reason == "removed"):
            raise Mistake(f"the shape ended: {newest.reason or 'nothing is known of why'}")
        if named.life is Life.READY:
            return named
        time.sleep(TAIL_LOOK_SECONDS)
