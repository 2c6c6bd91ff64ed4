"""Headers of answers: who may keep one for how long, and how a client goes on. Pure: chance and time are passed in.

Invariants:
    what is kept by caches is found again under an address that no other answer has
    an answer without news, of a live request, is never confirmed by its tag: the next one may have news
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

import orjson

from shapes.column_schema import column_schemas
from shapes.definition import TableColumn
from shapes.http.problems import Problem
from shapes.http.settings import HttpSettings
from storage.offset import LogOffset

Headers = list[tuple[str, str]]

JSON: Final = ("content-type", "application/json; charset=utf-8")

CURSOR_EPOCH_SECONDS: Final = 1_728_432_000
"""2024-10-09: cursors count from here, so that they stay short."""

CURSOR_JUMP_SECONDS: Final = 3_600
"""A client that shows the present cursor gets one up to so much higher, to leave a cache's stale entry."""

EXPOSED: Final = (
    "electric-cursor,electric-handle,electric-has-data,electric-offset,electric-schema,electric-up-to-date,"
    "electric-internal-known-error,retry-after"
)
METHODS: Final = "GET, POST, HEAD, DELETE, OPTIONS"
ASKED: Final = frozenset({"if-none-match", "traceparent", "authorization", "content-type"})
"""Request headers that pages of other origins may send: what clients do by themselves, a token, a subset's JSON."""

OPTIONS_SECONDS: Final = 86_400
"""How long a browser remembers what it may ask: a day is the most that any browser does."""

REFETCH_SECONDS: Final = 60
FIRST_HEADERS: Final = "public, max-age=604800, s-maxage=3600, stale-while-revalidate=2629746"
"""A first chunk never changes: a week in browsers; an hour in shared caches, which meet more handles."""

LIVE_HEADERS: Final = "public, max-age=5, stale-while-revalidate=5"
"""Long enough for a shared cache to answer all who wait with one answer."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an answer's headers are made of."""

    handle: str
    requested: LogOffset | None
    """None: from now on."""
    next: LogOffset
    live: bool = False
    sse: bool = False
    has_data: bool = True
    is_up_to_date: bool = False
    is_first: bool = False
    """The beginning of a base."""
    cursor: int | None = None


def shape_headers(facts: Facts, schema: str, settings: HttpSettings, cursor: int, instant: int) -> Headers:
    """Those of 200 and 304. `instant`: a number that no other answer has."""
    headers = [("electric-handle", facts.handle), ("electric-offset", str(facts.next))]
    if facts.live:
        headers.append(("electric-cursor", str(cursor)))
    else:
        headers.append(("electric-schema", schema))
    if facts.is_up_to_date:
        headers.append(("electric-up-to-date", ""))
    headers += [
        ("electric-has-data", "true" if facts.has_data else "false"),
        ("etag", f'"{etag_of(facts, instant)}"'),
        ("cache-control", cache_control(facts, settings)),
    ]
    return headers


def etag_of(facts: Facts, instant: int) -> str:
    """What an answer is known by."""
    requested = "now" if facts.requested is None else str(facts.requested)
    tag = f"{facts.handle}:{requested}:{facts.next}"
    return f"{tag}:{instant}" if facts.live and not facts.has_data else tag


def matches(if_none_match: Iterable[str], etag: str) -> bool:
    """Whether a client has this answer already. A proxy that compresses makes a tag a weak one: `W/` before it."""
    return any(etag == one.strip().removeprefix("W/").strip('"') for line in if_none_match for one in line.split(","))


def cache_control(facts: Facts, settings: HttpSettings) -> str:
    """Who may keep it, for how long."""
    if facts.is_first:
        return FIRST_HEADERS
    if facts.sse:
        return f"public, max-age={max(int(settings.sse_seconds) - 1, 0)}"
    if facts.live:
        return LIVE_HEADERS
    return (
        f"public, max-age={settings.cache_max_age_seconds}, stale-while-revalidate={settings.cache_stale_age_seconds}"
    )


def problem_headers(status: int, *, has_handle: bool) -> Headers:
    """How long an answer without rows may be kept."""
    if status == 409:
        return [("cache-control", f"public, max-age={REFETCH_SECONDS if has_handle else 1}, must-revalidate")]
    if status >= 400:
        return [("cache-control", "no-store"), ("surrogate-control", "no-store")]
    return []


def answer_of(problem: Problem) -> tuple[Headers, bytes]:
    """Headers and body of an answer without rows."""
    headers = [JSON, *problem.headers.items()]
    headers += problem_headers(problem.status, has_handle="electric-handle" in problem.headers)
    return headers, b"" if problem.body is None else orjson.dumps(problem.body)


def for_request(headers: Headers, method: str, *, has_token: bool = False) -> Headers:
    """What is asked for by another method than GET is kept by nobody; HEAD counts as GET.

    What a token opens is kept by its reader alone: no cache looks whether it has expired.
    """
    if method not in {"GET", "HEAD"}:
        return [(name, "no-cache" if name == "cache-control" else value) for name, value in headers]
    if has_token:
        return [(name, _private(value) if name == "cache-control" else value) for name, value in headers]
    return headers


def _private(cache_control: str) -> str:
    kept = [one for one in cache_control.split(", ") if one != "public" and not one.startswith("s-maxage=")]
    return ", ".join(["private", *kept])


def next_cursor(seen: int | None, now: float, long_poll_seconds: float, chance: Callable[[int, int], int]) -> int:
    """What a live client asks with the next time: the same for all within one poll, and never the one it has."""
    step = int(long_poll_seconds)
    if step < 1:
        return 0
    cursor = ceil((now - CURSOR_EPOCH_SECONDS) / step) * step
    return cursor if seen is None or cursor > seen else seen + chance(1, CURSOR_JUMP_SECONDS)


def schema_header(columns: Iterable[TableColumn]) -> str:
    """The columns, in ASCII: other letters do not pass through headers."""
    return json.dumps(column_schemas(columns), ensure_ascii=True, separators=(",", ":"))


def cors_headers(origin: str | None, *, of_shape: bool) -> Headers:
    """For pages of other origins; and what beside the address makes an answer another one."""
    varies = [*(["authorization"] if of_shape else []), *(["origin"] if origin else [])]
    return [
        ("access-control-allow-origin", origin or "*"),
        ("access-control-expose-headers", EXPOSED),
        ("access-control-allow-methods", METHODS if of_shape else "GET, HEAD"),
        *([("vary", ", ".join(varies))] if varies else []),
    ]


def options_headers(asked: str | None) -> Headers:
    """What a browser may send."""
    allowed = [name for name in ((one.strip().lower()) for one in (asked or "").split(",")) if name in ASKED]
    headers = [("access-control-max-age", str(OPTIONS_SECONDS)), ("connection", "keep-alive")]
    return [*headers, ("access-control-allow-headers", ",".join(allowed))] if allowed else headers
