"""One writer of a lake: finishes the cut that is open, or decides the next one, and does its work.

Everything is found in the lake's folder: there is no checkpoint beside it. A writer that dies anywhere is replaced by
one that starts here again; two at once do the same work, and the first to commit each part has done it.

    decide (cuts/<n>.json) -> read and merge -> commit each table -> publish (versions/<n>.json) -> show views

Invariants:
    cut n + 1 is decided by who has seen version n
    version n is published when all its tables are at cut n, or were not touched by it
    a fault before the publication leaves version n - 1 as it was
"""

import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from storage.bases import Base
from storage.catalog import CatalogReader
from storage.catalog_records import Life, Shape
from storage.disk import LocalDisk
from storage.errors import StorageError, UnknownLog, named_faults
from storage.folder_reader import FolderReader
from storage.lake.cuts import Cut, Decision, TableCut, decide, shapes_at
from storage.lake.delta_log import DeltaLog
from storage.lake.errors import LaggingWriter, LogGap, NoVersion
from storage.lake.lake_layout import CUTS, SIDES, TABLES, numbered_path, side_folder
from storage.lake.limits import COMMIT_ATTEMPTS_MAX, LEASE_SECONDS
from storage.lake.loads import Load, Runner, base_files, base_of, load, read_load
from storage.lake.log_gaps import LogGaps
from storage.lake.metrics import Trigger
from storage.lake.records import create_once, read_record
from storage.lake.settings import LakeSettings
from storage.lake.table_step import KnownFiles, TableStep
from storage.lake.tasks import Work, rows_of
from storage.lake.versions import TableVersion, Version, latest_version, publish, read_version
from storage.lake.views import build_view, hide_view, show_view, shown_cut
from storage.leases import Lease, end_lease, leases, take_lease
from storage.ledger import may_cut_at
from storage.offset import LogOffset
from storage.progress import ProgressReader

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did."""

    version: Version | None = None
    """The version that was published; None if there was nothing to do."""
    rows: int = 0
    trigger: Trigger | None = None
    """Why there is a version."""
    level: int | None = None
    """The G below which the lake misses no row; None if there is none yet."""
    gaps: tuple[str, ...] = ()
    """Tables whose history has a hole here, since a log took another's place."""
    waits_for: dict[str, str] = field(default_factory=dict)
    """Tables that hold the lake where it is, and why."""


