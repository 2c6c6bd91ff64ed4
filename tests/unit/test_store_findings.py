"""What the searches found in the store, told shortly: each test failed once, and names the way in which it did.

What only a crash shows is a story in `tests.crash.scenarios`.
"""

import contextlib
import errno
import logging
from collections.abc import Iterator
from random import Random

import pytest

from storage import layout
from storage.errors import LogPoisoned, Misuse
from storage.faulty_disk import Fault, FaultyDisk, NoFaults, Odds, Operation, Rule
from storage.limits import SECTOR_BYTES
from storage.memory_disk import Crashed, MemoryDisk, in_runs, luckiest, strictest
from storage.metrics import Metric
from storage.offset import SNAPSHOT_END, LogOffset
from storage.store import StoreOptions
from tests.crash.scenarios import BIG, BY_SIZE, SHORT_JOURNAL, TO_JOURNAL, TO_SEGMENTS
from tests.model import LogModel
from tests.unit.builders import Rig
from tests.unit.keyed import tiny
from tests.world import World, copy_of, small_options


def test_what_was_mended_may_go_before_the_next_write_succeeds() -> None:
    # A file was cut, then removed; the write after that failed, and all later ones wanted to cut the file again.
    world = World(MemoryDisk(), BY_SIZE).open()
    a, b = world.create(), world.create()
    world.stream.add({a})
    world.send_all()
    world.flush_all()
    world.break_(Rule("append", Fault(errno.ENOSPC, happens=True, appended=10), path="journal/*", calls=None))
    world.stream.add({b})
    world.stream.add({a}, {a}, text_bytes=500)
    world.send_all()
    world.flush_all()  # the journal's file is to be cut; and to be removed, since a segment took what it held
    world.flush_all()
    assert world.is_paused()
    world.heal()
    world.flush_all()
    assert not world.is_paused()
    world.finish()


def test_the_end_of_a_transaction_does_not_reach_a_log_that_stopped() -> None:
    # V moved over rows that were gone, and `flush_all` waited for D to follow.
    world = World(MemoryDisk(), TO_SEGMENTS).open()
    a = world.create()
    world.stream.add({a}, {a})
    world.send(1)
    world.break_(Rule("append", Fault(errno.EACCES), path=f"logs/{a}/*", calls=None))
    world.flush_all()
    with pytest.raises(LogPoisoned):
        world.store.commit(a, world.stream.transactions[0].aligned)
    world.check()
    assert world.store.flush_all() == []


def test_who_flushes_everything_does_not_wait_for_his_own_flush() -> None:
    # One thread began a flush, and then asked for all to be flushed: that spun for ever.
    world = World(MemoryDisk(), TO_JOURNAL).open()
    a = world.create()
    world.stream.add({a})
    world.send_all()
    assert world.begin(demand=[a])
    with pytest.raises(Misuse):
        world.store.flush_all()
    world.finish()


def test_a_flush_is_due_at_the_moment_that_was_named() -> None:
    # The two sides of one inequality were rounded differently: due, and yet nothing to do.
    for hundredths in range(100):
        world = World(MemoryDisk(), TO_JOURNAL).open()
        a = world.create()
        world.clock.seconds = 1_023 + hundredths / 100  # within a second of a power of two
        world.stream.add({a})
        world.send_all()
        due_at = world.store.next_flush_at()
        assert due_at is not None
        world.clock.seconds = due_at
        assert world.begin()


def test_a_log_that_cannot_be_opened_does_not_keep_the_journal_from_being_emptied() -> None:
    # Its shares were asked for with those of the others, and so no flush of any log began.
    many_files = small_options(own_segment_bytes=10**9, journal_file_bytes=1, journal_bytes=10**9)
    world = World(MemoryDisk(), many_files).open()
    a, b, c = world.create(), world.create(), world.create()
    for _ in range(6):
        world.stream.add({a}, {b}, {c})
        world.send_all()
        world.flush_all()
    world = world.crashed(world.memory.crash_image(luckiest))
    world.options = SHORT_JOURNAL
    world.open()
    world.break_(Rule("names", Fault(errno.EACCES), path=f"logs/{a}", calls=None))
    world.look(b, c)
    world.flush_until_quiet()
    assert world.disk.log
    assert [world.store.logs.index.shares_count(log) for log in (a, b, c)] == [6, 1, 1], "joined, but for one"
    world.heal()
    world.finish()


def test_a_log_that_another_process_was_making_is_there_for_good_or_not_at_all() -> None:
    # A process was killed before it synced the log's name; the next one found the log, and relied on it.
    for number in range(1, 20):
        world = World(MemoryDisk(), TO_JOURNAL).open()
        world.memory.crash_at_operation = world.memory.operations + number
        with contextlib.suppress(Crashed):
            world.create()
        left = world.killed()
        if left.memory.exists("logs/1/log.json"):
            left.doomed.clear()
            left.logs = {1: LogModel(1, 0)}
            left.open()
            left.stream.add({1})
            left.send_all()
            left.flush_all()
            survivor = left.crashed(left.memory.crash_image(strictest)).open()
            survivor.look()
            survivor.finish()
    assert not world.memory.crashed


