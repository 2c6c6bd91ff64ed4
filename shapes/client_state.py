"""What a reader of a shape asks next, and what an answer means to it. Pure: no request is made here.

Invariants:
    what is taken from an answer and where the next request begins move together
    of a stream of events that breaks, what was not handed on is not taken: it comes again, and nothing else does
    after a 409 the next request begins anew, under an address that no cache has an answer for
    what fails again and again, or is over again and again, is asked for more and more seldom
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import orjson

from shapes.client_events import Events
from shapes.client_values import PARSERS, Parser, parse_value
from shapes.http.errors import RequestRefused
from shapes.limits import (
    CLIENT_EVENTS_BYTES,
    CLIENT_PAUSE_SECONDS_MAX,
    CLIENT_PAUSE_SECONDS_MIN,
    CLIENT_RETRY_AFTER_SECONDS_MAX,
    CLIENT_SHORT_STREAM_SECONDS,
    CLIENT_SHORT_STREAMS_MAX,
)

FIRST: Final = "-1"
RETRIED: Final = frozenset({408, 425, 429})
"""Statuses that pass by themselves, beside all of 500 and above: proxies have some of their own."""

_FAULTS: Final = 500
_NO_MESSAGES: Final = "what came are no messages of a shape: it is not from a shape server, or a proxy altered it"
_NEEDED: Final = ("electric-handle", "electric-offset")


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
    """What one answer brought, or a part of a stream of events."""

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
    parsers: Mapping[str, Parser] | None = field(default_factory=lambda: PARSERS)
    """None: values stay the texts that come."""
    wants_events: bool = False
    """Live changes are asked for as a stream of events. It ends by itself where streams do not get through."""
    is_up_to_date: bool = False
    schema: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of the columns, as the last answer told."""
    failures: int = 0
    """In a row."""
    _cursor: str = ""
    _refetches: int = 0
    _refetches_in_a_row: int = 0
    """Since the reader was last up to date."""
    _expired: str | None = None
    _retry_after: float = 0.0
    _events: Events = field(default_factory=Events)
    _pending: list[Change] = field(default_factory=list)
    """Of a stream of events; not handed on yet."""
    _pending_bytes: int = 0
    _began_at: Position = Position()
    """The present stream of events."""
    _short_streams: int = 0
    """In a row, that led nowhere."""

    @property
    def is_live(self) -> bool:
        """Whether the next request waits for news. A live answer does not tell of columns: they come before."""
        return self.is_up_to_date and bool(self.schema)

    def next_params(self) -> dict[str, str]:
        """What to ask with."""
        asked = {**self.params, "offset": self.position.offset}
        if self.position.handle is not None:
            asked["handle"] = self.position.handle
        if self.is_live:
            asked["live"] = "true"
            if self.wants_events:
                asked["live_sse"] = "true"
            if self._cursor:
                asked["cursor"] = self._cursor
        if self._expired is not None:
            asked |= {"expired_handle": self._expired, "cache-buster": str(self._refetches)}
        return asked

    def pause_seconds(self, chance: float) -> float:
        """How long to wait before the next request; `chance`, from 0 to 1, keeps many readers apart."""
        attempts = self.failures + max(self._refetches_in_a_row - 1, 0)
        if not attempts:
            return 0.0
        pause: float = min(CLIENT_PAUSE_SECONDS_MIN * 2 ** min(attempts - 1, 20), CLIENT_PAUSE_SECONDS_MAX)
        return max(pause * (1 + chance) / 2, self._retry_after)

    def lost(self) -> None:
        """No answer came, or a part of one; what is not whole is not taken."""
        self._forget_pending()
        self._retry_after = 0.0
        self.failures += 1

    # Answers

    def take(self, status: int, headers: Mapping[str, str], body: bytes) -> Batch | None:
        """What an answer brought, nothing if it is to be asked for again; raises `RequestRefused` if that is no use."""
        self._retry_after = 0.0
        if status == 409:
            return self._begin_anew(headers.get("electric-handle"))
        if status in RETRIED or status >= _FAULTS:
            told = headers.get("retry-after", "")
            self._retry_after = min(float(told), CLIENT_RETRY_AFTER_SECONDS_MAX) if told.isdecimal() else 0.0
            self.failures += 1
            return None
        if status != 200:
            raise RequestRefused(f"the server answered {status}: {body[:500].decode(errors='replace')}", status=status)
        if missing := [name for name in _NEEDED if name not in headers]:
            lack = f"the answer has no {', '.join(missing)}: it is not from a shape server, or a proxy removed them"
            raise RequestRefused(lack, status=status)
        try:
            schema = orjson.loads(headers.get("electric-schema") or b"null")
            messages = orjson.loads(body)
        except orjson.JSONDecodeError:  # cut off on its way
            self.lost()
            return None
        self.schema = _checked_schema(schema) or self.schema
        if not isinstance(messages, list):
            raise RequestRefused(_NO_MESSAGES, status=status)
        changes = [self._change(message) for message in messages if "operation" in _headers_of(message)]
        self._cursor = headers.get("electric-cursor", self._cursor)
        position = Position(headers["electric-offset"], headers["electric-handle"])
        return self._moved(position, changes, is_up_to_date="electric-up-to-date" in headers)

    # Streams of events

    def begins_stream(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether an answer that begins is a stream of events, to be fed; else it is one to be taken."""
        if status != 200 or not headers.get("content-type", "").startswith("text/event-stream"):
            return False
        self._forget_pending()
        self._retry_after = 0.0
        self._began_at = self.position
        self._cursor = headers.get("electric-cursor", self._cursor)
        return True

    def feed(self, piece: bytes) -> Iterator[Batch]:
        """What is whole now. Raises `orjson.JSONDecodeError` for what no server sends: then the stream is lost."""
        for event in self._events.feed(piece):
            message = orjson.loads(event)
            headers = _headers_of(message)
            if "operation" in headers:
                self._pending.append(self._change(message))
                self._pending_bytes += len(event)
                if self._pending_bytes >= CLIENT_EVENTS_BYTES and {"lsn", "op_position"} <= headers.keys():
                    yield self._handed_on(f"{headers['lsn']}_{headers['op_position']}", is_up_to_date=False)
            elif headers.get("control") == "up-to-date" and "global_last_seen_lsn" in headers:
                yield self._handed_on(f"{headers['global_last_seen_lsn']}_0", is_up_to_date=True)
            elif headers.get("control") == "must-refetch":
                yield self._begin_anew(None)

    def stream_ended(self, lasted_seconds: float, *, brought_anything: bool, is_broken: bool) -> None:
        """The connection is over. Where streams never get through, answers are asked for instead of them."""
        self._forget_pending()
        is_silent = is_broken and not brought_anything  # a proxy keeps what it gets until the stream ends
        # A cache may have kept a stream that is over: it would come again at once, with nothing but comments.
        is_short = lasted_seconds < CLIENT_SHORT_STREAM_SECONDS and self.position == self._began_at
        if is_silent or is_short:
            self._short_streams += 1
        else:
            self._short_streams, self.failures = 0, 0
        if is_broken or is_short:
            self.failures += 1
        if self._short_streams >= CLIENT_SHORT_STREAMS_MAX:
            self.wants_events, self.failures = False, 0

    def _handed_on(self, offset: str, *, is_up_to_date: bool) -> Batch:
        changes, self._pending, self._pending_bytes = self._pending, [], 0
        return self._moved(Position(offset, self.position.handle), changes, is_up_to_date=is_up_to_date)

    def _forget_pending(self) -> None:
        self._events, self._pending, self._pending_bytes = Events(), [], 0

    # Both

    def _moved(self, position: Position, changes: list[Change], *, is_up_to_date: bool) -> Batch:
        self.position, self.is_up_to_date, self.failures = position, is_up_to_date, 0
        if is_up_to_date:
            self._refetches_in_a_row = 0
        return Batch(changes, is_up_to_date)

    def _begin_anew(self, successor: str | None) -> Batch:
        self._forget_pending()
        self._refetches += 1
        self._refetches_in_a_row += 1
        self._expired = self.position.handle
        self.position = Position(FIRST, successor)
        self.is_up_to_date, self._cursor, self.failures = False, "", 0
        return Batch(must_refetch=True)

    def _change(self, message: Mapping[str, Any]) -> Change:
        headers, key, old = message["headers"], message.get("key"), message.get("old_value")
        new = message.get("value") or {}
        if not (isinstance(key, str) and isinstance(new, dict) and isinstance(old, dict | None)):
            raise RequestRefused(_NO_MESSAGES)
        return Change(key, headers["operation"], self._values(new), None if old is None else self._values(old), headers)

    def _values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if not all(text is None or isinstance(text, str) for text in row.values()):
            raise RequestRefused(_NO_MESSAGES)
        if self.parsers is None:
            return dict(row)
        return {name: parse_value(text, self.schema.get(name, {}), self.parsers) for name, text in row.items()}


def _headers_of(message: object) -> Mapping[str, Any]:
    """A message's own; `RequestRefused` for what is none."""
    headers = message.get("headers") if isinstance(message, dict) else None
    if not isinstance(headers, dict):
        raise RequestRefused(_NO_MESSAGES)
    return headers


def _checked_schema(schema: object) -> dict[str, dict[str, Any]]:
    if schema is None:
        return {}
    if not (isinstance(schema, dict) and all(map(_is_column, schema.values()))):
        raise RequestRefused("the header electric-schema does not tell of columns: a proxy altered it, perhaps")
    return schema


def _is_column(described: object) -> bool:
    return isinstance(described, dict) and isinstance(described.get("type", ""), str)
