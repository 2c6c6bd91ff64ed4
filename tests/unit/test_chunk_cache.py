"""The chunk cache: bounded, counted, against a plain model; and one maker for many readers, in threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.chunk_cache import ChunkCache
from storage.errors import Misuse

PATIENCE_SECONDS = 30.0
"""A thread that has not come so far by then never will."""

keys = st.integers(0, 5)
sizes = st.integers(0, 12)


class CacheLife(RuleBasedStateMachine):
    """Against an ordered dict without a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ChunkCache[int, str](10)
        self.model: OrderedDict[int, tuple[str, int]] = OrderedDict()
        self.count = self.hits = self.misses = self.evictions = 0

    def keep(self, key: int, value: str, size: int) -> None:
        self.model.pop(key, None)
        if size <= 10:
            self.model[key] = (value, size)
        while sum(size for _, size in self.model.values()) > 10:
            self.model.popitem(last=False)
            self.evictions += 1

    def look(self, key: int) -> str | None:
        if key not in self.model:
            self.misses += 1
            return None
        self.hits += 1
        self.model.move_to_end(key)
        return self.model[key][0]

    def new_value(self) -> str:
        self.count += 1
        return f"value {self.count}"

    @rule(key=keys, size=sizes)
    def put(self, key: int, size: int) -> None:
        value = self.new_value()
        self.cache.put(key, value, size)
        self.keep(key, value, size)

    @rule(key=keys)
    def get(self, key: int) -> None:
        assert self.cache.get(key) == self.look(key)

    @rule(key=keys, size=sizes)
    def get_or_make(self, key: int, size: int) -> None:
        value = self.new_value()
        expected = self.look(key)
        if expected is None:
            self.keep(key, value, size)
        assert self.cache.get_or_make(key, lambda: (value, size)) == (expected or value)

    @rule(above=keys)
    def drop(self, above: int) -> None:
        gone = [key for key in self.model if key > above]
        for key in gone:
            del self.model[key]
        assert self.cache.drop(lambda key: key > above) == len(gone)

    @invariant()
    def counts_agree(self) -> None:
        cache = self.cache
        assert cache.bytes == sum(size for _, size in self.model.values()) <= cache.bytes_max
        assert len(cache) == len(self.model)
        assert (cache.hits, cache.misses, cache.evictions) == (self.hits, self.misses, self.evictions)


TestCacheLife = CacheLife.TestCase


class Maker:
    """A `make` that says when it began and waits until it may end."""

    def __init__(self, outcome: Callable[[], tuple[str, int]] = lambda: ("made", 1)) -> None:
        self.calls = 0
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.outcome = outcome

    def __call__(self) -> tuple[str, int]:
        self.calls += 1
        self.began.set()
        assert self.may_end.wait(PATIENCE_SECONDS)
        return self.outcome()


def never() -> tuple[str, int]:
    raise AssertionError("somebody else makes this")


def wait_for_joined(cache: ChunkCache[str, str], count: int) -> None:
    """Until so many readers wait for a maker."""
    deadline = threading.Event()
    timer = threading.Timer(PATIENCE_SECONDS, deadline.set)
    timer.start()
    while cache.joined < count:
        assert not deadline.is_set(), f"{cache.joined} readers wait, not {count}"
    timer.cancel()


def test_many_readers_make_a_value_once() -> None:
    cache, make = ChunkCache[str, str](), Maker()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cache.get_or_make, "key", make)
        assert make.began.wait(PATIENCE_SECONDS)
        others = [pool.submit(cache.get_or_make, "key", never) for _ in range(7)]
        wait_for_joined(cache, 7)
        make.may_end.set()
        assert {future.result() for future in [first, *others]} == {"made"}
    assert make.calls == 1
    assert (cache.hits, cache.misses, cache.joined) == (0, 1, 7)
    assert cache.get("key") == "made"


def test_other_keys_do_not_wait() -> None:
    cache, make = ChunkCache[str, str](), Maker()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.get_or_make, "slow", make)
        assert make.began.wait(PATIENCE_SECONDS)
        assert cache.get_or_make("fast", lambda: ("fast", 1)) == "fast"
        assert cache.get("slow") is None
        make.may_end.set()
        assert slow.result() == "made"


