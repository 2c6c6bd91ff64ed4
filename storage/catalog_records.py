"""What the catalog's records say, and their JSON.

A record is an object with `type`, `version` and the fields of its class; offsets are text. The names of types and
fields are stored and never change their meaning; a type or field that is not here comes from a later program, and is
refused.

Invariant: whatever was encoded decodes to an equal record; what would not is refused before it is written.
"""

import functools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeAlias

import orjson

from storage.errors import CorruptRecord, InvalidOffset, Misuse, UnknownFormat
from storage.limits import HANDLE_CHARACTERS_MAX, SCHEMAS_KEPT, SHARED_TEXT_CHARACTERS_MAX
from storage.offset import LogOffset

_HANDLE: Final = re.compile(rf"[\w.~-]{{1,{HANDLE_CHARACTERS_MAX}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions the snapshot of a shape had seen (A7), and the WAL position taken after it."""

    xmin: int
    xmax: int
    xip: tuple[int, ...]
    birth: int


@dataclass(frozen=True, slots=True)
class Born:
    """A shape has a log; its snapshot is still being copied."""

    handle: str
    log: int
    name: str | None
    """Of a materialized shape; unique among those that have not ended."""
    definition: dict[str, Any]
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Ready:
    """The base is complete."""

    handle: str
    base: int


@dataclass(frozen=True, slots=True)
class Rebased:
    """The log has a new base, and so a new handle; the old one goes on above the floor, if at all."""

    log: int
    old: str
    new: str
    base: int
    floor: LogOffset
    why: str
    """`fold`, `truncate`, ..: what the old handle's readers are told follows from it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The handle takes no more rows; with the newest handle of a log, the log ends, and its older handles do."""

    handle: str
    at: LogOffset
    reason: str


@dataclass(frozen=True, slots=True)
class Succeeded:
    """An ended handle's place is taken by one with a log of its own."""

    old: str
    new: str


class Life(StrEnum):
    """Where a handle stands. Stored."""

    UNBORN = "unborn"
    BORN = "born"
    READY = "ready"
    REBASED = "rebased"
    """A newer handle has this one's log."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Shape:
    """All that is known of a handle. A compacted catalog stores it in the place of the records that led to it."""

    handle: str
    log: int
    name: str | None
    definition: dict[str, Any]
    """Nobody changes it."""
    snapshot: Snapshot
    life: Life
    base: int | None = None
    listed_from: int | None = None
    """The first catalog version that lists the handle.."""
    listed_until: int | None = None
    """.. and the first after it that does not."""
    floor: LogOffset | None = None
    """Of a rebased handle: its base can no longer be read, the log only above this."""
    ended_at: LogOffset | None = None
    reason: str | None = None
    """Why it was rebased or ended."""
    successor: str | None = None
    """The handle of another log that took its place."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The first record of a compacted catalog; the shapes it still knows follow."""

    kept_from: int
    """Versions below can no longer be asked for."""
    next_log: int
    tombstones: tuple[str, ...]
    """Handles of which nothing else is known; they are never given out again."""


Record: TypeAlias = Born | Ready | Rebased | Ended | Succeeded
Stored: TypeAlias = Record | Compacted | Shape


def encode_record(version: int, record: Stored) -> bytes:
    """The record's JSON; raises `Misuse` for one that could not be read back as it is."""
    content = {field.name: getattr(record, field.name) for field in fields(record)}
    try:
        data = orjson.dumps({"type": _TYPES[type(record)], "version": version, **content}, default=_offset_text)
    except TypeError as error:
        raise Misuse(f"a catalog record cannot be written as JSON: {error}") from None
    try:
        is_faithful = decode_record(data) == (version, record)
    except CorruptRecord as error:
        raise Misuse(f"not a catalog record: {error.message}") from None
    if not is_faithful:
        raise Misuse("a catalog record would not be read back as it was written", type=_TYPES[type(record)])
    return data


def decode_record(data: bytes) -> tuple[int, Stored]:
    """The catalog version and the record."""
    try:
        content = orjson.loads(data)
        kind, version = content.pop("type"), _number(content.pop("version"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptRecord(f"a catalog record is not what one looks like: {error!r}") from None
    if kind not in _CLASSES:
        raise UnknownFormat(f"the catalog has a record of type {kind!r}, which this program does not know")
    make, readers = _CLASSES[kind]
    unknown = content.keys() - readers.keys()
    if unknown:
        raise UnknownFormat(f"the catalog has a {kind!r} record with unknown fields", fields=sorted(unknown))
    try:
        return version, make(**{name: read(content[name]) for name, read in readers.items()})
    except (ValueError, KeyError, TypeError, InvalidOffset) as error:
        raise CorruptRecord(f"a {kind!r} record of the catalog has a wrong field: {error!r}") from None


Reader: TypeAlias = Callable[[Any], Any]


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number from 0 on")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _handle(value: object) -> str:
    if not _HANDLE.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not a handle: 1 to {HANDLE_CHARACTERS_MAX} of letters, digits and _ . ~ -")
    return _text(value)


def _offset(value: object) -> LogOffset:
    return LogOffset.parse(_text(value))


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _definition(value: object) -> dict[str, Any]:
    """What its shapes are, is not ours to know; but thousands of shapes of one table have the same columns."""
    return {
        name: _shared(orjson.dumps(part)) if isinstance(part, list | dict) else _shared_text(part)
        for name, part in _object(value).items()
    }


def _shared_text(part: Any) -> Any:  # noqa: ANN401 - any JSON
    """The same for names, of which a definition has four."""
    return sys.intern(part) if isinstance(part, str) and len(part) <= SHARED_TEXT_CHARACTERS_MAX else part


@functools.lru_cache(maxsize=SCHEMAS_KEPT)
def _shared(data: bytes) -> Any:  # noqa: ANN401 - any JSON
    """One object for equal parts of definitions, which nobody alters: forty small objects a shape less."""
    return orjson.loads(data)


def _snapshot(value: object) -> Snapshot:
    content = _object(value)
    xmin, xmax, birth = (_number(content[name]) for name in ("xmin", "xmax", "birth"))
    return Snapshot(xmin, xmax, tuple(map(_number, _list(content["xip"]))), birth)


def _handles(value: object) -> tuple[str, ...]:
    return tuple(map(_handle, _list(value)))


def _or_none(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


_BORN: Final[dict[str, Reader]] = {
    "handle": _handle,
    "log": _number,
    "name": _or_none(_text),
    "definition": _definition,
    "snapshot": _snapshot,
}

_CLASSES: Final[dict[str, tuple[type[Stored], dict[str, Reader]]]] = {
    "born": (Born, _BORN),
    "ready": (Ready, {"handle": _handle, "base": _number}),
    "rebased": (
        Rebased,
        {"log": _number, "old": _handle, "new": _handle, "base": _number, "floor": _offset, "why": _text},
    ),
    "ended": (Ended, {"handle": _handle, "at": _offset, "reason": _text}),
    "succeeded": (Succeeded, {"old": _handle, "new": _handle}),
    "compacted": (Compacted, {"kept_from": _number, "next_log": _number, "tombstones": _handles}),
    "shape": (
        Shape,
        _BORN
        | {
            "life": Life,
            "base": _or_none(_number),
            "listed_from": _or_none(_number),
            "listed_until": _or_none(_number),
            "floor": _or_none(_offset),
            "ended_at": _or_none(_offset),
            "reason": _or_none(_text),
            "successor": _or_none(_handle),
        },
    ),
}

_TYPES: Final = {make: name for name, (make, _) in _CLASSES.items()}


def _offset_text(value: object) -> str:
    """What orjson does not know: an offset is a tuple to Python, and text in a record."""
    if isinstance(value, LogOffset):
        return str(value)
    raise TypeError(f"{value!r} has no form in JSON")
