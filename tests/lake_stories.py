"""Stories of a lake: by one seed, all that can happen to tables and to writers, one inside the other.

A story is a number of chapters. In each, things happen to the tables of a bank: transactions, TRUNCATE, successors with
other columns, removal, return. A writer of the lake takes a step; wherever it can be stopped, and whenever a Delta log
is opened, it may be killed, or overtaken: other writers take steps right there, and may be killed and overtaken in
their turn, and more things happen. Some writers live through several chapters, some join what is small, or rest. At the
chapter's end all is quiet: old versions may be removed, and a new writer brings the lake level. Then
`tests.lake_story_checks` looks at every version there is, and logs that ended are removed. About one lake in three
keeps states only.

No step may fail, whoever is killed or overtaken: an error of the lake ends the story as a failure. Files, row groups
and pieces are so small that a bank of thirty accounts has many.

    python -m tests.lake_stories 7          the story with seed 7
    python -m tests.lake_stories 100 200    a hundred stories, until one fails
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from deltalake import DeltaTable

from storage.disk import LocalDisk
from storage.lake import state, state_files, state_joins, table_step, tasks
from storage.lake.delta_log import DeltaLog
from storage.lake.joins import joins
from storage.lake.loads import read_loads
from storage.lake.pieces import pieces
from storage.lake.retire import retire
from storage.lake.writer import LakeWriter
from storage.rows import Kind
from tests.bank import COLUMNS
from tests.lake_story_checks import check_lake
from tests.lakes import Lakes

NAMES: Final = ("checking", "savings", "third")
SUCCESSORS: Final[list[dict[str, tuple[int, int]]]] = [
    COLUMNS,
    COLUMNS | {"id": (20, -1)},
    COLUMNS | {"more": (25, -1)},
    COLUMNS | {"balance": (1700, (16 << 16 | 2) + 4)},
    {"Owner" if name == "owner" else name: kind for name, kind in COLUMNS.items()},
]
"""The same, a wider key, one more column, wider values, and a name that begins a generation."""
INSIDE_MAX: Final = 3
"""Writers that are at work inside another's step, one in the other."""
WRITERS_KEPT: Final = 3
QUIET_STEPS_MAX: Final = 8
"""Steps after which a writer whom nobody disturbs has done what there is to do."""
TOLD_LAST: Final = 15
CHAPTERS: Final = 14


class Killed(BaseException):
    """A writer's process is gone: not an error, which somebody could handle."""


