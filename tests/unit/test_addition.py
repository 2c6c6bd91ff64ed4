"""The body that asks for a shape: every field at fault is named, whatever JSON has in it."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.http.addition import Addition, parse_addition
from shapes.errors import DefinitionError
from shapes.identifiers import parse_columns
from shapes.requests import Request

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("table", "name", "where", "params", "columns", "replica", "log", "wait")


def faults(**fields: Any) -> set[str]:
    with pytest.raises(DefinitionError) as caught:
        parse_addition(orjson.dumps(fields))
    return set(caught.value.fields)


def outcome(body: bytes) -> Addition | DefinitionError:
    try:
        return parse_addition(body)
    except DefinitionError as error:
        return error


def test_all_fields() -> None:
    body = {"table": "t", "name": "n", "where": "a = $1", "params": ["x"], "columns": "a,b", "replica": "full"}
    addition = parse_addition(orjson.dumps(body | {"log": "changes_only", "wait": True}))
    assert (addition.table, addition.name, addition.wait) == ("t", "n", True)
    assert addition.request == Request("a = $1", {"1": "x"}, "a,b", "full", "changes_only")


def test_every_field_at_fault_is_named() -> None:
    assert faults(tables="t", name=3, params=[1], columns={}, wait="yes") == {
        "tables",
        "table",
        "name",
        "params",
        "columns",
        "wait",
    }


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1))
def test_columns_as_a_list_are_names_as_they_are(names: list[str]) -> None:
    addition = parse_addition(orjson.dumps({"table": "t", "columns": names}))
    assert addition.request.columns is not None
    if all(len(name) <= 63 for name in names):
        assert list(parse_columns(addition.request.columns)) == names


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_whatever_comes_is_an_addition_or_names_fields(body: dict[str, Any]) -> None:
    found = outcome(orjson.dumps(body))
    if isinstance(found, DefinitionError):
        assert set(found.fields) <= {*body, "table"}
    else:
        assert found.table == body["table"]


@given(st.binary(max_size=40))
def test_bytes_that_are_no_json_are_a_fault_of_the_body(body: bytes) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_addition(body)
    assert caught.value.fields
