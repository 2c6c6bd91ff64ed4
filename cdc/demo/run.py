"""One run of the demo: starts the processes, and kills the writer when the conductor says so.

The parent writes nothing to the folder and holds nothing of it: what it knows, it was told.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from random import Random
from types import FrameType
from typing import Final

from cdc.demo.board import Board
from cdc.demo.conductor import Action, Conductor, Event, State
from cdc.demo.messages import Failed, LargeBegun, ReadAll, Recovered, Stopped
from cdc.demo.processes import Child, Gone, Inbox, Said

READERS: Final[dict[str, tuple[str, ...]]] = {"reader 1": (), "reader 2": ("65536",)}
"""One reads chunk by chunk, the other in small bites, so that it stops at other places."""

TICK_SECONDS: Final = 0.05
"""Between two looks at the clock: a kill is late by no more."""

QUIET_SECONDS_MAX: Final = 60.0
"""Silence after which the demo is given up; the busiest machine lets somebody speak more often."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(Exception):
    """A process ended early, or none says anything."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Interrupted(Exception):
    """Somebody asked for the end, by this signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """Remembers a signal until it suits us: nothing is torn apart in the middle."""

    def __init__(self) -> None:
        self._number: int | None = None

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self._number is not None:
            raise Interrupted(self._number)

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Let signals come here while the block runs."""
        before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _came(self, number: int, _: FrameType | None) -> None:
        self._number = number


class Demo:
    """The processes of one run, and what is heard of them."""

    def __init__(self, folder: Path, board: Board, watch: Callable[[Board], None], interrupts: Interrupts) -> None:
        self._folder = folder
        self._board = board
        self._watch = watch
        self._interrupts = interrupts
        self._inbox: Inbox = Queue()
        self._conductor = Conductor(Random())  # noqa: S311 - the moments of the kills are nobody's secret
        self._writer: Child | None = None
        self._readers: dict[str, Child] = {}
        self._done: set[str] = set()
        """Readers that have everything."""
        self._last: int | None = None
        self._last_words: dict[str, str] = {}
        self._heard_at = time.monotonic()

    def run(self) -> int:
        """Go through all of it; the last committed transaction. No process is left behind, however it ends."""
        try:
            self._start_writer()
            for name, arguments in READERS.items():
                self._readers[name] = Child(self._inbox, name, "reader", self._folder, *arguments)
            while self._last is None or self._done < READERS.keys():
                self._step()
            return self._last
        finally:
            left = [*self._readers.values(), *([] if self._writer is None else [self._writer])]
            for child in left:
                child.kill()
            for child in left:
                child.wait()

    def _start_writer(self) -> None:
        self._writer = Child(self._inbox, "writer", "writer", self._folder)

    def _step(self) -> None:
        """Hear what is said until the next tick, and see what time brings."""
        with contextlib.suppress(Empty):
            child, said = self._inbox.get(timeout=TICK_SECONDS)
            self._board.now = self._heard_at = time.monotonic()
            self._hear(child, said)
        self._interrupts.check()
        now = self._board.now = time.monotonic()
        if now - self._heard_at > QUIET_SECONDS_MAX:
            raise DemoFailed(f"no process has said anything for {QUIET_SECONDS_MAX:.0f} s", "stuck")
        event = self._conductor.due(now)
        if event is not None:
            self._happen(event)
        self._watch(self._board)

    def _hear(self, child: Child, said: Said) -> None:
        match said:
            case str():
                self._last_words[child.name] = said
                self._board.tell(f"{child.name}: {said}")
                return
            case Gone():
                self._gone(child)
                return
            case Failed(code, message):
                raise DemoFailed(f"{child.name}: {message}", code)
            case Recovered():
                self._happen(Event.RECOVERED)
            case LargeBegun():
                self._happen(Event.LARGE_BEGUN)
            case Stopped(last):
                self._last = last
                self._happen(Event.STOPPED)
            case ReadAll():
                self._done.add(child.name)
            case _:
                pass
        self._board.hear(child.name, said)

    def _gone(self, child: Child) -> None:
        child.wait()
        if child is self._writer:
            self._happen(Event.GONE)
        elif child.name not in self._done:
            raise self._ended(child)

    def _ended(self, child: Child) -> DemoFailed:
        words = self._last_words.get(child.name, "without a word")
        return DemoFailed(f"the {child.name} has ended by itself: {words}", "ended")

    def _happen(self, event: Event) -> None:
        now = time.monotonic()
        action = self._conductor.on(event, now)
        self._board.state = self._conductor.state
        if event is Event.RECOVERED and self._board.ready_at is None:
            self._board.ready_at = now
            self._conductor.ends_at = now + self._board.seconds
        assert self._writer is not None, "nothing happens before the first writer is there"
        match action:
            case Action.KILL:
                self._board.killed(self._writer.pid)
                self._writer.kill()
            case Action.START:
                self._start_writer()
            case Action.STOP:
                self._writer.stop()
            case Action.NOTHING:
                pass
        if self._conductor.state is State.FAILED:
            raise self._ended(self._writer)
        if event is Event.STOPPED:
            for reader in self._readers.values():
                reader.stop(self._last)
