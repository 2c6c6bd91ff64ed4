"""Query strings into requests: every rule of the protocol's table, and that nothing is ever worse than a 400."""

from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.http.params import ShapeQuery, Subset, parse_request, read_body, read_query
from shapes.http.problems import Problem
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset

FIRST = {"table": "items", "offset": "-1"}
UNORDERED = "order_by is required when limit or offset is used"
LATER = {"table": "items", "offset": "0_0", "handle": "h-1"}


def parsed(**fields: str) -> ShapeQuery:
    return parse_request(read_query(urlencode(fields).encode()))


def errors_of(fields: dict[str, str]) -> Any:
    with pytest.raises(Problem) as refused:
        parse_request(read_query(urlencode(fields).encode()))
    assert refused.value.status == 400
    assert isinstance(refused.value.body, dict)
    return refused.value.body["errors"]


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({}, {"table": ["can't be blank"], "offset": ["can't be blank"]}),
        ({"table": "", "offset": ""}, {"table": ["can't be blank"], "offset": ["can't be blank"]}),
        ({"table": "items", "offset": "1"}, {"offset": ["has invalid format"]}),
        ({"table": "items", "offset": "-2"}, {"offset": ["has invalid format"]}),
        ({"table": "items", "offset": "1_2_3"}, {"offset": ["has invalid format"]}),
        ({"table": "items", "offset": "0_0"}, {"handle": ["can't be blank when offset != -1"]}),
        ({**FIRST, "live": "true"}, {"live": ["can't be true when offset == -1"]}),
        ({**FIRST, "offset": "now", "live": ""}, {"live": ["can't be true when offset is 'now'"]}),
        ({**LATER, "live_sse": "true"}, {"live_sse": ["can't be true unless live is also true"]}),
        (
            {**LATER, "experimental_live_sse": "", "live": "false"},
            {"experimental_live_sse": ["can't be true unless live is also true"]},
        ),
        ({**FIRST, "params": "[1]"}, {"params": ["is invalid"]}),
        (
            {**FIRST, "subset__limit": "2"},
            {"subset": {"order_by": ["order_by is required when limit or offset is used"]}},
        ),
        ({**FIRST, "subset__limit": "x", "subset__order_by": "a"}, {"subset": {"limit": ["is invalid"]}}),
        (
            {**FIRST, "subset__offset": "-1", "subset__order_by": "a"},
            {"subset": {"offset": ["must be greater than or equal to 0"]}},
        ),
        ({**FIRST, "subset__params": "{"}, {"subset": {"params": ["is invalid"]}}),
    ],
)
def test_what_is_wrong_is_told_of_each_field(fields: dict[str, str], errors: dict[str, Any]) -> None:
    assert errors_of(fields) == errors


@pytest.mark.parametrize(
    ("text", "offset"),
    [("-1", BEFORE_ALL), ("now", None), ("0_inf", SNAPSHOT_END), ("0_3", LogOffset(0, 3)), ("17_4", LogOffset(17, 4))],
)
def test_offsets(text: str, offset: LogOffset | None) -> None:
    query = parsed(table="items", offset=text, handle="h")
    assert query.offset == offset
    assert query.handle == (None if text in {"-1", "now"} else "h"), "a first request's handle breaks caches, no more"


@pytest.mark.parametrize(("text", "is_live"), [("", True), ("true", True), ("0", True), ("false", False)])
def test_live_is_all_but_false(text: str, is_live: bool) -> None:
    assert parsed(**LATER, live=text).live is is_live


def test_clauses_parameters_and_what_is_not_ours() -> None:
    query = parsed(
        **FIRST,
        **{"where": "a = $1 AND b = $2", "params[1]": "x", "params[2]": "", "columns": "id,a", "cache-buster": "9"},
    )
    assert query.shape.where == "a = $1 AND b = $2"
    assert query.shape.params == {"1": "x", "2": ""}
    assert query.shape.columns == "id,a"
    assert parsed(**FIRST, params='{"1":"x","2":7}').shape.params == {"1": "x", "2": "7"}


def test_a_subset_in_a_body_is_that_of_a_query_string() -> None:
    fields = {"where": "a = $1", "params": {"1": "x"}, "limit": 3, "offset": 0, "order_by": "a"}
    expected = Subset("a = $1", {"1": "x"}, 3, 0, "a")
    for content in (fields, {"subset": fields}):
        assert parse_request(FIRST, read_body(content)).subset == expected
    query = {
        f"subset__{name}": value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in fields.items()
    }
    assert parsed(**FIRST, **query).subset == expected


@given(
    st.dictionaries(
        st.sampled_from(
            ["table", "offset", "handle", "live", "where", "params", "params[1]", "cursor", "subset__limit"]
        )
        | st.text(max_size=5),
        st.text(max_size=8) | st.sampled_from(["-1", "0_0", "now", "true", "{}", '{"1":null}', "9" * 400]),
    )
)
def test_whatever_comes_is_read_or_refused(fields: dict[str, str]) -> None:
    try:
        query = parsed(**fields)
    except (Problem, UnicodeEncodeError) as refused:
        assert not isinstance(refused, Problem) or refused.status == 400  # noqa: PT017 - others are not sent at all
    else:
        assert query.table.strip()
        assert query.is_first or query.handle
        assert not (query.live and query.is_first)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_query_are_refused(query: bytes) -> None:
    try:
        read_query(query)
    except Problem as refused:
        assert refused.status == 400  # noqa: PT017 - it may as well be a query
