"""A folder's whole life, at random: flushes, joins, moves, folds, compactions, lost connections, crashes; and readers.

Readers of other processes look between any two changes of the disk, in the middle of a write too, and the writer moves
on between any two looks of theirs. Whatever they meet: each log is its base and the rows behind it, a whole number of
transactions, all that was acknowledged, in order, once; and who follows it from some place on is told to begin anew or
misses nothing. The same goes for readers of the writer's own process, in which nothing but what is visible counts.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from storage.compaction import CompactionOptions, compact
from storage.disk import Bytes
from storage.errors import Refetch, UnknownLog
from storage.folder_reader import FolderReader
from storage.log_facts import LogFacts
from storage.memory_disk import Crashed, MemoryDisk, in_runs, luckiest, strictest
from storage.offset import SNAPSHOT_END, LogOffset
from storage.reading import ReadResult
from storage.retention import RetentionPolicy, fold_prefix, retire
from storage.store_reader import StoreReader
from tests.model import LogModel, Row, rows_in
from tests.unit.hooked_disk import hooked
from tests.world import World, copy_of, is_thorough, small_options

SEEDS_COUNT = 3_000 if is_thorough() else 15
STEPS_COUNT = 40
LOGS_MAX = 4
READ_SIZES = [None, 1, 250, 2_000, 10**9]
FOREVER = 10**15
"""Microseconds: every age is above this."""


class WatchedDisk(MemoryDisk):
    """Somebody looks before each change, and in the middle of a write."""

    def __init__(self, root: MemoryDisk | None = None) -> None:
        super().__init__()
        if root is not None:
            self._root = root._root
        self.look: Callable[[], None] = lambda: None

    def append(self, path: str, buffers: Sequence[Bytes]) -> None:
        data = b"".join(buffers)
        self.look()
        if self.crash_at_operation is None and len(data) > 300:
            super().append(path, [data[: len(data) // 2]])
            self.look()
            data = data[len(data) // 2 :]
        super().append(path, [data])

    def sync(self, path: str) -> None:
        self.look()
        super().sync(path)

    def create(self, path: str) -> None:
        self.look()
        super().create(path)

    def rename(self, old: str, new: str) -> None:
        self.look()
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        self.look()
        super().link(old, new)

    def remove(self, path: str) -> None:
        self.look()
        super().remove(path)

    def sync_folder(self, folder: str) -> None:
        self.look()
        super().sync_folder(folder)


class FoldingWorld(World):
    """Its logs have keys, so that they can be folded."""

    def open(self) -> "FoldingWorld":
        super().open()
        return self

    def create_keyed(self) -> int:
        self.numbers += 1
        number = self.numbers
        self.store.create_log(LogFacts(number, f"handle-{number}", key_columns=("id",), chunk_bytes=700))
        self.logs[number] = LogModel(number, len(self.stream.transactions), chunk_bytes=700)
        return number


def read_on(reader: StoreReader | FolderReader, log: int, after: LogOffset, max_bytes: int | None) -> list[ReadResult]:
    results = [reader.read(log, after, max_bytes)]
    while not results[-1].at_end:
        assert results[-1].next > after, "a read that is not at the end moves on"
        after = results[-1].next
        results.append(reader.read(log, after, max_bytes))
    return results


class Story:
    """A writer, two readers in other processes, and what everybody should see."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        options = small_options(
            own_segment_bytes=random.choice([1, 500, 900, 3_000, 10**9]),
            segment_bytes=random.choice([1, 2_000, 4_000]),
            journal_file_bytes=random.choice([1, 3_000, 6_000]),
            journal_bytes=random.choice([4_000, 9_000]),
            journal_joined_bytes=random.choice([4_000, 9_000, 10**7]),
            log_bytes=10**8,
            buffer_bytes=10**8,
        )
        self.disk = WatchedDisk()
        self.disk.make_folder("")
        self.world = FoldingWorld(self.disk, options).open()
        self.is_looking = False
        self.is_in_run = False
        self.looks = 0
        self.folds = 0
        self.joins = 0
        self.positions: dict[tuple[int, int], LogOffset] = {}
        """Where each follower of each log is: by the follower's number and the log's."""
        self._begin_to_watch(self.disk)
        for _ in range(random.randint(1, 3)):
            self.world.create_keyed()

    def _begin_to_watch(self, disk: WatchedDisk, *, readers: Sequence[FolderReader] = ()) -> None:
        self.disk = disk
        disk.look = self.look
        inner = hooked(disk, self.move)
        self.readers = list(readers) or [FolderReader(inner, pause=lambda _: None) for _ in range(2)]
        for reader in self.readers:
            reader._disk = reader._cache._disk = inner

    # Readers

    def look(self) -> None:
        """Between two changes of the disk: readers look at what is there."""
        if self.is_looking or self.random.random() > 0.04 or not self.world.logs:
            return
        self.is_looking = True
        try:
            log = self.world.logs[self.random.choice(sorted(self.world.logs))]
            self.check_others(log)
            if self.is_in_run and log.number not in self.world.unseen:
                self.check_own(log)
        finally:
            self.is_looking = False

    def move(self, operation: str, path: str) -> None:
        """Between two looks of a reader in another process: the writer does something."""
        if self.is_looking or self.random.random() > 0.02 or self.disk.crashed:
            return
        self.is_looking = True  # nobody looks while somebody looks
        try:
            self.random.choice([self.flush, self.flush, self.send, self.fold, self.compact])()
        finally:
            self.is_looking = False

    def check_others(self, log: LogModel) -> None:
        """A log in another process: its base and what follows; and from where a follower is."""
        number = self.random.randrange(len(self.readers))
        reader = self.readers[number] if self.random.random() < 0.8 else FolderReader(self.disk, pause=lambda _: None)
        told, self.looks = log.told, self.looks + 1
        rows, visible = self.whole(reader, log.number)
        every = self.world.stream.of_log(log)
        assert rows == [row for row in every if row.offset <= visible], f"log {log.number} up to {visible}"
        assert told <= visible <= log.visible
        self.follow(number, reader, log)

    def follow(self, number: int, reader: FolderReader, log: LogModel) -> None:
        at = self.positions.get((number, log.number), SNAPSHOT_END)
        try:
            results = read_on(reader, log.number, at, self.random.choice(READ_SIZES))
        except Refetch as refetch:
            floor = refetch.facts["floor"]
            assert at < floor
            self.positions[number, log.number] = floor
            return
        found = rows_in([batch for result in results for batch in result.rows])
        every = self.world.stream.of_log(log)
        assert found == [row for row in every if at < row.offset <= results[-1].visible]
        if self.random.random() < 0.5:
            self.positions[number, log.number] = results[-1].next

    def whole(self, reader: StoreReader | FolderReader, log: int) -> tuple[list[Row], LogOffset]:
        """All of a log: as readers begin. Its rows at their places in the log, and how far it is visible."""
        for _ in range(20):
            base = next((one for one in reversed(reader.bases(log)) if one.is_complete), None)
            rows: list[Row] = []
            try:
                for chunk in range(0 if base is None else len(base.chunks)):
                    assert base is not None
                    batch = reader.read_chunk(log, base.number, chunk)
                    assert batch is not None
                    rows += rows_in([batch])
                after = SNAPSHOT_END if base is None else base.floor
                results = read_on(reader, log, after, self.random.choice(READ_SIZES))
            except Refetch:
                continue  # a newer base came meanwhile
            # A row's id says where it stood.
            folded = [Row(LogOffset(*map(int, row.values[0][1].split("."))), row.values) for row in rows]
            return folded + rows_in([b for result in results for b in result.rows]), results[-1].visible
        raise AssertionError("bases do not come that fast")

    def check_own(self, log: LogModel) -> None:
        """The same in the writer's process, where V is known."""
        rows, visible = self.whole(self.world.reader, log.number)
        assert (rows, visible) == (log.visible_rows, log.visible)
        assert self.world.store.marks(log.number) == (log.visible, log.told)

    def check_all(self) -> None:
        self.is_looking = True
        self.world.look()
        for log in self.world.logs.values():
            self.check_own(log)
            self.check_others(log)
        self.is_looking = False

    # The writer

    def send(self) -> None:
        random, world = self.random, self.world
        if world.must_abandon or self.is_in_run:
            return
        logs = sorted(world.logs)
        for _ in range(random.randint(1, 3)):
            changes = [set(random.sample(logs, random.randint(0, len(logs)))) for _ in range(random.randint(1, 4))]
            world.stream.add(*changes, text_bytes=random.choice([1, 40, 300]))
        if random.random() < 0.25:
            world.send(random.randint(1, 6), commit=random.random() < 0.5)
        else:
            world.send_all()

    def flush(self) -> None:
        random, world = self.random, self.world
        if self.is_in_run or world.must_abandon:
            return
        world.tick(0.4)
        chosen = random.sample(sorted(world.logs), random.randint(1, len(world.logs)))
        world.look(*chosen)
        if world.begin(demand=chosen):
            if random.random() < 0.2:
                self.send()  # while it is in flight
            self.is_in_run = True
            try:
                world.run()
            finally:
                self.is_in_run = False
            world.end()

    def fold(self) -> None:
        policy = RetentionPolicy(bytes_max=self.random.choice([0, 2_000]), step_bytes=self.random.choice([1, 3_000]))
        log = self._log_at_rest()
        if log is not None:
            self.folds += fold_prefix(self.world.store, log, policy, now=FOREVER) is not None
            if self.random.random() < 0.7:
                retire(self.world.store, log, now=FOREVER)

    def compact(self) -> None:
        log = self._log_at_rest()
        if log is not None:
            kept = CompactionOptions(segments_kept=self.random.choice([1, 2]), block_bytes=1_000)
            compact(self.world.store, log, now=FOREVER, options=kept)

    def _log_at_rest(self) -> int | None:
        """A log whose files nobody works on at the moment."""
        if self.is_in_run or self.world.must_abandon or self.world.store._maintenance._logs:
            return None
        log = self.random.choice(sorted(self.world.logs))
        self.world.look(log)
        return log

    def replace_log(self) -> None:
        if len(self.world.logs) == LOGS_MAX:
            gone = self.random.choice(sorted(self.world.logs))
            self.world.remove(gone)
            readers: list[StoreReader | FolderReader] = [self.world.reader, *self.readers]
            for reader in readers:
                with pytest.raises(UnknownLog):
                    reader.read(gone, SNAPSHOT_END)
        self.world.create_keyed()

    def lose_connection(self) -> None:
        self.world.lose_connection()

    def confirm(self) -> None:
        self.world.confirm()

    def kill(self) -> None:
        """The process ends; readers of others go on."""
        self._go_on(WatchedDisk(copy_of(self.disk)), readers=self.readers)

    def cut_power(self) -> None:
        seed = self.random.randrange(10**6)
        choose = self.random.choice([strictest, luckiest, in_runs(Random(seed).randrange)])
        self.positions.clear()
        self._go_on(WatchedDisk(self.disk.crash_image(choose)))

    def _go_on(self, disk: WatchedDisk, readers: Sequence[FolderReader] = ()) -> None:
        world = self.world
        again = FoldingWorld(disk, world.options)
        again.stream, again.logs = world.stream, world.logs
        again.doomed, again.numbers, again.clock = set(world.doomed), world.numbers, world.clock
        self.disk.look = lambda: None
        self.world = again
        again.open()
        if self.random.random() < 0.5:
            again.look()
        self._begin_to_watch(disk, readers=readers)

    def crash_while(self, step: Callable[[], None]) -> None:
        self.disk.crash_at_operation = self.disk.operations + self.random.randint(1, 25)
        self.disk.crash_after = self.random.random() < 0.5
        with contextlib.suppress(Crashed):
            step()
        self.disk.crash_at_operation = None
        if self.disk.crashed:
            self.is_in_run = self.is_looking = False
            self.cut_power()

    def run(self) -> None:
        random = self.random
        steps = [self.send, self.flush, self.fold, self.compact, self.lose_connection, self.confirm, self.replace_log]
        odds = [6.0, 12.0, 3.0, 1.0, 0.7, 2.0, 0.2]
        for _ in range(STEPS_COUNT):
            (step,) = random.choices(steps, odds)
            if random.random() < 0.05:
                self.crash_while(step)
            else:
                step()
            if random.random() < 0.03:
                self.kill()
            self.joins = max(self.joins, len(self.world.store.logs.index.joined_files))
            if random.random() < 0.3:
                self.check_all()
        self.world.settle()
        self.check_all()
        self.cut_power()
        self.check_all()


@pytest.mark.parametrize("seed", range(SEEDS_COUNT))
def test_a_story(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr("storage.limits.JOURNAL_LOGS_PER_FLUSH", random.choice([1, 2, 64]))
    monkeypatch.setattr("storage.limits.JOURNAL_JOIN_BYTES_MAX", random.choice([1, 500, 10**6]))
    monkeypatch.setattr("storage.limits.JOURNAL_LOG_SHARES_MAX", random.choice([4, 8, 128]))
    Story(seed).run()


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Torn tails are logged, and here there are many."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
