"""Notices when the stream falls quiet: somebody waits for it, and for a while nothing has come from the server.

What came and was not handed on yet is no quiet: a batch of a backlog is gathered for longer than that.

Invariant: of each wait it is told once at most, and only while the wait lasts
"""

import asyncio
from collections.abc import Callable
from types import TracebackType


class QuietWatch:
    """Used as a context around a wait for the stream."""

    def __init__(self, is_receiving: Callable[[], bool], tell: Callable[[], None], seconds: float) -> None:
        """`is_receiving`: whether something has come that nobody was handed yet; it is asked after so many seconds."""
        self._is_receiving = is_receiving
        self._tell = tell
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._look_later()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        if self._is_receiving():
            self._look_later()
        else:
            self._tell()
