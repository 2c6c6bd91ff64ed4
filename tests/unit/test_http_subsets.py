"""Subsets as SQL: which clauses may be tried beside the shape's condition, and which have to wait for it."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.definition import Table, TableColumn
from shapes.http.definitions import Defined
from shapes.http.limits import SUBSET_ROWS_MAX
from shapes.http.params import Subset
from shapes.http.problems import Problem
from shapes.http.responses import schema_header
from shapes.http.row_format import RowFormat
from shapes.http.subsets import subset_sql
from shapes.requests import Request, define

TYPES: Final = {
    "id": (23, "int4"),
    "n": (701, "float8"),
    "v": (25, "text"),
    "kind": (1043, "varchar"),
    "flag": (16, "bool"),
    "day": (1082, "date"),
    "tags": (1009, "text[]"),
}
TABLE: Final = Table(
    oid=1,
    schema="public",
    name="items",
    kind="r",
    persistence="p",
    replica_identity="f",
    columns=tuple(
        TableColumn(name, number, oid, type_name, not_null=name == "id", pk_index=0 if name == "id" else None)
        for number, (name, (oid, type_name)) in enumerate(TYPES.items(), 1)
    ),
)


def defined(where: str | None) -> Defined:
    definition = define(Request(where=where), TABLE)
    return Defined(definition, TABLE, RowFormat.of(definition), schema_header(TABLE.columns), TABLE.columns, 0.0)


SHAPE: Final = defined("id < 100")
PLAIN: Final = [
    "id = 3",
    "3 <> id",
    "id < 3 OR day >= '2025-01-01'",
    "NOT (id <= 3 AND n > 1.5)",
    "v IS NULL",
    "v IS NOT NULL",
    "flag",
    "flag IS NOT TRUE",
    "id IN (1, 2)",
    "id NOT IN (1, 2)",
    "id BETWEEN 1 AND 2",
    "kind = 'a'",
    "v = id::text",
    "day < '2025-01-01'",
    "id = ANY ('{1,2}')",
    "true",
]
WAITING: Final = [
    "v::int = 3",
    "1 / id = 1",
    "id + 1 = 3",
    "id = 1 OR (v = 'x' AND 1 / id = 1)",
    "NOT (v::int IS NULL)",
    "v LIKE 'x%'",
    "coalesce(id, 0) = 3",
    "v || 'x' = 'yx'",
    "kind::varchar(1) = 'a'",
    "v::date = '2025-01-01'",
    "n::int = 3",
    "-id = 3",
    "(v::int) IN (1, 2)",
]


def sql_of(where: str, shape: Defined = SHAPE) -> str:
    return subset_sql(Subset(where=where), shape)


@pytest.mark.parametrize("where", PLAIN)
def test_what_fails_for_no_row_is_tried_beside_the_shapes_condition(where: str) -> None:
    assert "CASE" not in sql_of(where)


@pytest.mark.parametrize("where", WAITING)
def test_what_may_fail_waits_for_the_shapes_condition(where: str) -> None:
    condition = SHAPE.definition.where
    assert f" AND (CASE WHEN {condition} THEN " in sql_of(where)


@pytest.mark.parametrize("where", WAITING)
def test_where_no_row_is_hidden_nothing_waits(where: str) -> None:
    assert "CASE" not in sql_of(where, defined(None))


@given(
    st.recursive(
        st.sampled_from([*((one, True) for one in PLAIN if one != "true"), *((one, False) for one in WAITING)]),
        lambda some: st.tuples(some, st.sampled_from(["AND", "OR"]), some).map(
            lambda three: (f"({three[0][0]}) {three[1]} NOT ({three[2][0]})", three[0][1] and three[2][1])
        ),
        max_leaves=6,
    )
)
def test_one_part_that_may_fail_makes_the_whole_wait(clause: tuple[str, bool]) -> None:
    """A constant is left out: `.. OR true` leaves nothing that could fail."""
    where, is_plain = clause
    assert ("CASE" in sql_of(where)) is not is_plain


def test_a_subset_has_the_columns_that_it_may_read_and_no_others() -> None:
    proxied = replace(SHAPE, queryable=TABLE.columns[:2])
    assert "CASE" not in subset_sql(Subset(where="n > 1", order_by="n DESC", limit=2), proxied)
    for hidden in (Subset(where="v = 'x'"), Subset(order_by="v", limit=1), Subset(where="v::int = 1")):
        with pytest.raises(Problem) as refused:
            subset_sql(hidden, proxied)
        assert refused.value.status == 400


@pytest.mark.parametrize(("limit", "rows"), [(None, SUBSET_ROWS_MAX + 1), (7, 7), (10**9, SUBSET_ROWS_MAX + 1)])
def test_there_is_a_bound_on_rows_whatever_is_asked_for(limit: int | None, rows: int) -> None:
    assert subset_sql(Subset(order_by="id", limit=limit), SHAPE).endswith(f' ORDER BY "id" LIMIT {rows}')
