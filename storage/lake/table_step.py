"""One table's part of a cut: which work there is, and the commits that follow from it."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.folder_reader import FolderReader
from storage.lake.cuts import Cut, TableCut
from storage.lake.delta_log import Committed, DeltaLog
from storage.lake.joins import ALL_SMALL, joins
from storage.lake.keys import Key
from storage.lake.lake_layout import (
    CHANGES,
    STATE,
    changes_order,
    generation_folder,
    is_misnamed,
    side_folder,
    staging_folder,
)
from storage.lake.loads import Load
from storage.lake.parquet_files import NewFile, facts_of
from storage.lake.pieces import pieces
from storage.lake.state import StateFile, shares
from storage.lake.state_joins import state_joins
from storage.lake.table_schema import TableSchema
from storage.lake.tasks import SAMPLE_ROWS, Done, JoinChanges, MergeRange, ReadPiece, TableWork, Work, planned
from storage.lake.versions import SideVersion, TableVersion
from storage.lake.widening import is_wider, joined


class KnownFiles:
    """What the footers of files say: read once, since files never change."""

    def __init__(self) -> None:
        self._facts: dict[Path, dict[str, StateFile]] = {}

    def state_file(self, folder: Path, name: str) -> StateFile:
        """A file of a state."""
        of_folder = self._facts.setdefault(folder, {})
        if name not in of_folder:
            rows, size, low = facts_of(folder / name)
            of_folder[name] = StateFile(name, low, rows, size)
        return of_folder[name]

    def forget_except(self, folder: Path, names: Iterable[str]) -> None:
        """Files that are gone need not be known."""
        of_folder = self._facts.get(folder, {})
        self._facts[folder] = {name: of_folder[name] for name in names if name in of_folder}


@dataclass
class TableStep:
    """A table on its way from one cut to the next: `first_work`, `second_work`, `commit`, in this order."""

    root: Path
    data_folder: str
    reader: FolderReader
    cut: Cut
    part: TableCut
    before: TableVersion | None
    load: Load | None
    """The base with which the log begins; None if it goes on."""
    known: KnownFiles
    log_of: Callable[[Path], DeltaLog]
    has_history: bool = True
    is_anew: bool = False
    """The load is of this step alone, since the log no longer has the rows that came next."""
    done: list[Done] = field(default_factory=list)
    files: list[StateFile] = field(default_factory=list)
    """The state before the cut."""
    planned_on: dict[str, int] = field(default_factory=dict)
    """The last cut of each side when its files were listed."""
    gone: set[str] = field(default_factory=set)
    """Files of the table's log that this cut removes whatever is written."""

    def __post_init__(self) -> None:
        self.schema = TableSchema.of_definition(self.part.definition)
        wanted = {STATE: self.schema.state} if self.schema.has_state else {}
        wanted |= {CHANGES: self.schema.changes} if self.has_history else {}
        self.sides = {side: self.log_of(self.root / self._side(side)) for side in wanted}
        self.known_columns = {side: log.schema() for side, log in self.sides.items()}
        self.columns = {side: joined(self.known_columns[side], wanted[side]) for side in wanted}

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def refetched(self) -> int | None:
        """If the log takes another's place in this generation: the LSN up to which the other's changes are known."""
        if not self.part.begins or self.before is None or self.before.generation != self.part.generation:
            return None
        if not self.has_history:
            return None
        return self.before.upto.tx

    def is_done(self) -> bool:
        """Whether somebody has done all that was to be done."""
        adopted = [log.adopted(self.cut.number) for log in self.sides.values()]
        return all(one is not None for one in adopted)

    def lacks_load(self) -> bool:
        """Whether the base with which the log begins was in the lake, and some of its files went."""
        folder = self.root / self._side(STATE)
        return any(not (folder / file.name).exists() for file in self._loaded)

    def first_work(self) -> list[Work]:
        """Pieces of the log to be read; none if somebody has done all that was to be done."""
        self.planned_on = {side: log.latest_cut() for side, log in self.sides.items()}  # before they are listed
        self._look_at_state()
        joins_of_history = self._joins()
        if self.is_done():  # asked after the files were listed, so those are the table's before the cut, and no later
            return []
        ranges = pieces(self.reader, self.part.log, self.part.after, self.part.upto)
        pieces_of_log: list[Work] = [
            ReadPiece(
                self.table_work(),
                after,
                upto,
                tuple(self.files),
                is_whole=len(ranges) == 1,
                refetched=None if number else self.refetched,
                columns=self.columns.get(CHANGES),
            )
            for number, (after, upto) in enumerate(ranges)
        ]
        return [*joins_of_history, *pieces_of_log]

    def second_work(self) -> list[Work]:
        """Ranges of keys to be merged with what the first work staged."""
        staged = [done for done in self.done if done.staged is not None]
        if not staged:
            is_quiet = self.cut.joins_all and not any(done.state for done in self.done)
            return [MergeRange(self.table_work(), part, ()) for part in state_joins(self.files)] if is_quiet else []
        last = max((number for number, done in enumerate(staged) if done.is_emptied), default=0)
        is_emptied = any(done.is_emptied for done in staged)
        keys = _sorted({key for done in staged[last:] for key in done.keys})
        samples = _sorted(key for done in staged[last:] for key in done.samples)
        paths = tuple(done.staged for done in staged[last:] if done.staged is not None)
        parts = planned(self.files, keys, is_emptied=is_emptied)
        divided = [one for part in parts for one in shares(part, samples, SAMPLE_ROWS)]
        return [MergeRange(self.table_work(), part, paths) for part in divided]

    def commit(self) -> TableVersion:
        """Let both of the table's logs have the cut, the changes first; the table as it is then."""
        part, facts = self.part, {"quarantined": sum(done.quarantined for done in self.done)}
        changes, state, said = None, None, dict[str, Any]()
        if self.has_history:
            gone = {name for done in self.done for name in done.changes_gone}
            changes, said = self._commit(CHANGES, self._written(CHANGES), gone, facts)
        if self.schema.has_state:
            new = self._written(STATE)
            gone = {name for done in self.done for name in done.state_gone}
            if part.begins:
                kept = [file for file in self._loaded if file.name not in gone]
                new += kept
                gone = self.gone - {file.name for file in kept}  # it may have files of the load, if it comes again
            state, of_state = self._commit(STATE, new, gone, {} if self.has_history else facts)
            said = said or of_state
        shutil.rmtree(self.table_work().staging, ignore_errors=True)
        begins_with = self.before if self.load is None else self.load
        count = int(said.get("quarantined", 0)) + (0 if begins_with is None else begins_with.quarantined)
        return TableVersion(part.name, part.generation, part.log, part.handle, part.upto, state, changes, count)

    def give_up(self) -> None:
        """A twin is further: its commits stay, and what was written here for nothing goes."""
        for side in self.sides:
            committed = self.sides[side].known(self.cut.number) if self.done or self.is_anew else None
            if committed is not None:
                self._remove_orphans(side, self._written(side), committed.version)

    def _written(self, side: str) -> list[NewFile]:
        return [file for done in self.done for file in (done.changes if side == CHANGES else done.state)]

    def files_of(self, side: str) -> list[str]:
        """The files that a side has now."""
        return self.sides[side].files()

    def _commit(
        self, side: str, new: Sequence[NewFile], gone: Iterable[str], facts: dict[str, Any]
    ) -> tuple[SideVersion, dict[str, Any]]:
        log, number = self.sides[side], self.cut.number
        committed: Committed | None = log.adopted(number)
        before = None if self.before is None or self.part.begins else self.before.side(side)
        if committed is None and before is not None and not new and not set(gone):
            return before, {}
        if committed is None:
            if self.part.begins:
                log.create(self.columns[side])
            is_all_new = self._is_wider(side)
            files_gone = None if is_all_new else sorted(gone)
            committed = log.commit(number, self.columns[side], new, files_gone, facts, after=self.planned_on[side])
        self._remove_orphans(side, new, committed.version)
        log.checkpoint(committed.version)
        return SideVersion(committed.version, number), committed.facts

    def _remove_orphans(self, side: str, new: Sequence[NewFile], version: int) -> None:
        """If a twin's commit came first, what was written here is nobody's.

        Looked up in that commit: a later one, of a twin that is further, may have replaced files of ours that this
        cut's version needs.
        """
        log, of_load = self.sides[side], self._loaded
        kept = set(log.files_at(version)) | {file.name for file in of_load if not self.is_anew}
        for file in [*new, *(of_load if self.is_anew and side == STATE else ())]:
            if file.name not in kept:
                (log.folder / file.name).unlink(missing_ok=True)

    def _look_at_state(self) -> None:
        """The state's files before the cut: the table's, or those of the base with which the log begins."""
        folder = self.root / self._side(STATE)
        if not self.schema.has_state:
            return
        listed = [name for name in self.sides[STATE].files() if (folder / name).exists()]
        if self.part.begins:
            self.gone = set(self.sides[STATE].files())
            listed = [file.name for file in self._loaded if (folder / file.name).exists()]
        self.files = [self.known.state_file(folder, name) for name in listed]
        self.known.forget_except(folder, listed)

    def _is_wider(self, side: str) -> bool:
        """Whether all of a side's files are written anew with this cut, since a column's type is wider from now on."""
        known = self.known_columns[side]
        return self.part.begins and known is not None and is_wider(known, self.columns[side])

    def _joins(self) -> list[Work]:
        """Files of changes that are written anew: neighbours as one, or each with wider columns."""
        if not self.has_history:
            return []
        folder, names = self.root / self._side(CHANGES), sorted(self.sides[CHANGES].files(), key=changes_order)
        if self._is_wider(CHANGES):
            runs = [range(number, number + 1) for number in range(len(names))]
        else:
            sizes = [(folder / name).stat().st_size for name in names]
            runs = joins(sizes, ALL_SMALL) if self.cut.joins_all else joins(sizes)
            runs += _misnamed(names, runs) if self.cut.joins_all else []
        return [self._join(names, run) for run in runs]

    def _join(self, names: Sequence[str], run: range) -> JoinChanges:
        previous = names[run.start - 1] if run.start else None
        return JoinChanges(self.table_work(), tuple(names[run.start : run.stop]), previous, self.columns[CHANGES])

    @property
    def _loaded(self) -> tuple[NewFile, ...]:
        """The files of the base with which the log begins."""
        return () if self.load is None else self.load.files

    def _side(self, side: str) -> str:
        return side_folder(self.part.name, self.part.generation, side)

    def table_work(self) -> TableWork:
        """What tasks are told of the table."""
        return TableWork(
            self.data_folder,
            str(self.root / generation_folder(self.part.name, self.part.generation)),
            str(self.root / staging_folder(self.cut.number) / self.part.name),
            self.part.name,
            self.part.log,
            self.cut.number,
            self.schema,
        )


def _misnamed(names: Sequence[str], runs: Iterable[range]) -> list[range]:
    """Files, in no run, whose names do not sort as their rows do."""
    in_runs = {number for run in runs for number in run}
    wrong = (number for number in range(1, len(names)) if is_misnamed(names[number], names[number - 1]))
    return [range(number, number + 1) for number in wrong if number not in in_runs]


def _sorted(keys: Iterable[Key]) -> pa.Array:
    found = sorted(keys)
    return pa.array(found, pa.int64() if found and isinstance(found[0], int) else pa.large_string())