class Story:
    """One course of events, given by its seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.lakes = Lakes(folder, seed=seed, accounts=30)
        self.bank = self.lakes.bank
        self.state_only = self.chance.random() < 0.3
        self.columns: dict[int, dict[str, list[str]]] = {}
        """What columns the tables have at each confirmed G."""
        self.told: list[str] = []
        """What writers met, for whom it may concern."""
        self._ended: list[int] = []
        """Logs whose shapes ended, and that are there yet."""
        self._writers: list[LakeWriter] = []
        self._at_work: list[LakeWriter] = []
        """The writers whose steps are open: each but the first has overtaken the one before."""
        self._kills = self._overtakes = 0.0

    def play(self, chapters: int = CHAPTERS) -> None:
        """The whole story; a failure says what repeats it."""
        try:
            self._confirm()
            with small_sizes(), openings(self._somewhere):
                for _ in range(chapters):
                    self._chapter()
        except BaseException as error:
            error.add_note(f"To repeat it: python -m tests.lake_stories {self.seed}")
            error.add_note(f"It keeps states only: {self.state_only}. Last: {'; '.join(self.told[-TOLD_LAST:])}")
            raise
        finally:
            self.bank.close()

    def _chapter(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            self._happen()
        self._kills = self.chance.choice([0, 0, 0.02, 0.1])
        self._overtakes = self.chance.choice([0, 0.03, 0.08])
        self._step(self._some_writer(newcomers=0.4))
        self._kills = self._overtakes = 0.0
        if self.chance.random() < 0.3:
            kept = self.chance.randrange(1, 5)
            self.told.append(f"all but {kept} versions removed")
            retire(self.lakes.root, now=time.time() + 1e5, kept=kept, age_seconds=0, orphan_seconds=3e5)
        self._rest()
        check_lake(self.lakes, self.columns)
        self._forget()

    def _forget(self) -> None:
        """Logs that ended go, and so do their loads; writers live on that have seen them."""
        for log in self._ended:
            self.bank.store.remove_log(log)
        self._ended.clear()
        writer = self.lakes.writer(state_only=self.state_only)
        retire(self.lakes.root, now=time.time(), age_seconds=1e6, orphan_seconds=1e6, is_of_use=writer.is_of_use)
        assert set(read_loads(LocalDisk(self.lakes.root))) == {*self.bank.logs.values()}

    def _rest(self) -> None:
        writer = self._some_writer(newcomers=1.0)
        for _ in range(QUIET_STEPS_MAX):
            step = writer.step()
            assert not step.waits_for, "nothing is on its way that could be waited for"
            if step.version is None:
                assert step.level == self.bank.lsn
                return
        raise AssertionError(f"after {QUIET_STEPS_MAX} steps there is still something to do")

    def _some_writer(self, newcomers: float) -> LakeWriter:
        """A new one, or one from before: who is at work cannot begin another step."""
        idle = [writer for writer in self._writers if writer not in self._at_work]
        if idle and self.chance.random() >= newcomers:
            return self.chance.choice(idle)
        writer = self.lakes.writer(self._somewhere, state_only=self.state_only)
        self._writers = [*self._writers, writer][-WRITERS_KEPT:]
        return writer

    def _step(self, writer: LakeWriter) -> None:
        """One step, which may be the writer's last."""
        self._at_work.append(writer)
        try:
            if self.chance.random() < 0.05 and writer.published() is not None:
                self.told.append("all is joined")
                writer.compact()
            else:
                writer.step(even_if_quiet=self.chance.random() < 0.1)
                if self.chance.random() < 0.3 and writer.rest().version is not None:
                    self.told.append("a state is joined at rest")
        except Killed:
            self._writers = [one for one in self._writers if one is not writer]
        finally:
            self._at_work.pop()

    def _somewhere(self, where: str) -> None:
        """A writer is here: it may die, or others may get further before it goes on."""
        if self.chance.random() < self._kills:
            self.told.append(f"killed {where}")
            raise Killed
        if 1 <= len(self._at_work) <= INSIDE_MAX and self.chance.random() < self._overtakes:
            for _ in range(self.chance.randrange(1, 4)):
                self.told.append(f"overtaken {where} ({len(self._at_work)})")
                if self.chance.random() < 0.3:
                    self._happen()
                self._step(self._some_writer(newcomers=0.5))

    def _happen(self) -> None:
        """Something happens to the bank's tables, and the progress log says so."""
        deeds, weights = zip(*self._deeds(), strict=True)
        self.chance.choices(deeds, weights)[0]()
        self._confirm()

    def _deeds(self) -> Iterator[tuple[Callable[[], None], float]]:
        names = sorted(self.bank.logs)
        missing = [name for name in NAMES if name not in names]
        yield lambda: None, 0.14  # a quiet time
        yield lambda: self.bank.play(self.chance.randrange(1, 12)), 0.55
        yield lambda: self._truncate(self.chance.choice(names)), 0.07
        yield lambda: self._succeed(self.chance.choice(names)), 0.1
        if len(names) > 1:
            yield lambda: self._end(self.chance.choice(names)), 0.06
        if missing:
            yield lambda: self._open(self.chance.choice(missing)), 0.08

    def _truncate(self, name: str) -> None:
        self.bank.commit((name, Kind.TRUNCATE, None))
        for place in range(self.chance.randrange(5)):
            key = str(1000 * place + self.chance.randrange(1000))
            self.bank.commit((name, Kind.INSERT, self.bank.account(name, key)))

    def _succeed(self, name: str) -> None:
        """Another log takes the place of the table's, perhaps only after a while."""
        columns = self.chance.choice(SUCCESSORS)
        rows = {key: {column: row.get(column) for column in columns} for key, row in self.bank.rows[name].items()}
        self._ended.append(self.bank.logs[name])
        old = self.bank.end_table(name, "column")
        if self.chance.random() < 0.3:
            self._confirm()
        self.bank.succeed_table(name, old, columns, rows)

    def _end(self, name: str) -> None:
        self._ended.append(self.bank.logs[name])
        self.bank.end_table(name, "removed")

    def _open(self, name: str) -> None:
        """A table that is new, or comes again."""
        self.bank.columns.pop(name, None)
        self.bank.open_table(name, self.bank.accounts(name, self.chance.randrange(40)))

    def _confirm(self) -> None:
        lsn = self.bank.confirm()
        self.columns[lsn] = {name: [*self.bank.columns[name]] for name in self.bank.logs}


@contextmanager
def small_sizes() -> Iterator[None]:
    """Files of 16 rows in 4 row groups, pieces of a few changes; three files of changes are joined."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (state, state_files):
            patch.setattr(module, "STATE_FILE_ROWS", 16)
            patch.setattr(module, "STATE_GROUPS", 4)
        for module in (tasks, table_step):
            patch.setattr(module, "SAMPLE_ROWS", 2)
        for module in (tasks, state_joins):
            patch.setattr(module, "STATE_FILE_ROWS", 16)
        patch.setattr(state_joins, "STATE_FILES_FEW", 0)
        patch.setattr(table_step, "joins", lambda sizes, tiers=((1 << 20, 3),): joins(sizes, tiers))
        patch.setattr(table_step, "pieces", partial(pieces, wire_bytes=300))
        yield


@contextmanager
def openings(at: Callable[[str], None]) -> Iterator[None]:
    """Let somebody come by whenever a Delta log is opened."""
    opened = DeltaLog.open

    def hooked(log: DeltaLog) -> DeltaTable | None:
        at(f"before it looks at {'/'.join(log.folder.parts[-3:])}")
        return opened(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaLog, "open", hooked)
        yield


if __name__ == "__main__":
    first, *more = map(int, sys.argv[1:])
    for seed in range(first, *(more or [first + 1])):
        with TemporaryDirectory() as folder:
            Story(Path(folder), seed).play()
        sys.stdout.write(f"story {seed}: all was well\n")
        sys.stdout.flush()
