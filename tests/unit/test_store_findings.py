"""What the searches found in the store, told shortly: each test failed once, and names the way in which it did.

What only a crash shows is a story in `tests.crash.scenarios`.
"""

import contextlib
import errno
import logging
from collections.abc import Iterator

import pytest

from storage.errors import LogPoisoned, Misuse
from storage.faulty_disk import Fault, Rule
from storage.memory_disk import Crashed, MemoryDisk, luckiest, strictest
from tests.crash.scenarios import BY_SIZE, SHORT_JOURNAL, TO_JOURNAL, TO_SEGMENTS
from tests.model import LogModel
from tests.world import World, small_options


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
    assert (world.segments(b), world.segments(c)) == (1, 1)
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


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Faults are logged, and here they are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
