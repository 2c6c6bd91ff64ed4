"""Slot insurance over made-up courses: the tracker and the ladder as they are, a server whose slot has a bound.

Shapes flush after a while, or from some moment on not at all; the process is stopped for seconds or minutes, and then
behind the stream; looks at the slot fail. Whatever comes, no shape ends that flushes, and the one that does not ends
before the server takes the slot.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from cdc.insurance.ladder import Ladder, Rung, Terms, View
from cdc.limits import SLOT_LOOK_SECONDS
from flush_tracker.explanation import Hold
from flush_tracker.tracker import FlushTracker
from storage.offset import LogOffset
from tests.unit.test_flush_tracker_model import Event, batch_of

TICK = 0.5
TICKS = 1_000
BUDGET = 1_000_000
SHAPES = (1, 2, 3)
STORIES = 15


@dataclass
class Story:
    """One server, one process."""

    random: Random
    stops: bool
    """Whether the process is stopped from time to time."""
    breaks: bool
    """Whether one of the shapes flushes no more from some moment on."""
    tracker: FlushTracker = field(default_factory=lambda: FlushTracker("story", 0))
    ladder: Ladder = field(default_factory=lambda: Ladder(Terms(BUDGET)))
    now: float = 0.0
    wal_end: int = 0
    confirmed: int = 0
    share_most: float = 0.0
    ended: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        self.rate = random.choice((500, 2_000, 4_000))
        self.hurry = random.choice((2, 5, 20))
        self.delays = {shape: random.choice((0.5, 2.0, 4.0)) for shape in SHAPES}
        self.broken = random.choice(SHAPES) if self.breaks else None
        self.broken_from = random.choice((0.0, 50.0, 200.0))
        self.pending: dict[int, list[tuple[float, int]]] = {shape: [] for shape in SHAPES}
        self.running = 0.0
        """What the process has had of the time."""
        self.stopped_until = 0.0
        self.round_at = SLOT_LOOK_SECONDS
        for shape in SHAPES:
            self.tracker.attach(shape, self.now)

    def run(self) -> None:
        for _ in range(TICKS):
            self.now += TICK
            self.wal_end += int(self.rate * TICK) + 10
            self.share_most = max(self.share_most, self.share)
            if self.now < self.stopped_until:
                continue
            if self.stops and self.random.random() < 0.01:
                self.stopped_until = self.now + self.random.choice((3.0, 9.0, 12.0, 40.0, 150.0))
                continue
            steps = [self.work, self.look] if self.now >= self.round_at else [self.work]
            self.random.shuffle(steps)  # after a stop all is due at once
            for step in steps:
                step()

    @property
    def share(self) -> float:
        return (self.wal_end - self.confirmed) / BUDGET

    def work(self) -> None:
        """Read some of the stream, flush what is old enough, confirm."""
        self.running += TICK
        begin = self.tracker.seen.lsn
        end = min(self.wal_end, begin + int(self.rate * TICK * self.hurry) + 10)
        if end > begin + 1:
            self.tracker.commits(*batch_of([Event(begin, end, 2, 0, set(self.pending))]), self.now)
            for pending in self.pending.values():
                pending.append((self.running, begin))
        for shape, pending in self.pending.items():
            if shape == self.broken and self.now >= self.broken_from:
                continue
            if pending and self.running - pending[0][0] >= self.delays[shape]:
                self.tracker.flushed(shape, LogOffset.aligned(pending[-1][1], 2), self.now)
                pending.clear()
        self.confirmed = max(self.confirmed, self.tracker.g.lsn)

    def look(self) -> None:
        """What the insurer does."""
        self.round_at = self.now + SLOT_LOOK_SECONDS
        self.ladder.seen(self.now)
        if self.random.random() < 0.1:
            self.ladder.look(View(self.now, None))
            return
        explained = self.tracker.explain(self.now)
        holder = explained.holder if explained.hold is Hold.ROWS else None
        seconds = 0.0 if holder is None else holder.seconds
        verdict = self.ladder.look(
            View(self.now, self.share, 1.0, None if holder is None else holder.shape, seconds, is_disk_at_fault=False)
        )
        if verdict.ends is not None:
            self.ended.append(verdict.ends)
            self.tracker.detach(verdict.ends)
            del self.pending[verdict.ends]


@pytest.mark.parametrize("seed", range(STORIES))
def test_no_shape_ends_for_time_in_which_the_process_was_stopped(seed: int) -> None:
    story = Story(Random(seed), stops=True, breaks=False)
    story.run()
    assert not story.ended, f"all of them flush, and {story.ended} ended"


@pytest.mark.parametrize("seed", range(STORIES))
def test_a_shape_that_does_not_flush_ends_before_the_slot_is_lost(seed: int) -> None:
    story = Story(Random(seed), stops=False, breaks=True)
    story.run()
    is_full = story.rate * (TICKS * TICK - story.broken_from) > BUDGET
    assert story.ended == ([story.broken] if is_full else story.ended[:1])
    assert set(story.ended) <= {story.broken}
    assert story.share_most < 1.0, "the server would have taken the slot"
    assert not is_full or story.ladder.rung is Rung.CALM


@pytest.mark.parametrize("seed", range(STORIES))
def test_with_stops_it_is_never_a_healthy_one_that_ends(seed: int) -> None:
    story = Story(Random(seed), stops=True, breaks=True)
    story.run()
    assert set(story.ended) <= {story.broken}
