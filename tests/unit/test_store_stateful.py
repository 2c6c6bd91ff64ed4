"""The store against its model, at random.

Whatever the order of appends, flushes, lost connections, crashes and faults: nothing that was acknowledged is lost,
nothing is there twice, and no part of a transaction is ever seen.
"""

import errno
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Literal, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.faulty_disk import Changing, Fault, Odds, Rule
from storage.inodes import Choose
from storage.limits import READ_BYTES_MAX
from storage.memory_disk import Crashed, MemoryDisk, in_runs, luckiest, strictest
from storage.offset import SNAPSHOT_END
from storage.shape_log import Mode
from tests.world import World, is_thorough, small_options

LOGS_MAX = 4
OPTIONS = {
    "mixed": small_options(),
    "segments": small_options(own_segment_bytes=1),
    "journal": small_options(own_segment_bytes=10**9, flush_log_rows=3),
    "many files": small_options(own_segment_bytes=150, segment_bytes=1, journal_file_bytes=1, journal_bytes=9_000),
    "no room": small_options(log_bytes=1_000, buffer_bytes=2_500),
}

Image = Literal["strictest", "luckiest", "none"] | int
"""What a crash leaves; an integer is a seed; with none, only the process ends."""

SHARED_ERRORS = [errno.EIO, errno.ENOSPC, errno.EROFS]
LOG_OPERATIONS: list[Changing] = ["create", "append", "sync", "truncate", "remove"]
ODDS_OF_FAULTS = [0.0, 0.05, 0.2]
READ_SIZES = [None, -1, 0, 1, 250, 2_000, READ_BYTES_MAX]