class LakeWriter:
    """`step` until told otherwise. Every fault is an exception, after which another step may be tried."""

    def __init__(
        self,
        data: LocalDisk,
        lake: LocalDisk,
        run: Runner,
        *,
        settings: LakeSettings,
        unique: str,
        now: Callable[[], int],
        at: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._data = data
        self._lake = lake
        self._root = Path(lake.root).resolve()
        self._run = run
        self._settings = settings
        self._unique = unique
        self._now = now
        self._at = at
        self._catalog = CatalogReader(data)
        self._progress = ProgressReader(data)
        self._reader = FolderReader(data)
        self._gaps = LogGaps(self._reader)
        self._known = KnownFiles()
        self._loads: dict[int, Load] = {}
        self._leased: dict[int, int] = {}
        """When the lease on a log was taken last."""
        self._lease_prefix = f"lake-{zlib.crc32(str(self._root).encode()):08x}-"
        self._log_of = lru_cache(maxsize=1024)(DeltaLog)
        self._shown = 0
        """The version whose views were shown last."""

    def step(self, *, even_if_quiet: bool = False) -> Step:
        """Go from one version to the next. Without rows there is none, unless asked for."""
        with named_faults(str(self._root)):
            return self._step(even_if_quiet=even_if_quiet)

    def compact(self) -> Step:
        """Join what is small in all tables: a version with the rows of the one before it, in fewer files."""
        with named_faults(str(self._root)):
            for _ in range(COMMIT_ATTEMPTS_MAX):
                before = latest_version(self._lake)
                if before is None:
                    raise NoVersion("the lake has no version yet", lake=str(self._root))
                cut = self._joining_cut(before)  # or another one, which is finished first
                try:
                    step = self._finish(cut, before)
                except LaggingWriter:  # a twin has done it, as the cut says
                    step = Step(read_version(self._lake, cut.number))
                if cut.joins_all and step.version is not None:
                    return replace(step, trigger=Trigger.DEMAND)
            return Step()

    def input_lsn(self) -> int | None:
        """G, as it was when the logs were looked at last."""
        record = self._progress.history.latest
        return None if record is None else record.lsn

    def published(self) -> Version | None:
        """The newest version, whoever made it."""
        return latest_version(self._lake)

    def _step(self, *, even_if_quiet: bool) -> Step:
        before = latest_version(self._lake)
        if before is not None and before.number != self._shown:
            self.show()  # whoever published it may have died before that
        number = 1 if before is None else before.number + 1
        level = None if before is None else before.lsn
        waits: dict[str, str] = {}
        cut, trigger = self._cut(number), Trigger.FOUND
        if cut is None:
            decision = self._decide(before)
            waits = decision.waits_for
            if decision.cut is None:
                return Step(waits_for=waits, level=level if waits else self.input_lsn())
            why = self._trigger(decision.cut, before)
            if why is None and not even_if_quiet:
                return Step(waits_for=waits, level=decision.cut.lsn)
            trigger = why or Trigger.DEMAND
            for part in decision.cut.tables if self._settings.has_history else ():
                self._gaps.refuse_folded(part)
                self._gaps.refuse_retired(part)
            self._at("before the cut")
            create_once(self._lake, numbered_path(CUTS, number), decision.cut.to_json(), self._unique)
            self._at("after the cut")
            cut = self._cut(number)
            assert cut is not None, "somebody wrote it"
        try:
            return replace(self._finish(cut, before), trigger=trigger, waits_for=waits, level=cut.lsn)
        except LaggingWriter as error:
            logger.info("%s", error)
            return Step(waits_for=waits, level=level)

    def show(self) -> None:
        """Let the plain views be those of the newest version: again, perhaps, after a crash."""
        while (version := latest_version(self._lake)) is not None:
            for table in version.tables:
                for side in SIDES:
                    of_version = table.side(side)
                    if of_version is not None and shown_cut(self._root, table.name, side) != of_version.cut:
                        self._show(version, table.name, side)
            for name in self._lake.names(TABLES):
                for side in SIDES if version.table(name) is None else ():
                    hide_view(self._root, name, side)
            newest = latest_version(self._lake)
            if newest is None or newest.number == version.number:
                self._shown = version.number
                return  # a slow twin may have shown an older one: whoever sees that shows the newest again

    def _joining_cut(self, before: Version) -> Cut:
        """The cut behind a version: with the rows of that one, unless another was decided already."""
        last, number = self._cut(before.number), before.number + 1
        assert last is not None, "the newest version's cut is kept"
        parts = (replace(one, after=one.upto, begins=False) for one in last.tables if before.table(one.name))
        made = replace(last, number=number, tables=tuple(parts), joins_all=True)
        create_once(self._lake, numbered_path(CUTS, number), made.to_json(), self._unique)
        self._at("after the cut")
        cut = self._cut(number)
        assert cut is not None, "somebody wrote it"
        return cut

    def _cut(self, number: int) -> Cut | None:
        content = read_record(self._lake, numbered_path(CUTS, number))
        return None if content is None else Cut.from_json(content)

    def _decide(self, before: Version | None) -> Decision:
        self._progress.refresh()  # G first: the catalog that is read after it knows the version that G names
        self._catalog.refresh()
        record = self._progress.history.latest
        if record is None:
            return Decision(None)
        shapes = shapes_at(self._catalog.state, record.catalog_version, self._settings.wants)
        for shape in shapes.values():
            self._load(shape, None if before is None else before.table(shape.name or ""))
        known = {} if before is None else {table.log: table for table in before.tables}
        for table in known.values():
            if table.log not in self._leased:
                self._lease(table.log, table.upto)  # before it is looked what the log still has
        last = None if before is None else self._cut(before.number)
        if last is not None:  # a table that the version is without begins anew, unless another log takes its place
            last = replace(last, tables=tuple(one for one in last.tables if one.log in known or self._is_over(one)))
        loads = {log: one.loaded for log, one in self._loads.items()}

        @cache
        def base_instead(log: int) -> Base | None:
            table = known.get(log)
            after = loads[log].floor if table is None else table.upto
            return self._gaps.base_instead(log, after) if self._may_begin_anew(begins=table is None) else None

        ledger = lru_cache(maxsize=None)(self._gaps.ledger)

        def may_cut(log: int, upto: LogOffset) -> bool:
            base = base_instead(log)
            return may_cut_at(ledger(log), upto) and (base is None or base.floor <= upto)

        records = self._progress.history.newest_first()
        return decide(last, records, self._catalog.state, loads, self._settings.wants, may_cut)

    def _load(self, shape: Shape, before: TableVersion | None) -> None:
        """Bring a shape's base into the lake, unless it is there."""
        if shape.log in self._loads:
            return
        found = read_load(self._lake, shape.log)
        if found is None:
            # Of the newest handle: what G lists may have had a base that was folded into another since.
            base = base_of(self._reader, self._catalog.state.newest_of(shape.log) or shape)
            self._lease(shape.log, base.floor)
            self._at("before a load")
            data = str(self._data.root)
            found = load(self._lake, data, shape, base, before, self._run, self._unique)
            self._at("after a load")
            logger.info("table %s: %d rows loaded", shape.name, found.rows)
        self._loads[shape.log] = found

    def _trigger(self, cut: Cut, before: Version | None) -> Trigger | None:
        """How the version would differ from the one before; None if it would in its number only."""
        names = {table.name for table in cut.tables}
        if before is None or names != {table.name for table in before.tables}:
            return Trigger.TABLES
        if any(table.begins for table in cut.tables):
            return Trigger.TABLES
        return Trigger.ROWS if any(self._has_rows(table) for table in cut.tables) else None

    def _has_rows(self, table: TableCut) -> bool:
        """Whether a table's range has any; if they are gone, the work finds out whether they are missed."""
        if table.after == table.upto:
            return False
        if self._gaps.is_torn(table):
            return True
        try:
            rows = rows_of(self._reader, table.name, table.log, table.after, table.upto, max_bytes=0)
            return next(rows, None) is not None
        except LogGap:
            return True

    def _is_over(self, table: TableCut) -> bool:
        """Whether a log was removed after the cut was decided, because its shape ended: nobody can have its rows."""
        try:
            self._reader.facts(table.log)
        except UnknownLog:
            self._catalog.refresh()
            shape = self._catalog.state.newest_of(table.log)
            return shape is None or shape.life is Life.ENDED
        return False

    def _finish(self, cut: Cut, before: Version | None) -> Step:
        known = {} if before is None else {table.name: table for table in before.tables}
        # What is joined only is in the lake: nobody asks for its log.
        parts = [table for table in cut.tables if cut.joins_all or not self._is_over(table)]
        quiet = {table.name for table in parts if table.name in known and not (table.begins or self._has_rows(table))}
        busy = [table for table in parts if cut.joins_all or table.name not in quiet]
        steps = [self._from_base(self._table_step(cut, table, known.get(table.name))) for table in busy]
        lost = {step.name for step in steps if self._is_lost(step)}
        if dropped := sorted(lost | {table.name for table in cut.tables} - {table.name for table in parts}):
            logger.warning("version %d is without %s: nobody has its rows any more", cut.number, ", ".join(dropped))
        parts = [table for table in parts if table.name not in lost]
        steps = [step for step in steps if step.name not in lost]
        self._at("before the work")
        try:
            self._work(steps, parts, known)
        except LaggingWriter:
            for step in steps:
                step.give_up()
            raise
        tables = tuple(replace(known[table.name], upto=table.upto) for table in parts)
        made = Version(cut.number, cut.incarnation, cut.lsn, cut.commit_time, tables)
        version = publish(self._lake, made, self._unique)
        self._at("after the version")
        self.show()
        self._at("after the views")
        for table in () if cut.joins_all else parts:
            is_due = self._now() - self._leased.get(table.log, 0) > LEASE_SECONDS * 1_000_000 / 4
            if is_due or table.name not in quiet:
                self._lease(table.log, table.upto)
        gaps = tuple(step.name for step in steps if step.refetched is not None)
        return Step(version, sum(done.rows for step in steps for done in step.done), gaps=gaps)

    def _work(self, steps: list[TableStep], parts: list[TableCut], known: dict[str, TableVersion]) -> None:
        """Read, merge, commit; `known` has the tables as they are then."""
        self._do((step, step.first_work()) for step in steps)
        self._do((step, step.second_work()) for step in steps)
        done = {step.name for step in steps if step.is_done()}
        for part in parts:  # again: somebody may have folded while they were read
            if part.after < part.upto and part.name not in done:
                (self._gaps.refuse_folded if self._settings.has_history else self._gaps.refuse_torn)(part)
        self._at("before the commits")
        for step in steps:
            known[step.name] = step.commit()
            self._at("after a commit")

    def _may_begin_anew(self, *, begins: bool) -> bool:
        """Whether a table may pass over rows of its log that a base has: not if a history would miss them."""
        return begins or not self._settings.has_history

    def _from_base(self, step: TableStep) -> TableStep:
        """The step; if its log has the rows that come next in a base only, the step from that base's floor on."""
        part = step.part
        if part.after == part.upto or not self._may_begin_anew(begins=part.begins) or step.is_done():
            return step
        base = self._gaps.base_instead(part.log, part.after)
        if base is None and step.lacks_load():
            base = self._gaps.newest_base(part.log)
        if base is None:
            return step
        part = replace(part, begins=True, after=base.floor)
        if part.after > part.upto:
            return replace(step, part=part)  # the cut was decided long ago: the next one has the table again
        self._at("before a load")
        found = base_files(step.table_work(), part.generation, base, self._run)
        self._at("after a load")
        logger.info("table %s: %d rows loaded anew, from base %d", part.name, found.rows, base.number)
        return replace(step, part=part, load=found, is_anew=True)

    def _is_lost(self, step: TableStep) -> bool:
        """Whether nobody has a state as of a cut that was decided long ago: the next one has the table again."""
        part = step.part
        if part.after > part.upto:
            return True
        return not self._settings.has_history and self._gaps.is_torn(part) and not step.is_done()

    def _table_step(self, cut: Cut, part: TableCut, before: TableVersion | None) -> TableStep:
        found = self._loads.get(part.log) or read_load(self._lake, part.log)
        assert found is not None, "a cut has loaded logs only"
        self._loads[part.log] = found
        data = str(self._data.root)
        has_history = self._settings.has_history
        return TableStep(self._root, data, self._data, cut, part, before, found, self._known, self._log_of, has_history)

    def _do(self, work: Iterable[tuple[TableStep, list[Work]]]) -> None:
        """One job for all tables; each gets what its own work has done."""
        planned = [(step, item) for step, items in work for item in items]
        if planned:
            done = self._run([item for _, item in planned])
            for (step, _), one in zip(planned, done, strict=True):
                step.done.append(one)

    def _show(self, version: Version, name: str, side: str) -> None:
        table = version.table(name)
        of_version = None if table is None else table.side(side)
        assert table is not None, "it is one of the version's"
        assert of_version is not None, "the side is there"
        folder = self._root / side_folder(name, table.generation, side)
        files = self._log_of(folder).files_at(of_version.delta)
        build_view(self._root, name, table.generation, side, of_version.cut, files, self._unique)
        show_view(self._root, name, side, of_version.cut, self._unique)

    def _lease(self, log: int, offset: LogOffset) -> None:
        """Keep the rows that the lake does not have yet. Best effort: a folder that cannot be written can be read."""
        now = self._now()
        mine = f"{self._lease_prefix}{self._unique}"
        try:
            take_lease(self._data, Lease(log, mine, offset, now + int(LEASE_SECONDS * 1_000_000)), now=now)
            for other in leases(self._data, log, now=now) if log not in self._leased else ():
                if other.reader.startswith(self._lease_prefix) and other.reader != mine:
                    end_lease(self._data, log, other.reader)  # of this lake, by a writer that was here before
            self._leased[log] = now
        except UnknownLog:
            return
        except StorageError as error:
            logger.warning("no lease on log %d, so its rows may be retired before they are read: %s", log, error)
