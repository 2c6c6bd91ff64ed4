"""What is told of a shape to whoever wants to follow it leads to that shape, whatever its names and clause are."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.http.address import parameters_of
from shapes.http.params import parse_request, read_query
from shapes.identifiers import parse_table_name
from shapes.requests import Request, define
from tests.unit.table_strategies import column, requests, table, tables

CLAUSES = [
    "v = 'it''s' AND NOT id IN (1, 2)",
    "v LIKE 'a%' OR v IS NULL",
    "id BETWEEN $1 AND $2",
    "v || 'x' <> E'\\n' AND id + 1 > 0",
    "(id = 1 OR v = 'ä€') AND (id = 2 OR v = '')",
]
ITEMS = table(column("id", 1, type_oid=23, pk_index=0), column("v", 2, type_oid=25))


def asked_again(request: Request, of: object) -> None:
    definition = define(request, of)  # type: ignore[arg-type]  # a table
    fields = {**parameters_of(definition), "offset": "-1"}
    query = parse_request(read_query(urlencode(fields).encode()))
    assert parse_table_name(query.table) == (definition.schema, definition.table)
    assert define(query.shape, of) == definition  # type: ignore[arg-type]  # as above


@given(st.data())
def test_the_parameters_of_a_shape_mean_that_shape(data: st.DataObject) -> None:
    of = data.draw(tables())
    asked_again(data.draw(requests(of)), of)


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_that_was_made_canonical_means_the_same(clause: str) -> None:
    asked_again(Request(where=clause, params={"1": "3", "2": "4"} if "$2" in clause else {}), ITEMS)
