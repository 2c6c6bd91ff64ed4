"""Stories of a store, told to a `World`: short, and each about one way in which rows get to the disk or leave it.

They are run with the power cut at every operation (`test_store_crashes`), and with every operation failing in every
way (`test_lying_disk`). A story asks for what it is about: had a flush not gone where the story says, it would prove
nothing.
"""

from collections.abc import Callable

from storage.errors import SharedDiskFault
from storage.offset import SNAPSHOT_END, LogOffset
from storage.shape_log import Mode
from storage.store import StoreOptions
from tests.model import batch_of
from tests.world import World, small_options

TO_SEGMENTS = small_options(own_segment_bytes=1)
TO_JOURNAL = small_options(own_segment_bytes=10**9)
BY_SIZE = small_options(own_segment_bytes=600)
MANY_FILES = small_options(own_segment_bytes=600, segment_bytes=1, journal_file_bytes=1, journal_bytes=10**6)
ROW_FILES = small_options(own_segment_bytes=1, segment_bytes=1)
SHORT_JOURNAL = small_options(own_segment_bytes=10**9, journal_file_bytes=4_000, journal_bytes=9_000)
BIG = 700
"""Bytes of a text that make a flush go to the log's own segment."""

Story = Callable[[World], None]
STORIES: dict[str, tuple[Story, StoreOptions]] = {}


def story(options: StoreOptions) -> Callable[[Story], Story]:
    """Enter a story in the list, with the limits that it is about."""

    def enter(tell: Story) -> Story:
        STORIES[tell.__name__] = tell, options
        return tell

    return enter


@story(TO_JOURNAL)
def small_logs_to_the_journal(world: World) -> None:
    a, b = world.create(), world.create()
    for _ in range(3):
        world.stream.add({a}, {a, b}, {b})
        world.send_all()
        world.flush_all()
    world.expect(world.journal_files == 1)
    world.expect(world.segments(a) == world.segments(b) == 0)
    world.confirm()


@story(BY_SIZE)
def a_large_log_to_its_segment(world: World) -> None:
    a = world.create()
    for _ in range(2):
        world.stream.add({a}, {a}, text_bytes=BIG)
        world.send_all()
        world.flush_all()
        world.confirm()
    world.expect((world.segments(a), world.journal_files) == (1, 0))


@story(BY_SIZE)
def a_segment_carries_what_the_journal_held(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, {b}, text_bytes=BIG)
    world.send_all()
    world.flush_all()
    for wide in (False, True):  # two schemas are two blocks, and a tear may lie between them
        world.stream.add({a}, {a, b}, text_bytes=200, wide=wide)
        world.send(1)
        world.flush_all()
        world.send_all()
        world.flush_all()
        world.confirm()
    world.expect(world.journal_files > 0)
    world.stream.add({a}, {b}, text_bytes=BIG)
    world.send_all()
    world.flush_all()
    world.expect((world.segments(a), world.segments(b)) == (1, 1))
    world.confirm()
    world.stream.add({a})
    world.send_all()
    world.flush_all()


@story(BY_SIZE)
def a_commit_after_its_rows(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, text_bytes=BIG)
    world.stream.add({b})
    world.send_all()
    world.flush_all()
    for _ in range(2):  # the segment takes the rows of one log, the journal those of the other
        world.stream.add({a}, {a, b}, text_bytes=300)
        world.send(commit=False)
        world.flush_all()
        world.send()
        world.flush_all()
        world.confirm()


@story(BY_SIZE)
def a_commit_while_its_flush_is_in_flight(world: World) -> None:
    a, b = world.create(), world.create()
    for text_bytes in (BIG, 8):
        world.stream.add({a}, {a, b}, text_bytes=text_bytes)
        world.send(commit=False)
        world.begin(demand=[a, b])
        world.send()
        world.stream.add({b}, {a})
        world.send(1)
        world.run()
        world.end()
        world.send_all()
        world.flush_all()
        world.confirm()


@story(BY_SIZE)
def a_transaction_over_many_flushes(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, {b})
    world.stream.add(*[{a, b}, {a}, {a}, {b}] * 2, text_bytes=250)
    world.stream.add({a}, {b})
    world.send(2)
    for _ in range(4):
        world.send(2, commit=False)
        world.flush_all()
    world.send_all()
    world.flush_all()
    world.confirm()


@story(BY_SIZE)
def open_rows_of_a_segment_are_abandoned(world: World) -> None:
    a = world.create()
    world.stream.add({a}, text_bytes=BIG)
    world.stream.add({a}, {a}, text_bytes=BIG)
    world.send(1)
    world.flush_all()
    world.send(1)
    world.flush_all()
    world.lose_connection()
    world.send(2)
    world.flush_all()
    world.send_all()
    world.flush_all()


@story(TO_JOURNAL)
def open_rows_of_the_journal_are_abandoned(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, {b})
    world.stream.add({a}, {a, b}, {a})
    world.send(2)
    world.send(1)
    world.flush_all()
    world.send(1)
    world.flush_all()
    world.confirm()
    world.lose_connection()
    world.send(2)  # other shares than before
    world.flush_all()
    world.send_all()
    world.flush_all()


@story(BY_SIZE)
def open_rows_that_a_segment_took_from_the_journal_are_abandoned(world: World) -> None:
    a = world.create()
    world.stream.add({a})
    world.stream.add(*[{a}] * 5, text_bytes=130)
    world.send(2)
    world.flush_all()
    world.send(4, commit=False)
    world.flush_all()
    world.expect((world.segments(a), world.journal_files) == (1, 1))
    world.confirm()
    world.lose_connection()
    world.send(2)  # another share than the one that the journal file still had
    world.flush_all()
    world.send_all()
    world.flush_all()


