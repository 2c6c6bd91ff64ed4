"""Which shapes there are: a log of what happened to each handle, every record with the next catalog version.

`Catalog.append` returns once the records are on the disk, and only then does the state show them (A11: a record is
synced before its effect). A G record names a catalog version, and `listed_at` says which handles it speaks for.

Invariants:
    a handle is given out once; a log number is given out once: each is >= the `next_log` before it
    a name belongs to at most one log that has not ended
    each log that has not ended has one newest handle, BORN or READY; its older ones are REBASED or ENDED
    a handle is listed in version v if listed_from <= v < listed_until
    kept_from <= version; the versions between can be asked for, also after a compaction
    of a log that lives, the newest handle is never forgotten, nor are those just before it
"""

from collections import ChainMap
from collections.abc import MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, Self

from storage.catalog_records import (
    Born,
    Compacted,
    Ended,
    Life,
    Ready,
    Rebased,
    Record,
    Shape,
    Stored,
    Succeeded,
    decode_record,
    encode_record,
)
from storage.disk import Disk
from storage.errors import CorruptRecord, Misuse, StorageError
from storage.limits import CATALOG_TOMBSTONES_MAX, LOG_HANDLES_KEPT, RECORD_LOG_BYTES_MAX
from storage.offset import LogOffset
from storage.record_log import RecordLog, RecordLogReader

NEXT_LIFE: Final = {
    (Life.UNBORN, "born"): Life.BORN,
    (Life.UNBORN, "takes over"): Life.READY,
    (Life.BORN, "ready"): Life.READY,
    (Life.BORN, "ended"): Life.ENDED,
    (Life.READY, "rebased"): Life.REBASED,
    (Life.READY, "ended"): Life.ENDED,
    (Life.REBASED, "ended"): Life.ENDED,
    (Life.ENDED, "succeeded"): Life.ENDED,
    (Life.ENDED, "given up"): Life.ENDED,
    (Life.BORN, "succeeds"): Life.BORN,
    (Life.READY, "succeeds"): Life.READY,
}
"""The life of a handle. What is not here cannot happen."""


