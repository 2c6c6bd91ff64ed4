"""A thread that flushes when a flush is due: the shell that makes the store's promises about time true."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from storage import limits
from storage.errors import DiskStalled
from storage.flush import Flushed
from storage.store import Store

logger = logging.getLogger(__name__)


class Flusher:
    """Runs until `stop`. What became durable is told to `on_flushed`, in this thread, in the order of the flushes."""

    def __init__(
        self,
        store: Store,
        on_flushed: Callable[[Sequence[Flushed]], None],
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`on_failure` is told of a defect that ended the thread. The process must stop then: nothing is flushed."""
        self._store = store
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self.failure: BaseException | None = None
        """What ended the thread, if it was not `stop`."""

    def start(self) -> "Flusher":
        self._thread.start()
        return self

    def stop(self, *, flush: bool = True) -> None:
        """End the thread; `flush` writes what is left first, and raises what prevents it. Nobody waits for room then.

        Raises `DiskStalled` if a flush does not end; the thread then ends with the process.
        """
        self._stopping.set()
        self._store.release_producers()
        self._store.stop_waiting()
        self._store.room.wanted.set()
        self._thread.join(limits.FLUSH_WAIT_SECONDS_MAX)
        if self.failure is not None:
            raise self.failure
        if self._thread.is_alive():
            raise DiskStalled(f"the last flush has not ended in {limits.FLUSH_WAIT_SECONDS_MAX:g} s")
        if flush:
            self._tell(self._store.flush_all())

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.thread_time()
                flushed = self._store.flush()
                self._tell(flushed)
                if len(flushed) >= limits.FLUSH_REST_LOGS_MIN:
                    self._rest((time.thread_time() - began) * limits.FLUSH_REST_SHARE)
                self._store.wait_until_due(limits.IDLE_SECONDS)
        except BaseException as failure:
            logger.exception("the flusher ended")
            self.failure = failure
            if self._on_failure is not None:
                self._on_failure(failure)

    def _rest(self, seconds: float) -> None:
        """Leave the interpreter to those who append. Whoever waits for room waits for a flush, so that ends it."""
        self._store.room.wanted.wait(min(seconds, limits.FLUSH_REST_SECONDS_MAX))
        self._store.room.wanted.clear()

    def _tell(self, flushed: Sequence[Flushed]) -> None:
        if flushed:
            self._on_flushed(flushed)
