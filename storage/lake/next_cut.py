"""Which cut comes next, from what the data folder says at this moment; whatever it begins with is loaded before.

`cuts.decide` chooses; here is what it chooses from: G, the catalog, what logs still have, which bases are in the lake.

Invariants:
    G is read before the catalog, which then knows the version that G names
    a log is leased before it is looked what it still has
    a cut has loaded logs only, and is of the folder that the cut before it was of (`origin`), unless told otherwise
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final

from storage.bases import Base
from storage.catalog import CatalogReader
from storage.catalog_records import Life, Shape
from storage.disk import LocalDisk
from storage.errors import Refetch, UnknownLog
from storage.folder_reader import FolderReader
from storage.lake.cuts import Cut, Decision, TableCut, decide, shapes_at
from storage.lake.errors import LaggingWriter, LakeDamage, LogGap, OtherData
from storage.lake.lake_layout import CUTS, LOADS, numbered_path
from storage.lake.lake_leases import LakeLeases
from storage.lake.loads import Load, Runner, base_of, forget_load, keep_load, load, read_load, read_loads
from storage.lake.log_gaps import LogGaps
from storage.lake.metrics import Trigger
from storage.lake.origin import refuse_other
from storage.lake.records import read_record
from storage.lake.settings import LakeSettings
from storage.lake.tasks import rows_of
from storage.lake.versions import TableVersion, Version
from storage.ledger import may_cut_at
from storage.offset import LogOffset
from storage.progress import Incarnation, ProgressHistory, ProgressReader, ProgressRecord

logger: Final = logging.getLogger(__name__)

_NOBODY: Final = Incarnation(0, 0, 0)
"""The life of a slot that never was: every G is news after it."""
_NO_LOG: Final = 0
"""No folder gives out this number."""


def read_cut(lake: LocalDisk, number: int) -> Cut | None:
    """A cut; None if it was not decided, or is not needed any more."""
    content = read_record(lake, numbered_path(CUTS, number))
    return None if content is None else Cut.from_json(content)


class NextCut:
    """Looks at both folders each time it is asked: other processes write in them."""

    def __init__(
        self,
        data: LocalDisk,
        lake: LocalDisk,
        run: Runner,
        *,
        settings: LakeSettings,
        leases: LakeLeases,
        unique: str,
        at: Callable[[str], None],
    ) -> None:
        self._data = data
        self._lake = lake
        self._run = run
        self._settings = settings
        self._leases = leases
        self._unique = unique
        self._at = at
        self._catalog = CatalogReader(data)
        self._progress = ProgressReader(data)
        self.reader = FolderReader(data)
        self.gaps = LogGaps(self.reader)
        self._loads: dict[int, Load] = {}

    def input_lsn(self) -> int | None:
        """G, as it was when the logs were looked at last."""
        record = self._progress.history.latest
        return None if record is None else record.lsn

    def is_ours(self, cut: Cut) -> bool:
        """Whether a cut was decided in this data folder; raises `OtherData` if not, unless the lake is to go over."""
        self._refresh()
        return self._is_ours(cut)

    def decide(self, before: Version | None) -> Decision:
        """The cut behind a version, if there may be one, with all that it begins with loaded."""
        self._refresh()
        record = self._progress.history.latest
        last = None if before is None else read_cut(self._lake, before.number)
        is_ours = last is None or self._is_ours(last)
        if record is None:
            return Decision(None)
        if last is not None and not is_ours:
            self._forget_loads()
            last = _of_nobody(last)
        shapes = shapes_at(self._catalog.state, record.catalog_version, self._settings.wants)
        for shape in shapes.values():
            self._load(shape, None if before is None else before.table(shape.name or ""), record)
        known = {table.log: table for table in before.tables} if before is not None and is_ours else {}
        for table in known.values():
            if not self._leases.has(table.log):
                self._leases.take(table.log, table.upto)  # before it is looked what the log still has
        if last is not None:  # a table that the version is without begins anew, unless another log takes its place
            last = replace(last, tables=tuple(one for one in last.tables if one.log in known or self.is_over(one)))
        loads = {log: one.loaded for log, one in self._loads.items()}

        @cache
        def base_instead(log: int) -> Base | None:
            table = known.get(log)
            after = loads[log].floor if table is None else table.upto
            return self.gaps.base_instead(log, after) if self.may_begin_anew(begins=table is None) else None

        ledger = lru_cache(maxsize=None)(self.gaps.ledger)

        def may_cut(log: int, upto: LogOffset) -> bool:
            base = base_instead(log)
            return may_cut_at(ledger(log), upto) and (base is None or base.floor <= upto)

        records = self._progress.history.newest_first()
        return decide(last, records, self._catalog.state, loads, self._settings.wants, may_cut)

    def trigger(self, cut: Cut, before: Version | None) -> Trigger | None:
        """How the version would differ from the one before; None if it would in its number only."""
        names = {table.name for table in cut.tables}
        if before is None or names != {table.name for table in before.tables}:
            return Trigger.TABLES
        if any(table.begins for table in cut.tables):
            return Trigger.TABLES
        return Trigger.ROWS if any(self.has_rows(table) for table in cut.tables) else None

    def has_rows(self, table: TableCut) -> bool:
        """Whether a table's range has any; if they are gone, the work finds out whether they are missed."""
        if table.after == table.upto:
            return False
        if self.gaps.is_torn(table):
            return True
        try:
            rows = rows_of(self.reader, table.name, table.log, table.after, table.upto, max_bytes=0)
            return next(rows, None) is not None
        except LogGap:
            return True

    def is_over(self, table: TableCut) -> bool:
        """Whether a log was removed after the cut was decided, because its shape ended: nobody can have its rows."""
        return self._is_removed(table.log)

    def load_of(self, part: TableCut) -> Load | None:
        """The base with which a log begins in a decided cut; None for a log that goes on."""
        if not part.begins:
            return None
        found = self._loads.get(part.log) or read_load(self._lake, part.log)
        if found is None:
            if self.is_over(part):
                raise LaggingWriter(f"the log of table {part.name!r} went, and its load with it", log=part.log)
            raise LakeDamage("a cut begins with a load that is not on record", table=part.name, log=part.log)
        self._loads[part.log] = found
        return found

    def is_of_use(self, found: Load) -> bool:
        """Whether a cut may still begin with it: not if its shape ended and its log was removed, in this folder."""
        return not (self._knows(found) and self._is_removed(found.log))

    def may_begin_anew(self, *, begins: bool) -> bool:
        """Whether a table may pass over rows of its log that a base has: not if a history would miss them."""
        return begins or not self._settings.has_history

    def _refresh(self) -> None:
        self._progress.refresh()
        self._catalog.refresh()

    def _is_removed(self, log: int) -> bool:
        try:
            self.reader.facts(log)
        except UnknownLog:
            self._catalog.refresh()
            shape = self._catalog.state.newest_of(log)
            return shape is None or shape.life is Life.ENDED
        return False

    def _is_ours(self, cut: Cut) -> bool:
        try:
            refuse_other(cut, self._progress.history, self._catalog.state)
        except OtherData as error:
            if not self._settings.adopts:
                raise
            logger.warning("the lake goes over to this data folder: %s", error)
            return False
        return True

    def _load(self, shape: Shape, before: TableVersion | None, record: ProgressRecord) -> None:
        """Bring a shape's base into the lake, unless it is there."""
        if shape.log in self._loads:
            return
        found = read_load(self._lake, shape.log)
        if found is not None and found.incarnation is not None and not self._knows(found):
            forget_load(self._lake, found)  # another folder's log has the same number
            found = None
        if found is not None:
            self._lake.sync_folder(LOADS)  # whoever loaded it may have died before that
        else:
            try:
                found = self._loaded(shape, before, record)
            except UnknownLog:
                if not self._is_removed(shape.log):
                    raise
                return  # its shape ended behind this G, so a later one is without it
            logger.info("table %s: %d rows loaded", shape.name, found.rows)
        self._loads[shape.log] = found

    def _loaded(self, shape: Shape, before: TableVersion | None, record: ProgressRecord) -> Load:
        """The base of the newest handle as files: what G lists may have had one that another has replaced since."""
        newest = self._catalog.state.newest_of(shape.log) or shape
        try:
            base = base_of(self.reader, newest)
            self._leases.take(shape.log, base.floor)
            self._at("before a load")
            made = load(self._lake, str(self._data.root), shape, base, before, self._run)
        except (LakeDamage, Refetch):
            self._catalog.refresh()
            now = self._catalog.state.newest_of(shape.log)
            if now is None or now.handle == newest.handle:
                raise
            return self._loaded(shape, before, record)  # replaced a moment ago, or while other bases were loaded
        made = replace(made, incarnation=str(record.incarnation), lsn=record.lsn)
        found = keep_load(self._lake, made, self._unique)
        self._at("after a load")
        return found

    def _forget_loads(self) -> None:
        """The lake goes over to this folder: numbers of logs mean others now."""
        for found in read_loads(self._lake).values():
            if not self._knows(found):
                forget_load(self._lake, found)
                self._loads.pop(found.log, None)

    def _knows(self, found: Load) -> bool:
        """Whether a base was loaded at a G that this folder remembers by now: a twin may be ahead of this writer."""
        if found.incarnation is None:
            return False
        life = Incarnation.parse(found.incarnation)
        if _has_reached(self._progress.history, life, found.lsn):
            return True
        now = ProgressReader(self._data)  # apart, for a decision is made of one G and the catalog behind it
        now.refresh()
        return _has_reached(now.history, life, found.lsn)


def _has_reached(history: ProgressHistory, life: Incarnation, lsn: int) -> bool:
    last = history.last_of(life)
    return last is not None and last.lsn >= lsn


def _of_nobody(cut: Cut) -> Cut:
    """A cut after which all tables begin anew."""
    tables = tuple(replace(table, log=_NO_LOG) for table in cut.tables)
    return replace(cut, incarnation=_NOBODY, tables=tables)