@story(ROW_FILES)
def open_rows_behind_a_commit_are_abandoned(world: World) -> None:
    a = world.create()
    world.stream.add({a})
    world.send(commit=False)
    world.flush_all()
    world.stream.add({a}, {a})
    world.send(1)
    world.flush_all()  # a segment of a commit without rows, and of an open row, which names the file
    world.expect(world.segments(a) == 2)
    world.lose_connection()
    world.expect(world.segments(a) == 2)
    world.send_all()
    world.flush_all()


@story(MANY_FILES)
def open_rows_over_many_files_are_abandoned(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, {b}, text_bytes=BIG)
    world.send_all()
    world.flush_all()
    world.confirm()
    world.stream.add({a, b}, {a}, {a}, {b}, text_bytes=BIG)
    for _ in range(3):
        world.send(1)
        world.flush_all()
    world.expect(world.segments(a) == 4)
    world.stream.add({a})
    world.lose_connection()
    world.expect(world.segments(a) == 1)
    world.send_all()
    world.flush_all()


@story(BY_SIZE)
def open_rows_in_both_places_are_abandoned(world: World) -> None:
    a = world.create()
    world.stream.add({a}, text_bytes=BIG)
    world.stream.add({a}, {a}, text_bytes=BIG)
    world.stream.add({a})
    world.send(2)
    world.flush_all()
    world.stream.add({a}, {a}, text_bytes=100)
    world.send(1)
    world.send(2, commit=False)
    world.flush_all()
    world.lose_connection()
    world.send_all()
    world.flush_all()


@story(SHORT_JOURNAL)
def the_journal_is_emptied(world: World) -> None:
    a, b, c = world.create(), world.create(), world.create()
    world.stream.add({c})
    world.send_all()
    world.flush_all()
    for _ in range(4):
        world.stream.add({a}, {b}, text_bytes=40)
        world.send_all()
        world.flush_all()
        world.confirm()
    world.flush_until_quiet()
    world.expect(world.journal_copies > 0)  # its shares were joined
    world.expect(world.segments(c) == 0)


@story(
    small_options(own_segment_bytes=10**9, journal_file_bytes=2_000, journal_bytes=4_000, journal_joined_bytes=4_000)
)
def joined_shares_move_to_segments(world: World) -> None:
    a, b, c = world.create(), world.create(), world.create()
    world.stream.add({c})
    world.send_all()
    world.flush_all()
    for _ in range(7):
        world.stream.add({a}, {b}, text_bytes=40)
        world.send_all()
        world.flush_all()
        world.confirm()
    world.flush_until_quiet()
    world.expect(world.journal_copies > 1)
    world.expect(world.segments(c) == 1)


@story(small_options(own_segment_bytes=600, segment_bytes=1, journal_file_bytes=4_000, journal_bytes=9_000))
def what_no_segment_takes_is_copied(world: World) -> None:
    full, *others = [world.create() for _ in range(4)]
    world.stream.add({full}, text_bytes=BIG)
    world.send(commit=False)
    world.flush_all()
    world.stream.add(others, others)
    world.send_all()
    world.flush_all()  # a commit without rows: the segment is full, so it stays in the journal
    world.confirm()
    for _ in range(4):
        world.stream.add(others[:1])
        world.send_all()
        world.flush_all()
        world.flush_until_quiet()
        world.confirm()
    world.expect(world.journal_copies > 0)


@story(BY_SIZE)
def logs_come_and_go(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, {a, b}, text_bytes=BIG)
    world.stream.add({a}, {b})
    world.send(2)
    world.flush_all()
    world.send(1)
    world.begin(demand=[a])
    world.run()
    world.remove(a)
    world.end()
    c = world.create(Mode.COMPACTED)
    world.stream.add({b, c})
    world.send_all()
    world.flush_all()
    world.remove(b)
    world.stream.add({c})
    world.send_all()
    world.flush_all()


@story(TO_SEGMENTS)
def gaps_in_a_compacted_log(world: World) -> None:
    a = world.create(Mode.COMPACTED)
    for _ in range(2):
        for _ in range(3):
            world.stream.add({a}, {a})
        world.send_to(a, 5, gap=True, commit=False)
        world.flush_all()
        world.send_to(a, 1, again=2)
        world.flush_all()
    world.send_all()
    world.confirm()


@story(BY_SIZE)
def a_snapshot_beside_live_rows(world: World) -> None:
    a = world.create()
    world.stream.add({a}, {a})
    rows = world.stream.of_log(world.logs[a])
    while True:  # after a failed sync a base is given up, and another begins
        writer = world.store.new_base(a)
        try:
            for index in range(2):
                at = LogOffset.of_snapshot_chunk(index)
                writer.chunk(batch_of([row._replace(offset=at) for row in rows]), written_at=0)
                world.send(1)
                world.flush_all()
            writer.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0)
            break
        except SharedDiskFault:
            world.heal()
    world.acknowledge(("base", a, SNAPSHOT_END))
    world.with_base[a] = writer.base.number
    world.confirm()


@story(BY_SIZE)
def a_restart_in_the_middle(world: World) -> None:
    a, b = world.create(), world.create()
    world.stream.add({a}, {b}, text_bytes=BIG)
    world.stream.add({a}, {a, b}, {b})
    world.send(2)
    world.flush_all()
    world.send(2)
    world.flush_all()
    world.confirm()
    world.open()
    world.look()
    world.stream.add({a}, {b}, text_bytes=BIG)
    world.send_all()
    world.flush_all()
