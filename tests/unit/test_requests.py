"""From a request to a definition: spelling does not matter, and mistakes are told in the protocol's words."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.publication import quote
from shapes.definition import LogMode, Replica, Table
from shapes.errors import DefinitionError
from shapes.requests import Request, define
from tests.unit.table_strategies import column, defined, requests, table, tables

NUMBERED = "Parameters must be numbered sequentially, starting from 1"
ITEMS = table(column("id", 1, pk_index=0), column("v", 2), column("Odd, name", 3))
GENERATED = table(column("id", 1, pk_index=0), column("g", 2, generated="s"), column("virtual", 3, generated="v"))


def errors_of(of: Table, *, generated: bool = False, **fields: Any) -> dict[str, tuple[str, ...]]:
    with pytest.raises(DefinitionError) as caught:
        defined(of, generated=generated, **fields)
    return caught.value.fields


@given(st.data())
def test_a_definition_says_what_was_asked_for(data: st.DataObject) -> None:
    of = data.draw(tables())
    request = data.draw(requests(of))
    definition = define(request, of)
    names = [each.name for each in of.columns]
    asked = names if request.columns is None else [name for name in names if quote(name) in request.columns.split(",")]
    assert [each.name for each in definition.columns] == asked
    assert definition.selects_all == (request.columns is None)
    assert definition.key == of.key
    assert (definition.replica, definition.log) == (request.replica or "default", request.log or "full")
    numbers = {each.name: (each.number, each.type_oid, each.typmod) for each in of.columns}
    for each in (*definition.columns, *definition.where_columns):
        assert (each.number, each.type_oid, each.typmod) == numbers[each.name]
    assert bool(definition.where) == bool(definition.where_columns) == bool(request.where)


@given(st.data())
def test_spelling_does_not_matter(data: st.DataObject) -> None:
    of = data.draw(tables())
    request = data.draw(requests(of))
    names = (request.columns or "").split(",")
    spelled = replace(
        request,
        columns=request.columns and ",".join(data.draw(st.permutations([*names, names[0]]))),
        where=request.where and f" ( {request.where.replace(' = ', '=')} ) ".replace("$1", f"'{request.params['1']}'"),
        params={},
        replica=request.replica or "default",
        log=request.log or "full",
    )
    assert define(spelled, of).identity == define(request, of).identity


def test_all_columns_named_is_not_all_columns() -> None:
    """The one follows what is added to the table, the other does not."""
    assert defined(ITEMS).identity != defined(ITEMS, columns='id,v,"Odd, name"').identity


def test_empty_fields_are_as_if_not_given() -> None:
    assert defined(ITEMS, where=" ", replica="", log="") == defined(ITEMS)
    assert defined(ITEMS, replica="full", log="changes_only").replica is Replica.FULL
    assert defined(ITEMS, log="changes_only").log is LogMode.CHANGES_ONLY


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"columns": "v"}, {"columns": "The list of columns must include all primary key columns, missing: id"}),
        ({"columns": "id,x,Y"}, {"columns": "The following columns are not found on the table: x, y"}),
        ({"columns": ""}, {"columns": "Invalid zero-length delimited identifier"}),
        ({"columns": "id,"}, {"columns": "Invalid zero-length delimited identifier"}),
        ({"replica": "some"}, {"replica": "is invalid"}),
        ({"log": "changes"}, {"log": "is invalid"}),
        ({"where": "x = '1'"}, {"where": "At location 15: unknown reference x"}),
        ({"where": "v = $2", "params": {"2": "a"}}, {"params": NUMBERED}),
        ({"where": "v = $1", "params": {"x": "a"}}, {"params": NUMBERED}),
        (
            {"columns": "v", "where": "x = '1'", "log": "?"},
            {
                "columns": "The list of columns must include all primary key columns, missing: id",
                "where": "At location 15: unknown reference x",
                "log": "is invalid",
            },
        ),
    ],
)
def test_each_field_has_its_error(fields: dict[str, Any], errors: dict[str, str]) -> None:
    assert errors_of(ITEMS, **fields) == {name: (text,) for name, text in errors.items()}


def test_generated_columns_need_a_publication_that_sends_them() -> None:
    refused = "The following columns are generated and cannot be included in the shape: "
    advice = (
        ". You can exclude them from the shape by explicitly listing which columns to fetch in the "
        "'columns' query param"
    )
    assert errors_of(GENERATED) == {"columns": (f"{refused}g, virtual{advice}",)}
    assert errors_of(GENERATED, columns="id,g") == {"columns": (f"{refused}g",)}
    assert errors_of(GENERATED, generated=True) == {"columns": (f"{refused}virtual{advice}",)}
    assert defined(GENERATED, columns="id,g", generated=True).view.columns == ("id", "g")
    assert defined(GENERATED, columns="id").view.columns == ("id",)


def test_a_condition_cannot_read_what_is_not_sent() -> None:
    [text] = errors_of(GENERATED, columns="id", where="g = '1'")["where"]
    assert text.endswith(": g")
    assert defined(GENERATED, columns="id", where="g = '1'", generated=True).where_columns[0].name == "g"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "v"}, "neither an ordinary nor a partitioned table"),
        ({"persistence": "u"}, "unlogged or temporary"),
        ({"columns": ()}, "has no columns"),
    ],
)
def test_a_table_without_changes_is_refused(facts: dict[str, Any], words: str) -> None:
    [text] = errors_of(replace(ITEMS, **facts))["table"]
    assert text.startswith('"public"."t" ')
    assert words in text


def test_the_error_survives_a_pickle() -> None:
    with pytest.raises(DefinitionError) as caught:
        define(Request(columns="v"), ITEMS)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own bytes
    assert (str(again), again.fields) == (str(caught.value), caught.value.fields)
    assert "missing: id" in str(again)
