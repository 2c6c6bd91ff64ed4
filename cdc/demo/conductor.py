"""When the writer is started, killed and stopped. Pure.

    STARTING -recovered-> RUNNING -large transaction-> DOOMED -the moment came-> KILLED -gone-> STARTING ..
    RUNNING, DOOMED -time is up-> STOPPING -stopped-> DONE;  a writer that goes by itself has FAILED

Invariants:
    a kill falls into the time that a large transaction takes; how far into it, chance decides
    the first life ends at the first large transaction; a later one lets some pass, or nothing would ever get done
"""

from enum import Enum, auto
from random import Random
from typing import Final


class State(Enum):
    """Where the writer is."""

    STARTING = "recovers"
    RUNNING = "writes"
    DOOMED = "in a large transaction"
    KILLED = "killed"
    STOPPING = "flushes what is left"
    DONE = "done"
    FAILED = "failed"


class Event(Enum):
    """What happens to it."""

    RECOVERED = auto()
    LARGE_BEGUN = auto()
    MOMENT_CAME = auto()
    TIME_IS_UP = auto()
    STOPPED = auto()
    GONE = auto()


class Action(Enum):
    """What is to be done about it."""

    NOTHING = auto()
    KILL = auto()
    START = auto()
    STOP = auto()


_TABLE: Final = {
    (State.STARTING, Event.RECOVERED): (State.RUNNING, Action.NOTHING),
    (State.STARTING, Event.GONE): (State.FAILED, Action.NOTHING),
    (State.RUNNING, Event.LARGE_BEGUN): (State.DOOMED, Action.NOTHING),
    (State.RUNNING, Event.TIME_IS_UP): (State.STOPPING, Action.STOP),
    (State.RUNNING, Event.GONE): (State.FAILED, Action.NOTHING),
    (State.DOOMED, Event.LARGE_BEGUN): (State.DOOMED, Action.NOTHING),
    (State.DOOMED, Event.MOMENT_CAME): (State.KILLED, Action.KILL),
    (State.DOOMED, Event.TIME_IS_UP): (State.STOPPING, Action.STOP),
    (State.DOOMED, Event.GONE): (State.FAILED, Action.NOTHING),
    (State.KILLED, Event.LARGE_BEGUN): (State.KILLED, Action.NOTHING),
    (State.KILLED, Event.GONE): (State.STARTING, Action.START),
    (State.STOPPING, Event.LARGE_BEGUN): (State.STOPPING, Action.NOTHING),
    (State.STOPPING, Event.STOPPED): (State.DONE, Action.NOTHING),
    (State.STOPPING, Event.GONE): (State.FAILED, Action.NOTHING),
    (State.DONE, Event.GONE): (State.DONE, Action.NOTHING),
}
"""What is not here cannot happen. A killed writer's last words may be heard after the kill."""

LIFE_LARGE_MAX: Final = 2
"""Large transactions that a life lets pass, at most: lives of about one to three seconds."""

LARGE_SECONDS: Final = 0.45
"""About what a large transaction takes: a kill comes within this time after its beginning."""


class UnexpectedEvent(Exception):
    """The table has no row for what happened: a defect."""


class Conductor:
    """Told what happens, it says what to do."""

    def __init__(self, chance: Random) -> None:
        self.state = State.STARTING
        self.kills = 0
        self.ends_at: float | None = None
        """When time is up; known once the first writer is ready, since a slow start is nobody's time."""
        self._chance = chance
        self._kill_at: float | None = None
        self._to_pass = 0

    def due(self, now: float) -> Event | None:
        """What time itself brings about."""
        if self.ends_at is not None and now >= self.ends_at and self.state in (State.RUNNING, State.DOOMED):
            return Event.TIME_IS_UP
        if self._kill_at is not None and now >= self._kill_at:
            return Event.MOMENT_CAME
        return None

    def on(self, event: Event, now: float) -> Action:
        """Let something happen."""
        if event is Event.LARGE_BEGUN and self.state is State.RUNNING and self._to_pass:
            self._to_pass -= 1
            return Action.NOTHING
        if (self.state, event) not in _TABLE:
            raise UnexpectedEvent(self.state, event)
        before = self.state
        self.state, action = _TABLE[self.state, event]
        if self.state is not State.DOOMED:
            self._kill_at = None
        elif before is not State.DOOMED:
            self._kill_at = now + self._chance.uniform(0, LARGE_SECONDS)
        if action is Action.KILL:
            self.kills += 1
            self._to_pass = self._chance.randint(0, LIFE_LARGE_MAX)
        return action
