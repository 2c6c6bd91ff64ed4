"""What the next version will be: decided from records alone, before any work. Pure.

A cut names the G at which it ends and, for each table, the log and the range of offsets that it takes. Whoever writes
its record first has decided for all; every writer finishes cut n before n + 1, and nobody chooses another end.

Invariants:
    a table's `after` is its `upto` in the cut before, or the floor of the base with which its log begins here
    `upto` is the same in all tables: every row of a transaction below G, and no other
    no cut passes the end of a log before the log that takes its place can be part of it
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from storage.catalog import CatalogState
from storage.catalog_records import Life, Shape
from storage.errors import Misuse, UnknownFormat
from storage.offset import OP_INFINITE, LogOffset
from storage.progress import Incarnation, ProgressRecord

FORMAT: Final = 1
REMOVED: Final = "removed"
"""The reason with which a person's removal of a shape is recorded."""


@dataclass(frozen=True, slots=True)
class TableCut:
    """A table's part of a cut."""

    name: str
    log: int
    handle: str
    generation: int
    after: LogOffset
    upto: LogOffset
    begins: bool
    """The log comes into the lake with this cut: its base replaces whatever rows the table had."""
    definition: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """A version that is to be."""

    number: int
    incarnation: Incarnation
    lsn: int
    catalog_version: int
    commit_time: int
    tables: tuple[TableCut, ...]
    joins_all: bool = False
    """All that is small is joined, also where nothing changes. All who finish the cut do that, so they do the same."""

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        tables = [asdict(table) | {"after": str(table.after), "upto": str(table.upto)} for table in self.tables]
        facts = asdict(self) | {"format": FORMAT, "incarnation": str(self.incarnation), "tables": tables}
        if not self.joins_all:
            del facts["joins_all"]
        return facts

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        if content.get("format") != FORMAT:
            raise UnknownFormat("the cut has another format", found=content.get("format"), known=FORMAT)
        facts = {name: value for name, value in content.items() if name != "format"}
        try:
            facts["incarnation"] = Incarnation.parse(facts["incarnation"])
            facts["tables"] = tuple(
                TableCut(**table | {name: LogOffset.parse(table[name]) for name in ("after", "upto")})
                for table in facts["tables"]
            )
            return cls(**facts)
        except (KeyError, TypeError, ValueError) as error:
            raise UnknownFormat(f"a field of the cut is wrong or missing: {error!r}") from None

    def table(self, name: str) -> TableCut | None:
        """The table of this name."""
        return next((table for table in self.tables if table.name == name), None)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A log whose base is in the lake as files: what a cut needs of it."""

    log: int
    generation: int
    floor: LogOffset


@dataclass(frozen=True, slots=True)
class Decision:
    """The next cut, if there is one; and who is waited for."""

    cut: Cut | None
    waits_for: dict[str, str] = field(default_factory=dict)
    """Tables that hold the lake where it is, and why."""


def shapes_at(catalog: CatalogState, version: int, wants: Callable[[Shape], bool]) -> dict[str, Shape]:
    """The named shapes that were ready as of a catalog version, by name, and that are wanted."""
    shapes = (catalog.shapes[handle] for handle in sorted(catalog.listed_at(version)))  # the same in every process
    return {shape.name: shape for shape in shapes if shape.name and wants(shape)}


def decide(
    last: Cut | None,
    records: Iterable[ProgressRecord],
    catalog: CatalogState,
    loads: Mapping[int, Loaded],
    wants: Callable[[Shape], bool] = lambda _: True,
    may_cut: Callable[[int, LogOffset], bool] = lambda _log, _offset: True,
) -> Decision:
    """The next cut at the greatest G that allows one. `records` are the newest first.

    `may_cut` says whether a log's rows as of an offset are known (`log_gaps`).
    """
    waits: dict[str, str] = {}
    listed: dict[int, dict[str, Shape]] = {}
    hopeless = set[int]()
    """Catalog versions without a table that is waited for: no record of theirs will do, and there may be thousands."""
    for record in records:
        if last is not None and record.incarnation == last.incarnation and record.lsn <= last.lsn:
            break
        version = record.catalog_version  # many records have the same
        if version in hopeless:
            continue
        try:
            shapes = listed.get(version)
            if shapes is None:
                shapes = listed[version] = shapes_at(catalog, version, wants)
        except Misuse:
            break  # the catalog no longer knows what it listed then
        ready = {name: shape for name, shape in shapes.items() if _is_ready(last, record, shape, loads)}
        blocked = {
            table.name: why
            for table in (() if last is None else last.tables)
            if table.name not in ready and (why := _why_wait(table, catalog, shapes.get(table.name), loads))
        }
        upto = _end_of(record)
        torn = [name for name, one in ready.items() if not may_cut(one.log, upto)]
        blocked |= dict.fromkeys(torn, "what it was there is folded into later rows")
        if not blocked:
            return Decision(_cut(last, record, ready, loads) if ready or last else None, waits)
        waits = waits or blocked
        if not blocked.keys() <= shapes.keys():
            hopeless.add(version)
    return Decision(None, waits)


def _is_ready(last: Cut | None, record: ProgressRecord, shape: Shape, loads: Mapping[int, Loaded]) -> bool:
    """Whether its rows as of G are known: a base that was folded a moment ago may be ahead of G."""
    if shape.snapshot.birth > record.lsn or shape.log not in loads:
        return False
    before = None if last is None else last.table(shape.name or "")
    goes_on = before is not None and before.log == shape.log
    return goes_on or loads[shape.log].floor <= _end_of(record)


def _end_of(record: ProgressRecord) -> LogOffset:
    """Every row of a transaction below G, and no other."""
    return LogOffset(max(0, record.lsn - 1), OP_INFINITE)


def _why_wait(table: TableCut, catalog: CatalogState, listed: Shape | None, loads: Mapping[int, Loaded]) -> str | None:
    """Why a table of the last cut keeps the lake from going on without it; None if it may go."""
    if listed is not None:
        return "its shape begins above G" if listed.log in loads else "its rows are not loaded yet"
    shape = catalog.named(table.name)
    if shape is None or (shape.life is Life.ENDED and shape.reason == REMOVED):
        return None
    return f"its shape ended ({shape.reason})" if shape.reason else "the shape that takes its place is not ready"


def _cut(last: Cut | None, record: ProgressRecord, ready: Mapping[str, Shape], loads: Mapping[int, Loaded]) -> Cut:
    upto = _end_of(record)
    tables = []
    for name, shape in sorted(ready.items()):
        before = None if last is None else last.table(name)
        begins = before is None or before.log != shape.log
        load = loads[shape.log]
        after = load.floor if begins or before is None else before.upto
        tables.append(TableCut(name, shape.log, shape.handle, load.generation, after, upto, begins, shape.definition))
    number = 1 if last is None else last.number + 1
    return Cut(number, record.incarnation, record.lsn, record.catalog_version, record.commit_time, tuple(tables))