class CatalogState:
    """What the records so far say. Other threads may ask while one applies a record."""

    def __init__(self) -> None:
        self.version = 0
        self.kept_from = 0
        self.next_log = 1
        self.shapes: MutableMapping[str, Shape] = {}
        self.tombstones: dict[str, None] = {}
        self._by_name: MutableMapping[str, str] = {}
        """The last handle that had the name, ended or not."""
        self._by_log: MutableMapping[int, tuple[str, ...]] = {}
        """The handles of the log, the newest last."""

    def living(self) -> list[Shape]:
        """Every shape that has not ended, in the order of birth."""
        return [shape for shape in list(self.shapes.values()) if shape.life is not Life.ENDED]

    def named(self, name: str) -> Shape | None:
        """The shape that has the name, or else the last that had it."""
        return self.shapes.get(self._by_name.get(name, ""))

    def newest_of(self, log: int) -> Shape | None:
        """The newest handle of a log."""
        return self.shapes.get(self._by_log.get(log, ("",))[-1])

    def handles_of(self, log: int) -> tuple[Shape, ...]:
        """The handles of a log that are remembered, the newest last."""
        known = (self.shapes.get(handle) for handle in tuple(self._by_log.get(log, ())))
        return tuple(shape for shape in known if shape is not None)

    def listed_at(self, version: int) -> frozenset[str]:
        """The handles that were ready and not ended as of a catalog version."""
        if not self.kept_from <= version <= self.version:
            raise Misuse(
                "the catalog cannot say what it listed then", asked=version, oldest=self.kept_from, newest=self.version
            )
        return frozenset(
            shape.handle
            for shape in list(self.shapes.values())
            if shape.listed_from is not None and shape.listed_from <= version
            if shape.listed_until is None or version < shape.listed_until
        )

    def apply(self, record: Record) -> None:
        """Let the next record happen; raises `Misuse` if it cannot, and must not be used after that."""
        self.version += 1
        match record:
            case Born():
                self._born(record)
            case Ready(handle, base):
                self._move(handle, "ready", base=base, listed_from=self.version)
            case Rebased():
                self._rebased(record)
            case Ended(handle, at, reason):
                self._ended(handle, at, reason)
            case Succeeded(old, new):
                if self._must_know(old).successor is not None:
                    raise Misuse("a handle has one successor", handle=old, second=new)
                self._move(old, "succeeded", successor=new)
                self._move(new, "succeeds")

    def replay(self, version: int, record: Stored) -> None:
        """Take a record as it comes from the disk; raises `CorruptRecord` if it contradicts those before it."""
        match record:
            case Compacted():
                is_in_order = self.version == 0
                self.version, self.kept_from, self.next_log = version, record.kept_from, record.next_log
                self.tombstones = dict.fromkeys(record.tombstones)
            case Shape():
                is_in_order = version == self.version and record.handle not in self.shapes
                self._put(record)
            case _:
                is_in_order = version == self.version + 1
                try:
                    self.apply(record)
                except Misuse as error:
                    raise CorruptRecord(f"catalog record {version} cannot be: {error.message}", **error.facts) from None
        if not is_in_order:
            raise CorruptRecord("the catalog's records are not in order", found=version, after=self.version)

    def compacted(self, keep_from: int) -> list[Stored]:
        """The fewest records that leave the same state, for questions from version `keep_from` on."""
        keep_from = max(keep_from, self.kept_from)
        newest = {handle for handles in self._by_log.values() for handle in handles[-LOG_HANDLES_KEPT:]}
        listed = {one.name: one.handle for one in self.shapes.values() if one.name and one.listed_from is not None}
        last = {*self._by_name.values(), *listed.values()}
        kept = [shape for shape in self.shapes.values() if _is_kept(shape, keep_from, newest, last)]
        gone = dict.fromkeys([*self.tombstones, *self.shapes])
        for shape in kept:
            del gone[shape.handle]
        tombstones = tuple(gone)[-CATALOG_TOMBSTONES_MAX:]
        return [Compacted(keep_from, self.next_log, tombstones), *kept]

    def fork(self) -> Self:
        """A state of its own on top of this one, for records whose fate is open."""
        fork = type(self)()
        fork.version, fork.kept_from, fork.next_log = self.version, self.kept_from, self.next_log
        fork.tombstones = self.tombstones
        fork.shapes = ChainMap({}, self.shapes)
        fork._by_name = ChainMap({}, self._by_name)  # noqa: SLF001 - of the same class
        fork._by_log = ChainMap({}, self._by_log)  # noqa: SLF001
        return fork

    def merge(self, fork: Self) -> None:
        """Become what the fork is, in an order in which no handle is found before its shape."""
        for mine, other in (
            (self.shapes, fork.shapes),
            (self._by_log, fork._by_log),
            (self._by_name, fork._by_name),
        ):
            assert isinstance(other, ChainMap)
            mine.update(other.maps[0])
        self.next_log, self.version = fork.next_log, fork.version

    def _put(self, shape: Shape) -> None:
        self.shapes[shape.handle] = shape
        if shape.name is not None:
            self._by_name[shape.name] = shape.handle
        self._by_log[shape.log] = (*self._by_log.get(shape.log, ()), shape.handle)

    def _must_know(self, handle: str) -> Shape:
        shape = self.shapes.get(handle)
        if shape is None:
            raise Misuse("the catalog does not know the handle", handle=handle)
        return shape

    def _next_life(self, handle: str, event: str) -> Life:
        life = self.shapes[handle].life if handle in self.shapes else Life.UNBORN
        life = Life.ENDED if handle in self.tombstones else life
        following = NEXT_LIFE.get((life, event))
        if following is None:
            raise Misuse(f"a handle that is {life} cannot have the event {event!r}", handle=handle)
        return following

    def _move(self, handle: str, event: str, **changes: object) -> Shape:
        shape = replace(self._must_know(handle), life=self._next_life(handle, event), **changes)  # type: ignore[arg-type]  # each caller's names are fields
        self.shapes[handle] = shape
        return shape

    def _born(self, born: Born) -> None:
        life = self._next_life(born.handle, "born")
        if born.log < self.next_log:
            raise Misuse("log numbers are given out once", log=born.log, next=self.next_log)
        holder = self.named(born.name) if born.name is not None else None
        if holder is not None and holder.life is not Life.ENDED:
            raise Misuse(f"the name {born.name!r} belongs to another shape", handle=holder.handle)
        self.next_log = born.log + 1
        self._put(Shape(born.handle, born.log, born.name, born.definition, born.snapshot, life))

    def _rebased(self, rebased: Rebased) -> None:
        life = self._next_life(rebased.new, "takes over")
        if self._must_know(rebased.old).log != rebased.log:
            raise Misuse("the handle belongs to another log", handle=rebased.old, log=rebased.log)
        old = self._move(rebased.old, "rebased", listed_until=self.version, floor=rebased.floor, reason=rebased.why)
        shape = Shape(rebased.new, old.log, old.name, old.definition, old.snapshot, life)
        self._put(replace(shape, base=rebased.base, listed_from=self.version))

    def _ended(self, handle: str, at: LogOffset, reason: str) -> None:
        shape = self._must_know(handle)
        is_last = shape.name is not None and self._by_name[shape.name] == handle
        if shape.life is Life.ENDED and is_last and shape.successor is None:
            self._move(handle, "given up", reason=reason)  # nobody will take its place: its name is free
            return
        handles = self._by_log[shape.log]
        older = [name for name in handles if self.shapes[name].life is Life.REBASED] if handle == handles[-1] else []
        for name in [handle, *older]:
            until = self.shapes[name].listed_until
            until = self.version if until is None else until
            self._move(name, "ended", ended_at=at, reason=reason, listed_until=until)


