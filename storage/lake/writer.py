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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from storage.disk import LocalDisk
from storage.errors import Refetch, StorageError, UnknownLog, named_faults
from storage.lake.cuts import Cut, TableCut
from storage.lake.delta_log import DeltaLog
from storage.lake.errors import LaggingWriter, LogGap, NoVersion
from storage.lake.lake_layout import CUTS, STATE, VERSIONS, numbered_path, side_folder
from storage.lake.lake_leases import LakeLeases
from storage.lake.limits import COMMIT_ATTEMPTS_MAX
from storage.lake.loads import Load, Runner, base_files
from storage.lake.metrics import Trigger
from storage.lake.next_cut import NextCut, read_cut
from storage.lake.records import create_once
from storage.lake.settings import LakeSettings
from storage.lake.state import StateFile
from storage.lake.state_joins import is_scattered
from storage.lake.table_step import KnownFiles, TableStep
from storage.lake.tasks import Work
from storage.lake.versions import TableVersion, Version, latest_version, publish, read_version
from storage.lake.views import Views

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
    overtaken: str | None = None
    """What another writer did first; there is more to do, perhaps."""

    @property
    def stands_still(self) -> bool:
        """Whether it brought the lake no further, though there was something to do."""
        return self.version is None and bool(self.waits_for or self.overtaken)


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
        self._at = at
        self._leases = LakeLeases(data, self._root, unique, now)
        self._next = NextCut(data, lake, run, settings=settings, leases=self._leases, unique=unique, at=at)
        self._gaps = self._next.gaps
        self._known = KnownFiles()
        self._synced = 0
        """The newest version whose record is on the disk for certain."""
        self._rested = 0
        """The version after which it was looked whether states have few files."""
        self._log_of = lru_cache(maxsize=1024)(DeltaLog)
        self._views = Views(lake, self._log_of, unique)

    def step(self, *, even_if_quiet: bool = False) -> Step:
        """Go from one version to the next. Without rows there is none, unless asked for."""
        with named_faults(str(self._root)):
            return self._step(even_if_quiet=even_if_quiet)

    def compact(self) -> Step:
        """Join what is small in all tables: a version with the rows of the one before it, in fewer files."""
        with named_faults(str(self._root)):
            for _ in range(COMMIT_ATTEMPTS_MAX):
                before = self._newest()
                if before is None:
                    raise NoVersion("the lake has no version yet", lake=str(self._root))
                cut = self._joining_cut(before)  # or another one, which is finished first
                self._next.is_ours(cut)
                try:
                    step = self._finish(cut, before)
                except (LaggingWriter, Refetch):  # a twin has done it, as the cut says; or it is planned once more
                    step = Step(read_version(self._lake, cut.number))
                if cut.joins_all and step.version is not None:
                    return replace(step, trigger=Trigger.DEMAND)
            return Step()

    def rest(self) -> Step:
        """Nothing comes in: join if a state has many files for its rows, as deletes leave it. Once for a version."""
        with named_faults(str(self._root)):
            before = self._newest()
            if before is None or before.number == self._rested:
                return Step()
            new = [table for table in before.tables if table.state is not None and table.state.cut > self._rested]
            is_needed = any(is_scattered(self._state_files(table)) for table in new)
            self._rested = before.number
            cut = read_cut(self._lake, before.number) if is_needed else None
            if cut is None or cut.joins_all:  # it was joined a moment ago: that is how few they can be
                return Step()
        return self.compact()

    def _state_files(self, table: TableVersion) -> list[StateFile]:
        folder = self._root / side_folder(table.name, table.generation, STATE)
        return [self._known.state_file(folder, name) for name in self._log_of(folder).files()]

    def is_of_use(self, load: Load) -> bool:
        """Whether a base that is in the lake as files may still be what a table begins with."""
        return self._next.is_of_use(load)

    def published(self) -> Version | None:
        """The newest version, whoever made it."""
        return latest_version(self._lake)

    def show(self) -> None:
        """Let the plain views be those of the newest version: again, perhaps, after a crash."""
        self._views.show()

    def _step(self, *, even_if_quiet: bool) -> Step:
        before = self._newest()
        if before is not None and before.number != self._views.shown:
            self.show()  # whoever published it may have died before that
        number = 1 if before is None else before.number + 1
        level = None if before is None else before.lsn
        waits: dict[str, str] = {}
        cut, trigger = read_cut(self._lake, number), Trigger.FOUND
        if cut is not None:
            self._lake.sync_folder(CUTS)  # whoever decided it may have died before that
            if not self._next.is_ours(cut):
                return Step(self._give_up(cut, before), trigger=trigger)
        if cut is None:
            decision = self._next.decide(before)
            waits = decision.waits_for
            if decision.cut is None:
                self._views.look_again()
                return Step(waits_for=waits, level=level if waits else self._next.input_lsn())
            why = self._next.trigger(decision.cut, before)
            if why is None and not even_if_quiet:
                self._views.look_again()
                return Step(waits_for=waits, level=decision.cut.lsn)
            trigger = why or Trigger.DEMAND
            for part in decision.cut.tables if self._settings.has_history else ():
                self._gaps.refuse_folded(part)
                self._gaps.refuse_retired(part)
            self._at("before the cut")
            cut = decision.cut
            if not self._decide(cut):  # another writer's counts, which is looked at like any that was found
                return self._step(even_if_quiet=even_if_quiet)
        try:
            return replace(self._finish(cut, before), trigger=trigger, waits_for=waits, level=cut.lsn)
        except (LaggingWriter, LogGap, Refetch, UnknownLog) as error:
            if not self._is_overtaken(cut, error):
                raise
            logger.info("%s", error)
            return Step(waits_for=waits, level=level, overtaken=str(error))

    def _is_overtaken(self, cut: Cut, error: StorageError) -> bool:
        """Whether nobody misses what failed: a twin has done it, or what was read was removed, or has a newer base."""
        if isinstance(error, LaggingWriter | Refetch):
            return True
        newest = latest_version(self._lake)
        is_published = newest is not None and newest.number >= cut.number
        return is_published or any(map(self._next.is_over, cut.tables))

    def _newest(self) -> Version | None:
        """The newest version, on the disk: whoever published it may have died before that."""
        found = latest_version(self._lake)
        if found is not None and found.number != self._synced:
            self._lake.sync_folder(VERSIONS)
            self._synced = found.number
        return found

    def _joining_cut(self, before: Version) -> Cut:
        """The cut behind a version: with the rows of that one, unless another was decided already."""
        last = read_cut(self._lake, before.number)
        assert last is not None, "the newest version's cut is kept"
        self._next.is_ours(last)
        parts = (replace(one, after=one.upto, begins=False) for one in last.tables if before.table(one.name))
        cut = replace(last, number=before.number + 1, tables=tuple(parts), joins_all=True)
        found = cut if self._decide(cut) else read_cut(self._lake, cut.number)
        assert found is not None, "somebody wrote it"
        return found

    def _decide(self, cut: Cut) -> bool:
        """Let it be the cut of that number; False if another one is."""
        is_first = create_once(self._lake, numbered_path(CUTS, cut.number), cut.to_json(), self._unique)
        self._at("after the cut")
        return is_first

    def _give_up(self, cut: Cut, before: Version | None) -> Version:
        """A cut whose rows are in a folder that the lake leaves: its version is the one before, once more."""
        nothing = Version(cut.number, cut.incarnation, cut.lsn, cut.commit_time, ())
        made = nothing if before is None else replace(before, number=cut.number)
        return publish(self._lake, made, self._unique)

    def _finish(self, cut: Cut, before: Version | None) -> Step:
        known = {} if before is None else {table.name: table for table in before.tables}
        # What is joined only is in the lake: nobody asks for its log.
        parts = [table for table in cut.tables if cut.joins_all or not self._next.is_over(table)]
        quiet = {
            table.name for table in parts if table.name in known and not (table.begins or self._next.has_rows(table))
        }
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
        except LogGap as error:
            if not self._is_folded_since(parts, steps):
                raise
            raise Refetch("rows were folded while they were read; they are read from what has them now") from error
        tables = tuple(replace(known[table.name], upto=table.upto) for table in parts)
        made = Version(cut.number, cut.incarnation, cut.lsn, cut.commit_time, tables)
        version = publish(self._lake, made, self._unique)
        self._at("after the version")
        self.show()
        self._at("after the views")
        for table in () if cut.joins_all else parts:
            if table.name not in quiet or self._leases.is_due(table.log):
                self._leases.take(table.log, table.upto)
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

    def _from_base(self, step: TableStep) -> TableStep:
        """The step; if its log has the rows that come next in a base only, the step from that base's floor on."""
        part = step.part
        if part.after == part.upto or not self._next.may_begin_anew(begins=part.begins) or step.is_done():
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

    def _is_folded_since(self, parts: list[TableCut], steps: list[TableStep]) -> bool:
        """Whether the log of a table that may pass over its rows was made shorter after the work was planned.

        The next plan takes that into account, so each fold is met once, and a gap that no fold explains is left over.
        """
        done = {step.name for step in steps if step.is_done()}
        if not self._settings.has_history and any(self._gaps.is_torn(part) for part in parts if part.name not in done):
            return True
        waiting = [step.part for step in steps if step.name not in done]
        anew = [part for part in waiting if self._next.may_begin_anew(begins=part.begins) and part.after < part.upto]
        return any(self._gaps.base_instead(part.log, part.after) is not None for part in anew)

    def _table_step(self, cut: Cut, part: TableCut, before: TableVersion | None) -> TableStep:
        data, load, has_history = str(self._data.root), self._next.load_of(part), self._settings.has_history
        return TableStep(
            self._root, data, self._next.reader, cut, part, before, load, self._known, self._log_of, has_history
        )

    def _do(self, work: Iterable[tuple[TableStep, list[Work]]]) -> None:
        """One job for all tables; each gets what its own work has done."""
        planned = [(step, item) for step, items in work for item in items]
        if planned:
            done = self._run([item for _, item in planned])
            for (step, _), one in zip(planned, done, strict=True):
                step.done.append(one)
