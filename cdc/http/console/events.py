"""The last events of the program's own log, kept in memory for the console. Pure.

Invariants:
    all events together cost at most `bytes_max`; the oldest go first, and the newest always stays
    an event that repeats the newest one counts it up: a fault that is told every second pushes nothing out
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc.limits import EVENT_CHARACTERS_MAX, EVENTS_BYTES_MAX

EVENT_COST_BYTES: Final = 600
"""About what an event costs beside its texts: the object, its numbers, its place in the queue."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, once or several times in a row."""

    began_at: float
    """Seconds since 1970, as is `at`: the first and the last time."""
    at: float
    level: str
    source: str
    text: str
    code: str | None = None
    hint: str | None = None
    count: int = 1

    @property
    def size(self) -> int:
        """What it costs, in bytes: four for each character, the most that Python takes."""
        texts = (self.source, self.text, self.code or "", self.hint or "")
        return EVENT_COST_BYTES + 4 * sum(map(len, texts))

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "at": self.at,
            "began_at": self.began_at,
            "count": self.count,
            "level": self.level,
            "source": self.source,
            "text": self.text,
            "code": self.code,
            "hint": self.hint,
        }


class Events:
    """The newest ones."""

    def __init__(self, bytes_max: int = EVENTS_BYTES_MAX) -> None:
        self.size = 0
        self._bytes_max = bytes_max
        self._events: deque[Event] = deque()

    def add(self, event: Event) -> None:
        """One more."""
        last = self._events[-1] if self._events else None
        if last is not None and (last.level, last.source, last.text) == (event.level, event.source, event.text):
            self._events[-1] = replace(last, at=event.at, count=last.count + event.count)
            return
        self._events.append(event)
        self.size += event.size
        while self.size > self._bytes_max and len(self._events) > 1:
            self.size -= self._events.popleft().size

    def newest(self, count: int) -> list[Event]:
        """So many, the newest first."""
        return [event for _, event in zip(range(count), reversed(self._events), strict=False)]


def event_of(at: float, level: str, source: str, text: str, values: Iterable[object]) -> Event:
    """An event from a line of the log and the values in it: an error of ours among them has a code and a hint."""
    error = next((value for value in values if isinstance(value, Exception)), None)
    code, hint = _code_and_hint(error)
    if hint:
        text = text.removesuffix(hint).rstrip().removesuffix(".")
    if code:
        text = text.replace(f"[{code}] ", "", 1)
    return Event(at, at, level, source, _cut(" ".join(text.split())), code, hint and _cut(hint))


def values_of(arguments: object) -> list[object]:
    """What a line of the log was made of."""
    if isinstance(arguments, Mapping):
        return list(arguments.values())
    return list(arguments) if isinstance(arguments, tuple) else []


def _code_and_hint(error: Exception | None) -> tuple[str | None, str | None]:
    code = getattr(error, "code", None)
    if not isinstance(code, str):
        return None, None
    hint = getattr(error, "advice", None) or getattr(error, "hint", None)
    return code, hint if isinstance(hint, str) and hint else None


def _cut(text: str) -> str:
    return text if len(text) <= EVENT_CHARACTERS_MAX else text[: EVENT_CHARACTERS_MAX - 1] + "\u2026"
