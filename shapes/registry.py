"""Which shapes there are: the catalog's handles with their definitions, found by handle, name or definition.

The catalog is the truth; what is kept here beside it can be computed from it again, and is when a process starts. Each
change is on the disk before anybody finds it here (A11), and each call that changes something waits for that: call it
on a thread. Look-ups do not wait, and may come from another thread at the same time.

Invariants:
    a handle is given out once, across restarts, crashes and clocks that are set back: its number is above that of
    every handle that the catalog has ever had and still remembers
    an identity leads to the newest log that has it and has not ended, and there to the log's newest handle
    a name belongs to one shape that lives, or to an ended one whose successor is awaited
    nothing with a name, with a reader, or still being born is ever named as idle
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from shapes.definition import DefinedColumn, Definition
from shapes.errors import DefinitionUnreadable, ShapeNameTaken, UnknownShape
from shapes.idleness import Idleness
from shapes.shape_names import check_name, free_name
from storage.catalog import Catalog, CatalogState
from storage.catalog_records import Born, Ended, Life, Ready, Rebased, Record, Shape, Snapshot, Succeeded
from storage.offset import SNAPSHOT_END, LogOffset

REMOVED: Final = "removed"
"""The reason of an end that a person wanted: a shape with a name gets no successor after it."""

EXPIRED: Final = "expired"
"""The reason of the end of a shape that nobody asked for any more."""

HASH_DIGITS: Final = 16
"""Of the identity, in a handle: for people, who see which handles are of one definition."""

_NUMBERED: Final = re.compile(r".*-(\d{1,18})", re.ASCII)
_LIVING: Final = (Life.BORN, Life.READY)


@dataclass(frozen=True, slots=True)
class Entry:
    """A handle as the catalog had it at the moment of asking."""

    shape: Shape
    definition: Definition

    @property
    def handle(self) -> str:
        """Its handle."""
        return self.shape.handle

    @property
    def log(self) -> int:
        """The number of its log."""
        return self.shape.log


class Registry:
    """A view of one catalog, which nobody else appends to."""

    def __init__(self, catalog: Catalog, wall: Callable[[], int], now: float) -> None:
        """`wall` gives microseconds since 1970; `now` is the start, on the clock of all other `now`s here."""
        self._catalog = catalog
        self._wall = wall
        self._appending = Lock()
        self._definitions: dict[int, Definition] = {}
        """Of the logs that live."""
        self._by_identity: dict[str, tuple[int, ...]] = {}
        """The logs that live, the newest last."""
        self._columns: dict[tuple[DefinedColumn, ...], tuple[DefinedColumn, ...]] = {}
        """Shapes of one table have the same columns: kept once, since there may be ten thousand of them."""
        self._idleness = Idleness()
        self._last_number = max(map(_number, (*self._state.shapes, *self._state.tombstones)), default=0)
        for shape in self._state.living():
            if shape.life in _LIVING:
                self._index(shape, _definition(shape), now)

    def find(self, handle: str) -> Entry | None:
        """The handle in whatever state; None if the catalog has forgotten it or never knew it."""
        shape = self._state.shapes.get(handle)
        if shape is None:
            return None
        return Entry(shape, self._definitions.get(shape.log) or _definition(shape))

    def named(self, name: str) -> Entry | None:
        """The living shape that has the name."""
        shape = self._state.named(name)
        return self._newest(shape.log) if shape is not None else None

    def defined(self, definition: Definition) -> Entry | None:
        """The newest living shape of the definition."""
        logs = self._by_identity.get(definition.identity, ())
        return self._newest(logs[-1]) if logs else None

    def heir(self, handle: str) -> Entry | None:
        """The same shape as it is now: the handle itself, a newer one of its log, or a successor."""
        last = self._last_of_line(handle)
        return None if last is None else self._newest(last.log)

    def replacement(self, handle: str) -> Entry | None:
        """Who stands where this handle stood, for its readers: its heir, or an equal shape."""
        last = self._last_of_line(handle)
        return None if last is None else self._newest(last.log) or self.defined(_definition(last))

    def _last_of_line(self, handle: str) -> Shape | None:
        """A handle whose log lives, of the handle's line of successors; else the last one there was."""
        shape = self._state.shapes.get(handle)
        while shape is not None and self._newest(shape.log) is None:
            newest = self._state.newest_of(shape.log) or shape
            following = self._state.shapes.get(newest.successor or "")
            if following is None:
                return newest
            shape = following
        return shape

    def reasons_since(self, handle: str) -> frozenset[str]:
        """Why the handle, and those that followed on the same log, gave way to newer ones."""
        shape = self._state.shapes.get(handle)
        handles = () if shape is None else self._state.handles_of(shape.log)
        own = next((place for place, one in enumerate(handles) if one.handle == handle), 0)
        return frozenset(one.reason for one in handles[own:] if one.life is Life.REBASED and one.reason is not None)

    def living(self) -> list[Entry]:
        """The newest handle of every log that lives, by log."""
        entries = map(self._newest, sorted(self._definitions))
        return [entry for entry in entries if entry is not None]

    def awaiting(self) -> list[Entry]:
        """Shapes with a name that ended and shall have a successor, and have none yet."""
        ended = (shape for shape in list(self._state.shapes.values()) if self._is_awaiting(shape))
        return [Entry(shape, _definition(shape)) for shape in ended]

    def awaited(self, name: str) -> Entry | None:
        """The ended shape of the name that shall have a successor, and has none yet."""
        shape = self._state.named(name)
        return Entry(shape, _definition(shape)) if shape is not None and self._is_awaiting(shape) else None

    def is_over(self, log: int) -> bool:
        """Whether nobody needs the log's files: it ended, and its name does not wait for another log to be complete.

        What the catalog has forgotten is over, since nobody asks any more for what was listed then.
        """
        state = self._state
        shape = state.newest_of(log)
        if shape is None:
            return log < state.next_log  # else it is not this catalog's
        if shape.life is not Life.ENDED:
            return False
        if shape.name is None or shape.listed_from is None or shape.reason == REMOVED:
            return True
        # By name and not from successor to successor: the catalog forgets those that were never complete.
        last = state.named(shape.name)
        if last is None or (last.listed_from is not None and last.log != log):
            return True
        return last.life is Life.ENDED and last.reason == REMOVED

    def check_free(self, name: str, succeeds: str | None = None) -> None:
        """Raise for a name that no shape may have, or that another has; the shape to be succeeded may have it."""
        check_name(name)
        if not self._is_free(name, succeeds):
            other = free_name(name, lambda candidate: self._is_free(candidate, None))
            holder = self._state.named(name)
            assert holder is not None, "it is not free"
            waits = "" if holder.life in _LIVING else ", whose successor is awaited"
            raise ShapeNameTaken(
                f"the name {name!r} belongs to another shape{waits}",
                hint=f"Choose another name, such as {other}, or remove the shape that has it.",
                handle=holder.handle,
                free=other,
            )

    def born(
        self,
        definition: Definition,
        snapshot: Snapshot,
        now: float,
        *,
        name: str | None = None,
        succeeds: str | None = None,
    ) -> Entry:
        """A shape with a new handle and log. With `succeeds`, it takes the place of that ended handle.

        If this raises, the shape does not exist here; after a crash it may, as one that was born and is not ready.
        """
        with self._appending:
            if name is not None:
                self.check_free(name, succeeds)
            handle = self._new_handle(definition)
            records: list[Record] = [
                Born(handle, self._state.next_log, name, definition.to_json(), snapshot),
            ]
            if succeeds is not None and succeeds in self._state.shapes:
                records.append(Succeeded(succeeds, handle))
            self._catalog.append(*records)
            self._index(self._state.shapes[handle], definition, now)
            return Entry(self._state.shapes[handle], definition)

    def ready(self, handle: str, base: int) -> Entry:
        """Its base is complete."""
        with self._appending:
            self._catalog.append(Ready(handle, base))
            return self._must_find(handle)

    def rebased(self, handle: str, base: int, floor: LogOffset, why: str) -> Entry:
        """The log goes on under a new handle, with a new base."""
        with self._appending:
            old = self._must_find(handle)
            new = self._new_handle(old.definition)
            self._catalog.append(Rebased(old.log, handle, new, base, floor, why))
            return self._must_find(new)

    def ended(self, handle: str, at: LogOffset, reason: str) -> None:
        """The handle takes no more rows; with the newest handle of a log, its older ones end too."""
        self.all_ended([Ended(handle, at, reason)])

    def all_ended(self, ends: Iterable[Ended]) -> None:
        """As `ended` for each of them, with one sync for thousands."""
        with self._appending:
            records = list(ends)
            logs = [self._must_find(record.handle).log for record in records]
            self._catalog.append(*records)
            for log in logs:
                newest = self._state.newest_of(log)
                if newest is None or newest.life is Life.ENDED:
                    self._forget(log)

    def withdrawn(self, name: str) -> bool:
        """Nobody wants a successor of the ended shape any more that had the name. Whether one was awaited."""
        with self._appending:
            ended = self._state.named(name)
            if ended is None or not self._is_awaiting(ended):
                return False
            # An end is told once, so the successor that nobody wants comes into being, and is removed.
            handle = self._new_handle(_definition(ended))
            self._catalog.append(
                Born(handle, self._state.next_log, name, ended.definition, ended.snapshot),
                Succeeded(ended.handle, handle),
                Ended(handle, SNAPSHOT_END, REMOVED),
            )
            return True

    def touch(self, handle: str, now: float) -> None:
        """Somebody asked for the handle."""
        self._idleness.touch(self._log_of(handle), now)

    def enter(self, handle: str, now: float) -> None:
        """A reader holds the handle; it must `leave` as often."""
        self._idleness.enter(self._log_of(handle), now)

    def leave(self, handle: str, now: float) -> None:
        """One reader let go of the handle."""
        self._idleness.leave(self._log_of(handle), now)

    def readers_of(self, handle: str) -> int:
        """Readers that hold the log of the handle now."""
        return self._idleness.readers_of(self._log_of(handle))

    def expired(self, now: float, idle_seconds: float) -> list[str]:
        """Handles of shapes without a name that nobody asked for in so long, oldest use first."""
        return self._handles(self._idleness.idle(now, idle_seconds))

    def over(self, shapes_max: int) -> list[str]:
        """Handles to be ended so that no more than `shapes_max` live, as far as nobody would miss them."""
        excess = len(self._definitions) - shapes_max
        if excess <= 0:
            return []
        # All are asked for, since some of the oldest may still be being born.
        return self._handles(self._idleness.oldest(len(self._definitions)))[:excess]

    def forget_below(self, version: int) -> None:
        """Nobody asks any more what the catalog listed before: what ended then may be forgotten."""
        self._catalog.forget_below(version)

    @property
    def _state(self) -> CatalogState:
        return self._catalog.state

    def _newest(self, log: int) -> Entry | None:
        """A log's newest handle, if the log lives."""
        shape, definition = self._state.newest_of(log), self._definitions.get(log)
        if shape is None or definition is None or shape.life not in _LIVING:
            return None
        return Entry(shape, definition)

    def _must_find(self, handle: str) -> Entry:
        entry = self.find(handle)
        if entry is None:
            raise UnknownShape("no shape has this handle", handle=handle)
        return entry

    def _log_of(self, handle: str) -> int:
        """0, which is no log, for a handle that nobody knows any more."""
        shape = self._state.shapes.get(handle)
        return shape.log if shape is not None else 0

    def _handles(self, logs: Iterable[int]) -> list[str]:
        entries = map(self._newest, logs)
        return [entry.handle for entry in entries if entry is not None and entry.shape.life is Life.READY]

    def _is_free(self, name: str, succeeds: str | None) -> bool:
        holder = self._state.named(name)
        if holder is None:
            return True
        return holder.life is Life.ENDED and (holder.handle == succeeds or not self._is_awaiting(holder))

    def _is_awaiting(self, shape: Shape) -> bool:
        if shape.name is None or shape.life is not Life.ENDED or shape.reason == REMOVED:
            return False
        last = self._state.named(shape.name)
        return shape.successor is None and last is not None and last.handle == shape.handle

    def _new_handle(self, definition: Definition) -> str:
        # Also above those whose record failed: after a crash, the disk may turn out to have them.
        self._last_number = max(self._wall(), self._last_number + 1)
        return f"{definition.identity[:HASH_DIGITS]}-{self._last_number}"

    def _index(self, shape: Shape, definition: Definition, now: float) -> None:
        columns = self._columns.setdefault(definition.columns, definition.columns)
        definition = replace(definition, columns=columns)
        self._definitions[shape.log] = definition
        identity = definition.identity
        # Sorted, for a start meets the logs in the order of their newest handles.
        self._by_identity[identity] = tuple(sorted((*self._by_identity.get(identity, ()), shape.log)))
        if shape.name is None:
            self._idleness.add(shape.log, now)

    def _forget(self, log: int) -> None:
        definition = self._definitions.pop(log, None)
        self._idleness.remove(log)
        if definition is None:
            return
        identity = definition.identity
        others = tuple(other for other in self._by_identity.get(identity, ()) if other != log)
        if others:
            self._by_identity[identity] = others
        else:
            self._by_identity.pop(identity, None)


def _definition(shape: Shape) -> Definition:
    try:
        return Definition.from_json(shape.definition)
    except DefinitionUnreadable as error:
        raise DefinitionUnreadable(error.message, handle=shape.handle, **error.facts) from None


def _number(handle: str) -> int:
    numbered = _NUMBERED.fullmatch(handle)
    return int(numbered[1]) if numbered else 0
