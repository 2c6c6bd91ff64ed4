"""The program's own log of events: a line each, for people or for machines. The formats are pure."""

import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import orjson


class LogFormat(StrEnum):
    """How events are written."""

    TEXT = "text"
    JSON = "json"


_QUIET: Final = ("httpx", "httpcore")
"""Loggers of libraries, which tell what ours tell too."""


class TextLines(logging.Formatter):
    """For people: when, how bad, who, what; an exception's trace follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname.lower():<7} {record.name}: {' '.join(record.getMessage().split())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """For machines: one object a line, whatever the event has in it."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(event, default=str).decode()


def begin_logging(kind: LogFormat) -> None:
    """Send all events to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if kind is LogFormat.JSON else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
