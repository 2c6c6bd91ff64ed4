"""What a request asks for: its query string, field by field, into values. Pure.

All fields are looked at, so that whoever asks hears of all mistakes at once; the texts are those that clients know.
What is not known is ignored: clients send parameters for caches and for proxies.

Invariants:
    a request that is read is consistent: one that goes on from somewhere has a handle, and only such a one is live
    a blank field is a missing one
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson

from shapes.http.limits import PARAMETERS_MAX
from shapes.http.problems import Problem, invalid, invalid_subset
from shapes.requests import Request
from storage.errors import InvalidOffset
from storage.offset import BEFORE_ALL, LogOffset

BLANK: Final = "can't be blank"
_FORMAT: Final = "has invalid format"
_INVALID: Final = "is invalid"
_PARAM: Final = re.compile(r"params\[([^\[\]]*)\]")
_SUBSET: Final = ("where", "params", "limit", "offset", "order_by")
_SUBSET_PREFIX: Final = "subset__"
_DIGITS: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Subset:
    """Some rows of a shape, asked for by themselves."""

    where: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    offset: int | None = None
    order_by: str | None = None


@dataclass(frozen=True, slots=True)
class ShapeQuery:
    """A request for rows of a shape."""

    table: str
    shape: Request
    offset: LogOffset | None
    """None: from now on."""
    handle: str | None = None
    """Only where it counts: not for a first request."""
    live: bool = False
    sse: bool = False
    cursor: int | None = None
    queryable: str | None = None
    subset: Subset | None = None

    @property
    def is_first(self) -> bool:
        """Whether it goes on from nowhere."""
        return self.offset is None or self.offset == BEFORE_ALL


def read_query(query: bytes) -> dict[str, str]:
    """A query string's fields; of those that come twice, the last. Blank ones are left out."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except UnicodeDecodeError:
        raise invalid({"query": ["is not text in UTF-8"]}) from None
    except ValueError:
        raise invalid({"query": [f"has more than {PARAMETERS_MAX} parameters"]}) from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise invalid({"query": ["has a character that no text in Postgres has: NUL"]})
    return dict(pairs)


def parse_request(fields: Mapping[str, str], body: Mapping[str, Any] | None = None) -> ShapeQuery:
    """What is asked for; raises a `Problem` that names every field at fault. `body`: a POST's."""
    errors: dict[str, list[str]] = {}
    table = _text(fields, "table")
    if table is None:
        errors["table"] = [BLANK]
    offset = _offset(fields, errors)
    subset = _subset(fields, body)
    is_first = offset is None or offset == BEFORE_ALL
    handle = None if is_first else _text(fields, "handle")
    live = _is_on(fields, "live")
    sse = _is_on(fields, "live_sse") or _is_on(fields, "experimental_live_sse")
    if "offset" not in errors:
        if live and is_first:
            errors["live"] = [f"can't be true when offset {'is ' + repr('now') if offset is None else '== -1'}"]
        if handle is None and not is_first:
            errors["handle"] = [f"{BLANK} when offset != -1"]
    if sse and not live:
        errors["live_sse" if "live_sse" in fields else "experimental_live_sse"] = [
            "can't be true unless live is also true"
        ]
    params = _params(fields, errors)
    if errors:
        raise invalid(errors)
    shape = Request(
        where=_text(fields, "where"),
        params=params,
        columns=_text(fields, "columns"),
        replica=_text(fields, "replica"),
        log=_text(fields, "log"),
    )
    return ShapeQuery(
        table=table or "",
        shape=shape,
        offset=offset,
        handle=handle,
        live=live,
        sse=sse,
        cursor=_cursor(fields),
        queryable=_text(fields, "queryable_columns"),
        subset=subset,
    )


def _text(fields: Mapping[str, str], name: str) -> str | None:
    text = fields.get(name)
    return text if text is not None and text.strip() else None


def _is_on(fields: Mapping[str, str], name: str) -> bool:
    return name in fields and fields[name] != "false"


def _offset(fields: Mapping[str, str], errors: dict[str, list[str]]) -> LogOffset | None:
    text = _text(fields, "offset")
    if text == "now":
        return None
    if text is None:
        errors["offset"] = [BLANK]
        return BEFORE_ALL
    try:
        return LogOffset.parse(text)
    except InvalidOffset:
        errors["offset"] = [_FORMAT]
        return BEFORE_ALL


def _cursor(fields: Mapping[str, str]) -> int | None:
    """A client that made one up is a client without one."""
    text = fields.get("cursor", "")
    return int(text) if _DIGITS.fullmatch(text) else None


def _params(fields: Mapping[str, str], errors: dict[str, list[str]]) -> dict[str, str]:
    params = {match[1]: value for name, value in fields.items() if (match := _PARAM.fullmatch(name))}
    if (text := _text(fields, "params")) is not None:
        try:
            params = _texts(orjson.loads(text)) | params
        except ValueError:
            errors["params"] = [_INVALID]
    return params


def _texts(content: object) -> dict[str, str]:
    """An object whose values are text, or numbers and booleans as JSON writes them."""
    if not isinstance(content, dict) or any(
        isinstance(value, dict | list) or value is None for value in content.values()
    ):
        raise ValueError("not an object of text")
    return {
        str(key): value if isinstance(value, str) else orjson.dumps(value).decode() for key, value in content.items()
    }


def read_body(content: object) -> dict[str, Any]:
    """The fields of a subset in the body of a POST, which may be wrapped."""
    if isinstance(content, dict) and isinstance(content.get("subset"), dict):
        content = content["subset"]
    if not isinstance(content, dict):
        raise TypeError("not an object")
    return {name: value for name, value in content.items() if name in _SUBSET and value is not None}


def _subset(fields: Mapping[str, str], body: Mapping[str, Any] | None) -> Subset | None:
    given: dict[str, Any] = {
        name: fields[_SUBSET_PREFIX + name] for name in _SUBSET if _text(fields, _SUBSET_PREFIX + name) is not None
    }
    given |= body or {}
    if not given:
        return None
    errors: dict[str, list[str]] = {}
    limit, offset = _number(given, "limit", 1, errors), _number(given, "offset", 0, errors)
    where, order_by = _optional_text(given, "where", errors), _optional_text(given, "order_by", errors)
    params = _subset_params(given, errors)
    if order_by is None and "order_by" not in errors and (limit is not None or offset is not None):
        errors["order_by"] = ["order_by is required when limit or offset is used"]
    if errors:
        raise _subset_problem(errors)
    return Subset(where, params, limit, offset, order_by)


def _subset_problem(errors: Mapping[str, list[str]]) -> Problem:
    return invalid_subset(errors)


def _number(given: Mapping[str, Any], name: str, least: int, errors: dict[str, list[str]]) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value >= 2**63:
        errors[name] = [_INVALID]
        return None
    if value < least:
        errors[name] = ["must be greater than 0" if least else "must be greater than or equal to 0"]
        return None
    return value


def _optional_text(given: Mapping[str, Any], name: str, errors: dict[str, list[str]]) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        errors[name] = [_INVALID]
        return None
    return value if value.strip() else None


def _subset_params(given: Mapping[str, Any], errors: dict[str, list[str]]) -> dict[str, str]:
    value = given.get("params")
    if value is None:
        return {}
    try:
        return _texts(orjson.loads(value) if isinstance(value, str) else value)
    except ValueError:
        errors["params"] = [_INVALID]
        return {}
