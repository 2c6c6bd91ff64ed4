"""A bit of the journal rots, at random: no log is shorter than G says without saying so.

Rows of some logs are flushed, joined, moved to segments and left open, in any order. Then one bit of one journal file
is another, most often in its last block, which nothing behind it proves. Whatever the next process makes of it: what
it reads of a log is a prefix of what was committed, and a log that does not stop has all that Postgres may forget.
"""

import logging
from collections.abc import Iterator
from random import Random

import pytest

from storage.errors import LogFault
from storage.memory_disk import MemoryDisk
from storage.offset import SNAPSHOT_END
from storage.store import Store
from storage.store_reader import StoreReader
from tests.model import Row, rows_in
from tests.world import World, copy_of, small_options

SEEDS_COUNT = 30
"""Some of thousands lose the last claim for rows below G, which the documents name among what cannot be seen."""
FLUSHES_MAX = 25


def a_world(random: Random) -> World:
    """Bounds so low that shares are joined, and joined ones moved, after a few flushes."""
    options = small_options(
        own_segment_bytes=random.choice([900, 2_000, 10**9]),
        journal_file_bytes=random.choice([1, 2_000, 5_000]),
        journal_bytes=random.choice([3_000, 6_000]),
        journal_joined_bytes=random.choice([3_000, 6_000, 10**7]),
        flush_log_rows=3,
    )
    return World(MemoryDisk(), options).open()


def a_flush(world: World, logs: list[int], random: Random) -> None:
    for _ in range(random.randint(1, 3)):
        changes = [set(random.sample(logs, random.randint(0, len(logs)))) for _ in range(random.randint(1, 3))]
        world.stream.add(*changes, text_bytes=random.choice([1, 40, 300]))
    if random.random() < 0.3:
        world.send(random.randint(1, 6), commit=random.random() < 0.6)
    else:
        world.send_all()
    if random.random() < 0.1:
        world.abandon()
    world.tick(0.4)
    world.flush(*random.sample(logs, random.randint(1, len(logs))))
    if random.random() < 0.5:
        world.confirm()


def rotten(world: World, random: Random) -> MemoryDisk:
    """The disk of a process that was killed, with one bit changed."""
    disk = copy_of(world.memory)
    files = [file for file in world.store.logs.index.files.values() if file.refs and disk.exists(file.path)]
    if files:
        joined = [file for file in files if not file.is_young]
        file = random.choice(joined if joined and random.random() < 0.7 else files)
        content = bytearray(disk.read(file.path, 0, disk.size(file.path)))
        first = file.refs[-1].position if random.random() < 0.5 else 0
        content[random.randrange(first, len(content))] ^= 1 << random.randrange(8)
        disk.truncate(file.path, 0)
        disk.append(file.path, [content])
    return disk


def read_on(reader: StoreReader, log: int) -> tuple[list[Row], bool]:
    """All that can be read of a log, and whether it stopped behind that."""
    found: list[Row] = []
    after = SNAPSHOT_END
    while True:
        try:
            result = reader.read(log, after)
        except LogFault:
            return found, True
        found += rows_in(result.rows)
        if result.at_end:
            return found, False
        after = result.next


@pytest.mark.parametrize("seed", range(SEEDS_COUNT))
def test_nothing_is_lost_in_silence(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr("storage.limits.JOURNAL_LOGS_PER_FLUSH", random.choice([1, 2, 64]))
    monkeypatch.setattr("storage.limits.JOURNAL_JOIN_BYTES_MAX", random.choice([1, 500, 10**6]))
    monkeypatch.setattr("storage.limits.JOURNAL_LOG_SHARES_MAX", random.choice([4, 8, 128]))
    world = a_world(random)
    logs = [world.create() for _ in range(random.randint(2, 5))]
    for _ in range(random.randint(5, FLUSHES_MAX)):
        a_flush(world, logs, random)
        if random.random() < 0.5:
            continue
        confirmed_tx = world.stream.confirmed_tx
        store = Store(rotten(world, random), world.clock.clocks(), world.options, confirmed_tx=confirmed_tx)
        reader = StoreReader(store)
        for number, log in world.logs.items():
            found, has_stopped = read_on(reader, number)
            committed = world.stream.of_log(log)
            confirmed = [row for row in committed if row.offset.tx < confirmed_tx]
            assert found == committed[: len(found)]
            assert has_stopped or found[: len(confirmed)] == confirmed, f"log {number} is short"


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Damage is logged, and here there is nothing else."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