def test_all_who_wait_get_the_makers_error_and_nothing_is_kept() -> None:
    def fail() -> tuple[str, int]:
        raise OSError("the disk")

    cache, make = ChunkCache[str, str](), Maker(fail)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_make, "key", make)
        assert make.began.wait(PATIENCE_SECONDS)
        second = pool.submit(cache.get_or_make, "key", never)
        wait_for_joined(cache, 1)
        make.may_end.set()
        for future in (first, second):
            with pytest.raises(OSError, match="the disk"):
                future.result()
    assert cache.get_or_make("key", lambda: ("again", 1)) == "again"


def test_an_interrupted_maker_leaves_the_others_to_themselves() -> None:
    class Interrupted(BaseException):
        pass

    def interrupt() -> tuple[str, int]:
        raise Interrupted

    cache, make = ChunkCache[str, str](), Maker(interrupt)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_make, "key", make)
        assert make.began.wait(PATIENCE_SECONDS)
        second = pool.submit(cache.get_or_make, "key", lambda: ("own", 1))
        wait_for_joined(cache, 1)
        make.may_end.set()
        with pytest.raises(Interrupted):
            first.result()
        assert second.result() == "own"


def test_a_maker_that_hangs_holds_nobody_for_long() -> None:
    cache, make = ChunkCache[str, str](wait_seconds_max=0.0), Maker()
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(cache.get_or_make, "key", make)
        assert make.began.wait(PATIENCE_SECONDS)
        assert cache.get_or_make("key", lambda: ("own", 1)) == "own"
        make.may_end.set()
        assert hanging.result() == "made"


def test_what_is_dropped_while_it_is_made_is_not_kept() -> None:
    cache, make = ChunkCache[str, str](), Maker()
    with ThreadPoolExecutor(1) as pool:
        old = pool.submit(cache.get_or_make, "key", make)
        assert make.began.wait(PATIENCE_SECONDS)
        assert cache.drop(lambda key: key == "key") == 0
        assert cache.get_or_make("key", lambda: ("new", 1)) == "new"
        make.may_end.set()
        assert old.result() == "made"
    assert cache.get("key") == "new"


def test_a_maker_of_what_was_dropped_leaves_the_next_maker_alone() -> None:
    cache, make_old, make_new = ChunkCache[str, str](), Maker(), Maker(lambda: ("new", 1))
    with ThreadPoolExecutor(3) as pool:
        old = pool.submit(cache.get_or_make, "key", make_old)
        assert make_old.began.wait(PATIENCE_SECONDS)
        cache.drop(lambda _: True)
        new = pool.submit(cache.get_or_make, "key", make_new)
        assert make_new.began.wait(PATIENCE_SECONDS)
        make_old.may_end.set()
        assert old.result() == "made"
        joined = pool.submit(cache.get_or_make, "key", never)
        wait_for_joined(cache, 1)
        make_new.may_end.set()
        assert new.result() == joined.result() == cache.get("key") == "new"


def test_a_size_below_zero_is_refused() -> None:
    cache = ChunkCache[str, str]()
    with pytest.raises(Misuse):
        cache.put("key", "value", -1)
    with pytest.raises(Misuse):
        cache.get_or_make("key", lambda: ("value", -1))
    assert cache.get_or_make("key", lambda: ("value", 1)) == "value"


def test_threads_keep_the_books_straight() -> None:
    cache = ChunkCache[int, int](50)

    def made(key: int) -> tuple[int, int]:
        return key, key % 5

    def read(seed: int) -> None:
        for index in range(300):
            key = (seed * 7 + index * 13) % 40
            assert cache.get_or_make(key, partial(made, key)) == key
            if index % 50 == 0:
                cache.drop(lambda key: key % 3 == 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))
    assert cache.hits + cache.misses + cache.joined == 4 * 300
    assert 0 <= cache.bytes <= 50
    cache.drop(lambda _: True)
    assert (cache.bytes, len(cache)) == (0, 0)
