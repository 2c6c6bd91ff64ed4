"""Idleness against a plain model: a list of all that happened to each log."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shapes.idleness import Idleness

LOGS = st.integers(1, 5)


@dataclass
class Known:
    uses: list[float] = field(default_factory=list)


class IdlenessLife(RuleBasedStateMachine):
    """Anything, for logs that are there and for others."""

    def __init__(self) -> None:
        super().__init__()
        self.idleness = Idleness()
        self.known: dict[int, Known] = {}
        self.readers = Counter[int]()
        self.now = 0.0

    @rule(seconds=st.integers(0, 10))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(log=LOGS)
    def add(self, log: int) -> None:
        if log not in self.known:
            self.idleness.add(log, self.now)
            self.known[log] = Known([self.now])

    @rule(log=LOGS)
    def remove(self, log: int) -> None:
        self.idleness.remove(log)
        self.known.pop(log, None)
        self.readers[log] = 0

    @rule(log=LOGS, late=st.integers(0, 3))
    def touch(self, log: int, late: int) -> None:
        self.idleness.touch(log, self.now - late)
        if log in self.known:
            self.known[log].uses.append(self.now - late)

    @rule(log=LOGS)
    def enter(self, log: int) -> None:
        self.idleness.enter(log, self.now)
        if log in self.known:
            self.known[log].uses.append(self.now)
        self.readers[log] += 1

    @rule(log=LOGS)
    def leave(self, log: int) -> None:
        self.idleness.leave(log, self.now)
        if log in self.known:
            self.known[log].uses.append(self.now)
        self.readers[log] = max(0, self.readers[log] - 1)

    @invariant()
    def readers_are_counted_of_all_logs(self) -> None:
        for log in range(1, 6):
            assert self.idleness.readers_of(log) == self.readers[log]

    @invariant()
    def those_without_readers_are_named_oldest_first(self) -> None:
        unread = sorted((max(known.uses), log) for log, known in self.known.items() if not self.readers[log])
        for seconds in (0, 3, 20):
            idle = [log for used, log in unread if self.now - used >= seconds]
            assert self.idleness.idle(self.now, seconds) == idle
        for count in (0, 1, 9):
            assert self.idleness.oldest(count) == [log for _, log in unread][:count]


TestIdlenessLife = IdlenessLife.TestCase