def _is_kept(shape: Shape, keep_from: int, newest: AbstractSet[str], last: AbstractSet[str]) -> bool:
    """Living, or listed in a version that is kept, or the last of its name, to which a successor may come.

    Of a name also the last that was listed: the lake follows that, and those that came after it were never complete.
    """
    was_listed = shape.listed_from is not None and (shape.listed_until or 0) > keep_from
    is_living = shape.life is not Life.ENDED and shape.handle in newest
    return is_living or was_listed or shape.handle in last


class Catalog:
    """The writer's end. Its `state` is another object after a compaction: ask for it each time."""

    def __init__(self, disk: Disk, path: str = "catalog", *, bytes_max: int = RECORD_LOG_BYTES_MAX) -> None:
        self._log = RecordLog(disk, path, bytes_max)
        self._keep_from = 0
        self.state = _state_of(self._log.read())

    def append(self, *records: Record) -> int:
        """Make records durable with one sync, then let them happen; the catalog version of the last.

        A crash leaves all of them or the first few.
        """
        if self._log.is_long or self._log.is_in_doubt:
            self._compact()  # before the records are looked at, since they may not speak of what it forgets
        fork = self.state.fork()
        payloads = []
        for record in records:
            fork.apply(record)
            payloads.append(encode_record(fork.version, record))
        self._log.append(payloads)
        self.state.merge(fork)
        return self.state.version

    def forget_below(self, version: int) -> None:
        """Nobody asks any more for what was listed in versions below; the next compaction makes use of that."""
        self._keep_from = min(max(version, self._keep_from), self.state.version)

    def _compact(self) -> None:
        version = self.state.version
        payloads = [encode_record(version, record) for record in self.state.compacted(self._keep_from)]
        self._log.rewrite(payloads)
        self.state = _state_of(payloads)


class CatalogReader:
    """The end of other processes, which sees a record once it is durable."""

    def __init__(self, disk: Disk, path: str = "catalog") -> None:
        self._log = RecordLogReader(disk, path)
        self.state = CatalogState()

    def refresh(self) -> bool:
        """Look again; whether there was anything new."""
        fresh = self._log.refresh()
        try:
            self.state = _state_of(fresh.records, None if fresh.restarted else self.state)
        except StorageError:
            self._log.restart()
            raise
        return bool(fresh.records)


def _state_of(payloads: list[bytes], state: CatalogState | None = None) -> CatalogState:
    """The state that the records lead to, from the given one or from nothing."""
    state = state or CatalogState()
    for payload in payloads:
        state.replay(*decode_record(payload))
    return state
