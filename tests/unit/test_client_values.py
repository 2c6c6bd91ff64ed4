"""Texts of values into Python's types."""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.client_values import PARSERS, parse_array, parse_value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int8", "-9223372036854775808", -(2**63)),
        ("bool", "t", True),
        ("bool", "false", False),
        ("numeric", "1.10", Decimal("1.10")),
        ("float8", "NaN", None),
        ("jsonb", '{"a": [1]}', {"a": [1]}),
        ("uuid", "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        ("bytea", "\\x00ff", b"\x00\xff"),
        ("date", "2025-02-28", dt.date(2025, 2, 28)),
        ("date", "infinity", "infinity"),
        ("timestamp", "0044-03-15 00:00:00 BC", "0044-03-15 00:00:00 BC"),
        ("timestamptz", "2025-02-28 10:00:00.5+00", dt.datetime(2025, 2, 28, 10, 0, 0, 500_000, dt.UTC)),
        ("text", "t", "t"),
        ("money", "$1", "$1"),
    ],
)
def test_values(kind: str, text: str, value: Any) -> None:
    found = parse_value(text, {"type": kind}, PARSERS)
    if value is None:
        assert found != found  # noqa: PLR0124 - only NaN is not itself
    else:
        assert found == value
        assert type(found) is type(value)
    assert parse_value(None, {"type": kind}, PARSERS) is None


ITEMS = st.recursive(st.none() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3), max_leaves=8)


def written(items: Any) -> str:
    if items is None:
        return "NULL"
    if isinstance(items, list):
        return "{" + ",".join(map(written, items)) + "}"
    return '"' + str(items).replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.lists(ITEMS, max_size=4))
def test_arrays_are_read_as_they_are_written(items: list[Any]) -> None:
    assert parse_array(written(items), str) == items


def test_arrays_of_numbers_and_bounds() -> None:
    assert parse_value("{1,NULL,3}", {"type": "int4", "dims": 1}, PARSERS) == [1, None, 3]
    assert parse_value("[0:1]={{1,2},{3,4}}", {"type": "int4", "dims": 2}, PARSERS) == [[1, 2], [3, 4]]


@given(st.text(max_size=12) | st.text('{},"\\ab', max_size=12))
def test_what_is_no_array_stays_text(text: str) -> None:
    found = parse_value(text, {"type": "text", "dims": 1}, PARSERS)
    assert isinstance(found, list | str)
