"""The log of events: one line for an event, one JSON object where machines read, whatever the event has in it."""

import logging

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.telemetry.logs import JsonLines, TextLines


def record(message: str, *arguments: object, fault: BaseException | None = None) -> logging.LogRecord:
    trace = None if fault is None else (type(fault), fault, None)
    return logging.LogRecord("shapes.x", logging.WARNING, "", 0, message, arguments, trace)


@given(st.text())
def test_an_event_is_one_line(text: str) -> None:
    line = TextLines().format(record("%s", text))
    assert len(line.splitlines()) == 1
    assert " warning shapes.x: " in line


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_event_is_one_json_object(text: str) -> None:
    line = JsonLines().format(record("%s", text))
    assert "\n" not in line
    event = orjson.loads(line)
    assert (event["message"], event["level"], event["logger"]) == (text, "warning", "shapes.x")
    assert event["time"].endswith("Z")


def test_an_exception_is_told_whole() -> None:
    assert "ValueError: broken" in TextLines().format(record("broken", fault=ValueError("broken")))
    assert (
        "ValueError: broken" in orjson.loads(JsonLines().format(record("broken", fault=ValueError("broken"))))["trace"]
    )