indexes = st.integers(0, 10**6)
images = st.one_of(st.sampled_from(get_args(get_args(Image)[0])), st.integers(0, 10**6))
transactions = st.lists(
    st.tuples(
        st.lists(st.sets(st.integers(0, LOGS_MAX - 1), max_size=LOGS_MAX), max_size=4),
        st.sampled_from([1, 40, 300]),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


class StoreMachine(RuleBasedStateMachine):
    """Everything that can happen to a store, in any order."""

    world: World

    @initialize(options=st.sampled_from(sorted(OPTIONS)), modes=st.lists(st.sampled_from(Mode), min_size=1, max_size=3))
    def start(self, options: str, modes: list[Mode]) -> None:
        self.world = World(MemoryDisk(), OPTIONS[options]).open()
        for mode in modes:
            self.world.create(mode)

    def log(self, index: int) -> int:
        """One of the logs that still take rows; there is always one."""
        living = [number for number, log in sorted(self.world.logs.items()) if not log.has_ended]
        return living[index % len(living)] if living else self.world.create()

    def can_send(self) -> bool:
        return not self.world.must_abandon

    def is_idle(self) -> bool:
        return self.world.job is None

    # The source

    def commit_in_postgres(self, transactions: list[Any]) -> None:
        numbers = sorted(number for number, log in self.world.logs.items() if not log.has_ended) or [self.log(0)]
        for changes, text_bytes, wide in transactions:
            mine = [{numbers[index % len(numbers)] for index in logs} for logs in changes]
            self.world.stream.add(*mine, text_bytes=text_bytes, wide=wide)

    @precondition(can_send)
    @rule(transactions=transactions, changes=st.integers(1, 12), commit=st.booleans())
    def send(self, transactions: list[Any], changes: int, commit: bool) -> None:
        self.commit_in_postgres(transactions)
        self.world.send(changes, commit=commit)

    @precondition(can_send)
    @rule(transactions=transactions)
    def send_all(self, transactions: list[Any]) -> None:
        self.commit_in_postgres(transactions)
        self.world.send_all()

    @precondition(can_send)
    @rule(
        transactions=transactions,
        index=indexes,
        count=st.integers(0, 6),
        again=st.integers(0, 4),
        commit=st.booleans(),
        gap=st.booleans(),
    )
    def send_to_one(self, transactions: list[Any], index: int, count: int, again: int, commit: bool, gap: bool) -> None:
        self.commit_in_postgres(transactions)
        number = self.log(index)
        gap = gap and self.world.logs[number].mode is Mode.COMPACTED
        self.world.send_to(number, count, again=again, commit=commit, gap=gap)

    @rule()
    def lose_connection(self) -> None:
        self.world.abandon()

    @rule(lag=st.integers(0, 3))
    def confirm(self, lag: int) -> None:
        self.world.confirm(self.world.stream.may_confirm(self.world.logs.values()) - lag)

    # Flushes

    @rule()
    def fall_quiet(self) -> None:
        self.world.store.quiet()

    @precondition(is_idle)
    @rule(index=st.none() | indexes, seconds=st.sampled_from([0.0, 0.4, 1.0]))
    def begin_flush(self, index: int | None, seconds: float) -> None:
        self.world.tick(seconds)
        number = None if index is None else self.log(index)
        if number is not None:
            self.world.look(number)
        self.world.begin(demand=None if number is None else [number])

    @precondition(lambda self: not self.is_idle())
    @rule()
    def end_flush(self) -> None:
        self.world.run()
        self.world.check()
        self.world.end()

    @precondition(is_idle)
    @rule(index=st.none() | indexes, seconds=st.sampled_from([0.4, 1.0]))
    def flush(self, index: int | None, seconds: float) -> None:
        self.world.tick(seconds)
        if index is None:
            self.world.flush_all()
        else:
            number = self.log(index)
            self.world.look(number)
            self.world.flush(number)

    # Logs

    @rule(mode=st.sampled_from(Mode), index=indexes)
    def replace_log(self, mode: Mode, index: int) -> None:
        numbers = sorted(self.world.logs)
        if len(numbers) == LOGS_MAX:
            self.world.remove(numbers[index % LOGS_MAX])
        self.world.create(mode)

    # Processes and disks

    @rule(image=images, looks=st.booleans())
    def crash(self, image: Image, looks: bool) -> None:
        world = self.world
        left = world.killed() if image == "none" else world.crashed(world.memory.crash_image(_choice(image)))
        self.world = left.open()
        if looks:
            self.world.look()

    @rule(
        operations=st.integers(1, 12),
        after=st.booleans(),
        image=images,
        looks=st.booleans(),
        what=st.sampled_from(["flush", "lose connection", "begin again"]),
    )
    def crash_while(self, operations: int, after: bool, image: Image, looks: bool, what: str) -> None:
        memory = self.world.memory
        memory.crash_at_operation, memory.crash_after = memory.operations + operations, after
        try:
            if what == "lose connection":
                self.world.abandon()
            elif what == "begin again":
                self.world.open()
                self.world.look()
            elif self.world.job is None:
                self.world.flush_all()
            else:
                self.world.run()
                self.world.end()
        except Crashed:
            self.crash(image, looks)
        memory.crash_at_operation = None

    @precondition(can_send)
    @rule()
    def stop_and_start(self) -> None:
        self.world.settle()
        self.crash("none", looks=True)

    @rule(
        operation=st.sampled_from(get_args(Changing)),
        error=st.sampled_from(SHARED_ERRORS),
        happens=st.booleans(),
        appended=st.none() | st.integers(0, 3_000),
        first=st.integers(1, 4),
        calls=st.none() | st.integers(1, 3),
    )
    def break_disk(
        self, operation: Changing, error: int, happens: bool, appended: int | None, first: int, calls: int | None
    ) -> None:
        fault = Fault(error, happens, appended)
        self.world.break_(Rule(operation, fault, first=first, calls=calls))

    @rule(
        seed=indexes,
        error=st.sampled_from(SHARED_ERRORS),
        change_fails=st.sampled_from(ODDS_OF_FAULTS),
        sync_fails=st.sampled_from(ODDS_OF_FAULTS),
        calls=st.sampled_from([1, 3, 20]),
    )
    def weaken_disk(self, seed: int, error: int, change_fails: float, sync_fails: float, calls: int) -> None:
        """Any call may fail from now on, and with it those that mend what the one before left."""
        odds = Odds(Random(seed), change_fails, sync_fails, calls_max=calls, errors=[error])
        self.world.disk.plan = odds

    @rule(index=indexes, operation=st.sampled_from(LOG_OPERATIONS))
    def break_log(self, index: int, operation: Changing) -> None:
        path = f"logs/{self.log(index)}/*.segment"
        self.world.break_(Rule(operation, Fault(errno.EACCES), path=path, calls=None))

    # Readers

    @rule(index=indexes, at=indexes, max_bytes=st.sampled_from(READ_SIZES))
    def read(self, index: int, at: int, max_bytes: int | None) -> None:
        number = self.log(index)
        self.world.look(number)
        rows = self.world.logs[number].visible_rows
        self.world.check_read(number, rows[at % len(rows)].offset if rows else SNAPSHOT_END, max_bytes)
        self.world.check_walk(number, max_bytes)

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.finish()
        self.world.check_everywhere()
        survivor = self.world.crashed(self.world.memory.crash_image(strictest)).open()
        survivor.look()
        survivor.check()


def _choice(image: Image) -> Choose:
    match image:
        case "strictest":
            return strictest
        case "luckiest":
            return luckiest
        case seed:
            return in_runs(Random(seed).randrange)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(stateful_step_count=50)


# Hypothesis explains a failure better, and finds fewer: most of its runs leave most of the rules out. So the same
# machine is also walked by plain chance, with the odds of a busy store on a bad disk.

WALKS_COUNT = 5_000 if is_thorough() else 60
STEPS_COUNT = 80

Arguments = dict[str, Any]


def _transactions(random: Random) -> list[Any]:
    return [
        (
            [set(random.sample(range(LOGS_MAX), random.randrange(LOGS_MAX))) for _ in range(random.randrange(5))],
            random.choice([1, 40, 300]),
            random.random() < 0.3,
        )
        for _ in range(random.randint(1, 3))
    ]


def _index(random: Random) -> int:
    return random.randrange(10**6)


def _image(random: Random) -> Image:
    return random.choice(["strictest", "luckiest", "none", _index(random), _index(random)])


def _coin(random: Random) -> bool:
    return random.random() < 0.5


def _send_to_one(random: Random) -> Arguments:
    counts = {"count": random.randrange(7), "again": random.randrange(5)}
    flags = {"commit": _coin(random), "gap": _coin(random)}
    return {"transactions": _transactions(random), "index": _index(random), **counts, **flags}


def _break_disk(random: Random) -> Arguments:
    return {
        "operation": random.choice([*get_args(Changing), "append", "append", "sync", "sync"]),
        "error": random.choice(SHARED_ERRORS),
        "happens": _coin(random),
        "appended": random.choice([None, random.randrange(3_000)]),
        "first": random.randint(1, 4),
        "calls": random.choice([None, 1, 2, 3]),
    }


def _weaken_disk(random: Random) -> Arguments:
    odds = {"change_fails": random.choice(ODDS_OF_FAULTS), "sync_fails": random.choice(ODDS_OF_FAULTS)}
    error = random.choice([errno.ENOSPC, *SHARED_ERRORS])
    return {"seed": _index(random), "error": error, "calls": random.choice([1, 1, 3, 20]), **odds}


def _crash_while(random: Random) -> Arguments:
    when = {"operations": random.randint(1, 12), "after": _coin(random)}
    what = random.choice(["flush", "flush", "lose connection", "begin again"])
    return {"image": _image(random), "looks": _coin(random), "what": what, **when}


def _some_log(random: Random) -> int | None:
    return random.choice([None, _index(random)])


ODDS: dict[str, tuple[float, Callable[[Random], Arguments]]] = {
    "send": (
        8,
        lambda random: {
            "transactions": _transactions(random),
            "changes": random.randint(1, 12),
            "commit": random.random() < 0.6,
        },
    ),
    "send_all": (1, lambda random: {"transactions": _transactions(random)}),
    "send_to_one": (3, _send_to_one),
    "lose_connection": (1, lambda _: {}),
    "confirm": (2, lambda random: {"lag": random.choice([0, 0, 1, 2])}),
    "fall_quiet": (2, lambda _: {}),
    "begin_flush": (4, lambda random: {"index": _some_log(random), "seconds": random.choice([0.0, 0.4, 1.0])}),
    "end_flush": (6, lambda _: {}),
    "flush": (5, lambda random: {"index": _some_log(random), "seconds": random.choice([0.4, 1.0])}),
    "replace_log": (0.3, lambda random: {"mode": random.choice(list(Mode)), "index": _index(random)}),
    "crash": (0.5, lambda random: {"image": _image(random), "looks": _coin(random)}),
    "crash_while": (1, _crash_while),
    "stop_and_start": (0.3, lambda _: {}),
    "break_disk": (1.5, _break_disk),
    "weaken_disk": (0.7, _weaken_disk),
    "break_log": (0.2, lambda random: {"index": _index(random), "operation": random.choice(LOG_OPERATIONS)}),
    "read": (1, lambda random: {"index": _index(random), "at": _index(random), "max_bytes": random.choice(READ_SIZES)}),
}
"""What happens how often, and how."""


@pytest.mark.parametrize("seed", range(WALKS_COUNT))
def test_a_walk(seed: int) -> None:
    random = Random(seed)
    machine = StoreMachine()
    trace: list[str] = []

    def step(name: str, arguments: Arguments) -> None:
        trace.append(f"    machine.{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")
        getattr(machine, name)(**arguments)

    try:
        step(
            "start",
            {"options": random.choice(sorted(OPTIONS)), "modes": random.choices(list(Mode), k=random.randint(1, 3))},
        )
        for _ in range(STEPS_COUNT):
            (name,) = random.choices(list(ODDS), [odds for odds, _ in ODDS.values()])
            arguments = ODDS[name][1](random)
            if not machine.can_send() and name in ("send", "send_all", "send_to_one", "stop_and_start"):
                name, arguments = "lose_connection", {}
            if not machine.is_idle() and name in ("begin_flush", "flush"):
                name, arguments = "end_flush", {}
            if not (machine.is_idle() and name == "end_flush"):
                step(name, arguments)
                machine.all_is_as_the_model_says()
        machine.teardown()
    except Exception as error:
        error.add_note("\n".join([f"seed {seed}:", *trace]))
        raise


@pytest.fixture(autouse=True)
def _little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some logs leave the journal while others stay there, and a few shares are many."""
    monkeypatch.setattr("storage.limits.JOURNAL_LOGS_PER_FLUSH", 1)
    monkeypatch.setattr("storage.limits.JOURNAL_JOIN_BYTES_MAX", 500)
    monkeypatch.setattr("storage.limits.JOURNAL_LOG_SHARES_MAX", 6)


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Faults are logged, and here there is nothing but faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
