"""The two marks of each log that somebody waits on. Most logs have no waiter, and so no entry here."""

import threading
from dataclasses import dataclass

from storage.offset import LogOffset
from storage.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Marks:
    """What readers of one log wait for: data, and durability. They are woken apart."""

    visible: Watermark[LogOffset]
    durable: Watermark[LogOffset]


class LogMarks:
    """Marks by log. A mark is stored before anybody is woken, and nobody is woken under the store's lock."""

    def __init__(self) -> None:
        self._marks: dict[int, Marks] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._marks)

    def watch(self, log: int, visible: LogOffset, durable: LogOffset) -> Marks:
        """The marks of a log; called under the store's lock, so that no move is missed between."""
        with self._lock:
            marks = self._marks.get(log)
            if marks is None:
                marks = self._marks[log] = Marks(Watermark(visible), Watermark(durable))
            return marks

    def visible(self, log: int, upto: LogOffset) -> None:
        """V moved."""
        marks = self._marks.get(log)
        if marks is not None:
            marks.visible.advance(upto)

    def durable(self, log: int, upto: LogOffset) -> None:
        """D moved."""
        marks = self._marks.get(log)
        if marks is not None:
            marks.durable.advance(upto)

    def close(self, log: int, reason: str) -> None:
        """Whoever waits is woken empty-handed."""
        with self._lock:
            marks = self._marks.pop(log, None)
        if marks is not None:
            marks.visible.close(reason)
            marks.durable.close(reason)
