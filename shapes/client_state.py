"""What a reader of a shape asks next, and what an answer means to it. Pure: no request is made here.

Invariants:
    what is taken from an answer and where the next request begins move together
    after a 409 the next request begins anew, under an address that no cache has an answer for
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import orjson

from shapes.client_values import PARSERS, Parser, parse_value
from shapes.http.errors import RequestRefused

FIRST: Final = "-1"
RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that pass by themselves."""

_NEEDED: Final = ("electric-handle", "electric-offset")
PAUSE_SECONDS_MIN: Final = 0.2
PAUSE_SECONDS_MAX: Final = 30.0
"""Between two attempts: the first, and the longest after doubling it each time."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader is; enough to go on from in another process."""

    offset: str = FIRST
    handle: str | None = None

    def to_json(self) -> dict[str, Any]:
        """To be kept."""
        return {"offset": self.offset, "handle": self.handle}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What `to_json` gave."""
        return cls(str(content["offset"]), content["handle"])


@dataclass(frozen=True, slots=True)
class Change:
    """A row that came, changed or went."""

    key: str
    operation: str
    """`insert`, `update` or `delete`."""
    value: dict[str, Any]
    """An update's: the key, and what changed; with `replica=full`, the whole row."""
    old_value: dict[str, Any] | None
    """What was there before, with `replica=full`."""
    headers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one answer brought."""

    changes: Sequence[Change] = ()
    is_up_to_date: bool = False
    """Nothing committed is missing, and no transaction is torn."""
    must_refetch: bool = False
    """All that came before is void: the shape begins anew."""


@dataclass(slots=True)
class Follower:
    """One reader's way through a shape."""

    params: Mapping[str, str]
    position: Position = Position()
    parsers: Mapping[str, Parser] = field(default_factory=lambda: PARSERS)
    is_up_to_date: bool = False
    schema: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of the columns, as the last answer told."""
    failures: int = 0
    """In a row."""
    _cursor: str = ""
    _refetches: int = 0
    _expired: str | None = None

    def next_params(self) -> dict[str, str]:
        """What to ask with."""
        asked = {**self.params, "offset": self.position.offset}
        if self.position.handle is not None:
            asked["handle"] = self.position.handle
        if self.is_up_to_date and self.schema:  # a live answer does not tell of columns
            asked["live"] = "true"
            if self._cursor:
                asked["cursor"] = self._cursor
        if self._expired is not None:
            asked |= {"expired_handle": self._expired, "cache-buster": str(self._refetches)}
        return asked

    def take(self, status: int, headers: Mapping[str, str], body: bytes) -> Batch:
        """What an answer brought; raises `RequestRefused` for one that another attempt would get as well."""
        if status == 409:
            self._refetches += 1
            self._expired = self.position.handle
            self.position = Position(FIRST, headers.get("electric-handle"))
            self.is_up_to_date, self._cursor, self.failures = False, "", 0
            return Batch(must_refetch=True)
        if status in RETRIED:
            self.failures += 1
            return Batch()
        if status != 200:
            raise RequestRefused(f"the server answered {status}: {body[:500].decode(errors='replace')}", status=status)
        if missing := [name for name in _NEEDED if name not in headers]:
            lack = f"the answer has no {', '.join(missing)}: it is not from a shape server, or a proxy removed them"
            raise RequestRefused(lack, status=status)
        self.failures = 0
        if text := headers.get("electric-schema"):
            self.schema = orjson.loads(text)
        messages = orjson.loads(body)
        changes = [self._change(message) for message in messages if "operation" in message["headers"]]
        self.position = Position(headers["electric-offset"], headers["electric-handle"])
        self._cursor = headers.get("electric-cursor", self._cursor)
        self.is_up_to_date = "electric-up-to-date" in headers
        return Batch(changes, self.is_up_to_date)

    def pause_seconds(self, headers: Mapping[str, str]) -> float:
        """How long to wait before the next attempt, after one that failed."""
        told = headers.get("retry-after", "")
        backoff: float = min(PAUSE_SECONDS_MIN * 2 ** min(self.failures, 20), PAUSE_SECONDS_MAX)
        return max(float(int(told)), backoff) if told.isdigit() else backoff

    def lost(self) -> None:
        """No answer came."""
        self.failures += 1

    def _change(self, message: Mapping[str, Any]) -> Change:
        headers, old = message["headers"], message.get("old_value")
        return Change(
            message["key"],
            headers["operation"],
            self._values(message.get("value") or {}),
            None if old is None else self._values(old),
            headers,
        )

    def _values(self, row: Mapping[str, str | None]) -> dict[str, Any]:
        return {name: parse_value(text, self.schema.get(name, {}), self.parsers) for name, text in row.items()}
