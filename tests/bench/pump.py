"""Appends fragments to a store and has them flushed: by the store's flusher in a second thread, or between appends."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from storage.errors import BufferFull
from storage.flush import Flushed
from storage.flusher import Flusher
from storage.limits import WAIT_SECONDS_MAX
from storage.store import Store
from tests.bench.workload import Fragment


class Pump:
    """Use as a context; `finish` leaves nothing that is not durable."""

    def __init__(self, store: Store, *, overlapped: bool) -> None:
        self._store = store
        self.flush_seconds = 0.0
        """What flushes between appends took; those in the second thread are not timed."""
        self._flushed = threading.Event()
        self._flusher = Flusher(store, self._note).start() if overlapped else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._flusher is not None:
            self._flusher.stop(flush=False)

    def put(self, fragment: Fragment) -> None:
        """Append a fragment; wait for a flush while there is no room."""
        while not self._was_taken(fragment):
            self._make_room()
        if self._flusher is None:
            self._timed(self._store.flush)

    def finish(self) -> None:
        """Make everything durable."""
        if self._flusher is not None:
            self._flusher.stop(flush=True)
        else:
            self._timed(self._store.flush_all)

    def _was_taken(self, fragment: Fragment) -> bool:
        self._flushed.clear()  # before the attempt: a flush that ends between refusal and wait is not missed
        try:
            if fragment.shares is None:
                self._store.append(1, fragment.rows, after=fragment.after, aligned=fragment.upto)
            else:
                self._store.append_fragment(fragment.rows, fragment.shares, after=fragment.after, upto=fragment.upto)
        except BufferFull:
            return False
        return True

    def _make_room(self) -> None:
        if self._store.fault is not None:
            raise self._store.fault
        if self._flusher is None:
            self._timed(self._store.flush)
        elif not self._flushed.wait(WAIT_SECONDS_MAX):
            raise TimeoutError("no flush made room")

    def _timed(self, flush: Callable[[], list[Flushed]]) -> None:
        start = time.perf_counter()
        if flush():  # else nothing was due
            self.flush_seconds += time.perf_counter() - start

    def _note(self, _: Sequence[Flushed]) -> None:
        self._flushed.set()