@pytest.mark.parametrize("text_bytes", [8, 700])  # to the journal, to a segment
def test_a_damaged_snapshot_leaves_the_rows_after_it_readable(text_bytes: int) -> None:
    # The log did not open: with segments it was an IndexError, without them its rows were not seen.
    world = World(MemoryDisk(), BY_SIZE).open()
    a = world.create()
    writer = world.store.new_base(a)
    writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0)
    world.stream.add({a}, text_bytes=text_bytes)
    world.send_all()
    world.flush_all()
    path = layout.base_path(a, 0)
    world.memory.truncate(path, 0)
    world.memory.append(path, [b"not a block".ljust(128)])
    again = world.killed()
    again.logs[a].has_ended = True
    again.open().look()
    assert again.stopped == {a}
    assert again.logs[a].told == world.logs[a].told
    again.check()


def test_a_copy_that_was_torn_goes_before_what_it_copied() -> None:
    # What tells a torn copy from damage is the old file. A second crash left the copy alone: the store did not open.
    world = World(MemoryDisk(), TO_JOURNAL).open()
    a = world.create()
    world.stream.add({a})
    world.stream.add({a}, {a})
    world.send(2)
    world.flush_all()
    world.confirm()
    world.memory.crash_at_sync = world.memory.syncs + 1
    with contextlib.suppress(Crashed):
        world.abandon()
    torn = world.memory.crash_image(lambda count: count // 2 if count > SECTOR_BYTES else count - 1)
    for number in range(1, 30):
        again = world.crashed(copy_of(torn))
        again.memory.crash_at_operation = number
        with contextlib.suppress(Crashed):
            again.open().look()
        survivor = again.crashed(again.memory.crash_image(luckiest)).open()
        survivor.look()
        survivor.finish()
    assert not again.memory.crashed


def test_an_unsynced_copy_is_made_certain_before_what_it_copied_goes() -> None:
    # A sync failed, and the process ended, with all of the copy below G. The next one must not take it for certain:
    # it removes the file that it came from.
    world = World(MemoryDisk(), TO_JOURNAL).open()
    a = world.create()
    for changes in ({a}, set[int]()):
        world.stream.add(changes)
        world.send_all()
        world.flush_all()
    world.confirm()
    world.stream.add({a}, {a})
    world.send(1, commit=False)
    world.flush_all()
    world.break_(Rule("sync", Fault(errno.EIO), path="*.journal"))
    world.abandon()
    assert world.disk.log, "it failed"
    again = world.killed().open()
    again.look()
    image = again.memory.crash_image(strictest)
    for file in again.store.logs.index.files.values():
        assert image.size(file.path) == file.size, "it is relied on"
    survivor = again.crashed(image).open()
    survivor.look()
    survivor.finish()


@pytest.mark.parametrize("options", [TO_JOURNAL, TO_SEGMENTS], ids=["journal", "segments"])
@pytest.mark.parametrize("path", ["*.segment", "*.journal"])
def test_a_failed_sync_is_not_made_up_for_by_the_next_process(options: StoreOptions, path: str) -> None:
    # The process died of it. The next one's sync reported success, so it took the rows for durable: a power cut
    # left a log without them, below G.
    for first in (1, 2, 3):
        world = World(MemoryDisk(), options).open()
        a = world.create()
        world.break_(Rule("sync", Fault(errno.EIO), path=path, first=first))
        for _ in range(3):
            world.stream.add({a}, {a})
            world.send_all()
            world.flush_all()
        for _ in range(2):
            world = world.killed().open()
            world.look()
            world.check()
            world.confirm()
            world.stream.add({a})
            world.send_all()
            world.flush_all()
            world.confirm()
            survivor = world.crashed(world.memory.crash_image(strictest)).open()
            survivor.look()
            survivor.finish()


@pytest.mark.parametrize("options", [TO_JOURNAL, TO_SEGMENTS], ids=["journal", "segments"])
def test_a_failed_cut_is_not_made_up_for_by_the_next_process(options: StoreOptions) -> None:
    # What was cut came back with the power, beside the same rows in another file.
    for operation in ("sync", "sync_folder", "rename", "truncate"):
        for first in range(1, 6):
            world = World(MemoryDisk(), options).open()
            a = world.create()
            world.stream.add({a})
            world.send_all()
            world.flush_all()
            world.stream.add({a}, {a})
            world.send(1, commit=False)
            world.flush_all()
            world.break_(Rule(operation, Fault(errno.EIO), first=first))
            world.abandon()
            world = world.killed().open()
            world.look()
            world.send_all()
            world.flush_all()
            world.confirm()
            for image in (strictest, luckiest):
                survivor = world.crashed(world.memory.crash_image(image)).open()
                survivor.look()
                survivor.finish()


@pytest.mark.parametrize("options", [TO_JOURNAL, TO_SEGMENTS], ids=["journal", "segments"])
@pytest.mark.parametrize("operation", ["rename", "sync_folder"])
def test_a_copy_that_took_a_files_place_is_there_for_certain(operation: Operation, options: StoreOptions) -> None:
    # The disk was full only for the last step of the copy. What was copied was then cut like the old file, and went on
    # under a name that a power cut gives back to the old one.
    world = World(MemoryDisk(), options).open()
    a = world.create()
    send_small(world, a)
    world.break_(
        Rule("append", Fault(errno.ENOSPC, happens=True, appended=100)),
        Rule(operation, Fault(errno.ENOSPC, happens=operation == "rename")),
    )
    for _ in range(3):
        send_small(world, a)
    assert len(world.disk.log) == 2
    survivor = world.crashed(world.memory.crash_image(strictest)).open()
    survivor.look()
    survivor.finish()


def test_a_torn_block_goes_before_its_rows_become_durable_elsewhere() -> None:
    # The journal's disk was full, and the rows grew until they went to the log's own segment. G passed them, and what
    # was left of the journal's block looked like the damage of a block that had been confirmed.
    world = World(MemoryDisk(), BY_SIZE).open()
    a, b = world.create(), world.create()
    world.stream.add({b})
    world.send_all()
    world.flush_all()
    world.break_(Rule("append", Fault(errno.ENOSPC, happens=True, appended=1_000), "*.journal"))
    world.stream.add({a})
    world.send_all()
    world.flush_all()
    send_large(world, a)
    world.expect(world.segments(a) == 1)
    world = world.killed().open()
    world.look()
    world.finish()
    assert world.store.gauges()[Metric.LOGS_IN_DOUBT] == 0


class ManySyncs(FaultyDisk):
    """As a real disk, it takes syncs of many files at once."""

    syncs_at_once = 16


@pytest.mark.parametrize("seed", range(4))
def test_some_of_many_syncs_at_once_fail(seed: int) -> None:
    memory, random = MemoryDisk(), Random(seed)
    odds = Odds(random, sync_fails=0.2, change_fails=0.05)
    rig = Rig(ManySyncs(memory, NoFaults()), tiny())
    logs = range(1, 20)
    for log in logs[1:]:
        rig.create(log)
    assert isinstance(rig.disk, FaultyDisk)
    sent: dict[int, list[LogOffset]] = {log: [] for log in logs}
    for tx in range(1, 30):
        rig.disk.plan = odds
        for log in logs:
            rig.write(tx, log=log)
            sent[log].append(LogOffset(tx, 0))
        rig.store.flush(demand=logs)
        rig.clock.seconds += 1.0
        durable = {log: rig.durable(log) for log in logs}
        rig.disk.plan = NoFaults()
        survivor = Rig(memory.crash_image(in_runs(random.randrange)), tiny())
        for log in logs:
            assert rig.read_all(log=log) == sent[log]
            found = survivor.read_all(log=log)
            assert found == sent[log][: len(found)]
            assert survivor.durable(log) >= durable[log]
    assert rig.disk.log
    rig.store.flush_all()
    survivor = Rig(memory.crash_image(strictest), tiny())
    assert all(survivor.read_all(log=log) == sent[log] for log in logs)


@pytest.mark.parametrize("path", ["*.segment", "*.journal"])
def test_what_a_failed_write_left_does_not_come_back_with_the_power(path: str) -> None:
    # It was cut off, the sync of the cut failed, and the process was killed before it could do more: the next one
    # found a file that looked sound.
    options = TO_SEGMENTS if path == "*.segment" else TO_JOURNAL
    world = World(MemoryDisk(), options).open()
    a = world.create()
    send_large(world, a)
    world.break_(
        Rule("append", Fault(errno.EIO, happens=True), path),
        Rule("sync", Fault(errno.EIO), path),
        Rule("create", Fault(errno.EIO), "*.tmp", calls=None),
    )
    send_large(world, a)
    world.tick(2)
    world.flush_all()
    world = world.killed()
    world.options = TO_SEGMENTS
    world.open().look()
    send_large(world, a)
    send_large(world, a)
    for seed in range(40):
        survivor = world.crashed(world.memory.crash_image(in_runs(Random(seed).randrange))).open()
        survivor.look()
        survivor.check()
        survivor.finish()


def send_small(world: World, log: int) -> None:
    world.stream.add({log})
    world.send_all()
    world.flush_all()


def send_large(world: World, log: int) -> None:
    world.stream.add({log}, {log}, text_bytes=BIG)
    world.send_all()
    world.flush_all()
    world.confirm()


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Faults are logged, and here they are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
