"""What was made once and is wanted again: values by key, bounded in bytes, the longest unused dropped first.

`get_or_make` is what readers use: of those who miss the same key at the same time, one makes the value, the others
wait for it. All of it may be called from any thread; `make` runs without the lock.

Invariants:
    bytes = the sum of the sizes kept <= bytes_max; a value larger than that is handed out but not kept
    a value whose making began before a `drop` of its key is never kept, and nobody who asks after the drop gets it
    every `get_or_make` counts as one of: hit, joined, miss; each value made for a miss was made once
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from storage.errors import Misuse, StorageError
from storage.limits import BLOCK_CACHE_BYTES_MAX, WAIT_SECONDS_MAX

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Flight(Generic[Value]):
    """The making of a value, for those who wait for it."""

    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Value | None = None
        self.error: Exception | None = None


class ChunkCache(Generic[Key, Value]):
    """Bounded in bytes. Values are shared between readers: nobody changes them, and None is not a value."""

    def __init__(self, bytes_max: int = BLOCK_CACHE_BYTES_MAX, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.joined = 0
        """Reads that found the value being made, and waited for it."""
        self.evictions = 0
        """Values that had to make room; not those that were dropped or replaced."""
        self._wait_seconds_max = wait_seconds_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._flights: dict[Key, _Flight[Value]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Value | None:
        """The value, if it is kept."""
        with self._lock:
            value = self._look(key)
            self.hits += value is not None
            self.misses += value is None
            return value

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of `size` bytes, in the place of an older one."""
        with self._lock:
            self._keep(key, value, size)

    def drop(self, matches: Callable[[Key], bool]) -> int:
        """Forget the values of all keys that match, those being made too; how many were kept.

        `matches` runs under the lock: it looks at the key and at nothing else.
        """
        with self._lock:
            for key in [key for key in self._flights if matches(key)]:
                del self._flights[key]  # those who wait get their value; nobody joins them, and it is not kept
            keys = [key for key in self._kept if matches(key)]
            for key in keys:
                self._forget(key)
            return len(keys)

    def get_or_make(self, key: Key, make: Callable[[], tuple[Value, int]]) -> Value:
        """The value kept, or the one that `make` returns with its size; what `make` raises, all who wait for it get."""
        with self._lock:
            value = self._look(key)
            if value is not None:
                self.hits += 1
                return value
            flight = self._flights.get(key)
            is_maker = flight is None
            if flight is None:
                self.misses += 1
                flight = self._flights[key] = _Flight()
            else:
                self.joined += 1
        return self._make(key, flight, make) if is_maker else self._join(flight, make)

    def _make(self, key: Key, flight: _Flight[Value], make: Callable[[], tuple[Value, int]]) -> Value:
        try:
            value, size = make()
            with self._lock:
                if self._flights.get(key) is flight:
                    self._keep(key, value, size)
            flight.value = value
        except Exception as error:
            flight.error = _without_past(error)
            raise
        finally:
            # Also when the maker was interrupted: those who wait then find neither value nor error.
            with self._lock:
                if self._flights.get(key) is flight:
                    del self._flights[key]
            flight.done.set()
        return value

    def _join(self, flight: _Flight[Value], make: Callable[[], tuple[Value, int]]) -> Value:
        flight.done.wait(self._wait_seconds_max)
        if flight.error is not None:
            raise _without_past(flight.error)
        # A maker that hangs or was interrupted is no reason to hang or fail as well.
        return flight.value if flight.value is not None else make()[0]

    def _look(self, key: Key) -> Value | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept[0]

    def _keep(self, key: Key, value: Value, size: int) -> None:
        if size < 0:
            raise Misuse(f"a value of {size} bytes")
        if key in self._kept:
            self._forget(key)
        if size > self.bytes_max:
            return
        self._kept[key] = (value, size)
        self.bytes += size
        while self.bytes > self.bytes_max:
            self._forget(next(iter(self._kept)))
            self.evictions += 1

    def _forget(self, key: Key) -> None:
        self.bytes -= self._kept.pop(key)[1]


def _without_past(error: Exception) -> Exception:
    """A flight that holds the frames that know it would stay until somebody collects garbage, with the rows in them."""
    return error.anew() if isinstance(error, StorageError) else error
