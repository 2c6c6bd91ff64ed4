"""Made-up tables, requests and clauses, for tests of definitions and of what follows from them."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from cdc.source.publication import quote
from shapes.definition import Definition, Table, TableColumn
from shapes.requests import Request, define

TYPES = {23: "int4", 25: "text", 1043: "varchar", 1700: "numeric"}
NAMES = ("a", "b", "c", "d", "E x", 'q"q')


def column(name: str, number: int, **facts: Any) -> TableColumn:
    return TableColumn(**{"name": name, "number": number, "type_oid": 25, "type_name": "text", **facts})


def table(*columns: TableColumn, **facts: Any) -> Table:
    named = {"oid": 7, "schema": "public", "name": "t", "kind": "r", "persistence": "p", "replica_identity": "f"}
    return Table(**{**named, "columns": columns, "root": 7, **facts})


def defined(of: Table, *, generated: bool = False, **fields: Any) -> Definition:
    return define(Request(**fields), of, publishes_generated=generated)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    key = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    numbers = sorted(draw(st.lists(st.integers(1, 20), min_size=len(names), max_size=len(names), unique=True)))
    types = [draw(st.sampled_from(sorted(TYPES))) for _ in names]
    return table(
        *(
            column(
                name,
                number,
                type_oid=oid,
                type_name=TYPES[oid],
                typmod=draw(st.sampled_from([-1, 8])),
                pk_index=key.index(name) if name in key else None,
            )
            for name, number, oid in zip(names, numbers, types, strict=True)
        ),
        replica_identity=draw(st.sampled_from("fd")),
    )


@st.composite
def requests(draw: st.DrawFn, of: Table) -> Request:
    """A sound request for a table."""
    names = [each.name for each in of.columns]
    more = draw(st.lists(st.sampled_from(names), unique=True))
    chosen = draw(st.permutations(list(dict.fromkeys([*of.key, *more]))))
    where = draw(st.none() | st.sampled_from(names))
    return Request(
        where=None if where is None else f"{quote(where)} = $1",
        params={} if where is None else {"1": draw(st.sampled_from(["1", "2"]))},
        columns=draw(st.sampled_from([None, ",".join(map(quote, chosen)) if chosen else None])),
        replica=draw(st.sampled_from([None, "default", "full"])),
        log=draw(st.sampled_from([None, "full", "changes_only"])),
    )


@st.composite
def definitions(draw: st.DrawFn) -> Definition:
    of = draw(tables())
    named = replace(of, oid=draw(st.integers(1, 3)), name=draw(st.sampled_from(["t", "orders"])))
    return define(draw(requests(named)), named)
