"""What the demo's processes tell the one that started them: a JSON object a line.

A line that is none of these is for people: a log message, or the last words of a process.
"""

import os
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import orjson


@dataclass(frozen=True, slots=True)
class Recovered:
    """The writer has the folder, and goes on with the first transaction that was not confirmed."""

    seconds: float
    """How long recovery took."""
    cut: dict[str, int]
    """Rows of each table that lay on disk without their transaction's end, and are gone."""
    again: int
    """Transactions that are on disk and were not confirmed: the shop sends them again, and they are recognised."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the writer's logs stand."""

    visible: dict[str, str]
    durable: dict[str, str]
    confirmed: int
    transactions: int
    """How many were committed so far."""


@dataclass(frozen=True, slots=True)
class LargeBegun:
    """A large transaction is under way from here to its commit."""

    transaction: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The writer ended as it should, everything flushed."""

    last: int
    """The last committed transaction."""


@dataclass(frozen=True, slots=True)
class Read:
    """How many rows a reader has of each table; all of them are as the shop sent them."""

    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class ReadAll:
    """A reader has everything up to the transaction that it was told to stop at."""

    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a process ended early."""

    code: str
    message: str


Message: TypeAlias = Recovered | Progress | LargeBegun | Stopped | Read | ReadAll | Failed

_CLASSES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (Recovered, Progress, LargeBegun, Stopped, Read, ReadAll, Failed)
}


def line_of(message: Message) -> bytes:
    """What is said, with the line's end."""
    return orjson.dumps({"is": type(message).__name__, **asdict(message)}) + b"\n"


def tell(message: Message) -> None:
    """Say it on standard output, in one write: a kill leaves a line that is whole, or one that has no end."""
    os.write(1, line_of(message))


def heard(line: bytes) -> Message | str:
    """What a line says."""
    try:
        facts = orjson.loads(line)
        message: Message = _CLASSES[facts.pop("is")](**facts)
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.decode("utf-8", "replace").strip()
    return message
