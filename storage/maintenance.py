"""Who works on the old files of which log: compactions, folds, bases after a TRUNCATE.

Invariants:
    one at a time works on a log
    one at a time does large work, whatever the log: it takes memory
"""

import contextlib
import threading
from collections.abc import Iterator


class Maintenance:
    """Which logs are worked on."""

    def __init__(self, ended: threading.Condition) -> None:
        """`ended`: of the store's lock."""
        self._large = threading.Lock()
        self._ended = ended
        self._logs: set[int] = set()

    def __contains__(self, log: int) -> bool:
        return log in self._logs

    @contextlib.contextmanager
    def of(self, log: int, *, is_small: bool) -> Iterator[None]:
        """Wait for one's turn, and have it. Small work does not wait for other logs': a fold may take an hour."""
        with contextlib.nullcontext() if is_small else self._large:
            with self._ended:
                self._ended.wait_for(lambda: log not in self._logs)
                self._logs.add(log)
            try:
                yield
            finally:
                with self._ended:
                    self._logs.discard(log)
                    self._ended.notify_all()
