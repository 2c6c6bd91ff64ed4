"""The tables and the shapes that simulations are about; what a clause means is said here a second time, in Python."""

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from random import Random
from typing import Final

from cdc.simulate.tables import Column, Relation, Version
from shapes.definition import Definition, Table, TableColumn
from shapes.requests import Request, define

Named = Mapping[str, str | None]
Predicate = Callable[[Named], bool]

INT4, INT8, TEXT, VARCHAR = (23, "int4"), (20, "int8"), (25, "text"), (1043, "varchar")

CLAUSES: Final[dict[str, Predicate]] = {
    "grp = 1": lambda row: row["grp"] == "1",
    "grp IN (1, 2)": lambda row: row["grp"] in {"1", "2"},
    "grp > 1": lambda row: row["grp"] is not None and int(row["grp"]) > 1,
    "grp = 2 AND val LIKE 'a%'": lambda row: row["grp"] == "2" and (row["val"] or "").startswith("a"),
    "val IS NULL": lambda row: row["val"] is None,
}
"""Clauses for the table with these columns."""


READS: Final = {clause: {"grp", "val"} & {*clause.replace("(", " ").split()} for clause in CLAUSES}
"""The columns that each clause reads."""


def relations(*, has_partitions: bool = False) -> tuple[Relation, ...]:
    """Empty tables: one key column and two, with whole old rows and without; one that nobody follows; partitions."""
    key, second = Column("id", *INT4, 1, True), Column("pos", *INT4, 2, True)
    note = Column("note", *TEXT, 3)
    items = (key, Column("grp", *INT4, 2), Column("val", *TEXT, 3))
    parts: tuple[Relation, ...] = ()
    if has_partitions:
        low = Relation(16411, Version("low", items))
        high = Relation(16412, Version("high", (key, items[2], items[1])))  # the columns in another order
        root = Relation(16410, Version("parts", items), leaves=(low, high))
        for leaf in root.leaves:
            leaf.root = leaf.first_root = root
        parts = (root, low, high)
    return (
        *parts,
        Relation(16401, Version("items", items)),
        Relation(16402, Version("lines", (key, second, note))),
        Relation(16403, Version("loose", (key, note), "d")),
        Relation(16404, Version("others", (key, note)), is_followed=False),
    )


@lru_cache(1000)
def facts_of(oid: int, version: Version) -> Table:
    """The table as the server's catalog has it."""
    keys = [column.name for column in version.columns if column.is_key]
    columns = tuple(
        TableColumn(
            one.name,
            one.number,
            one.type_oid,
            one.type_name,
            not_null=one.is_key,
            pk_index=keys.index(one.name) if one.is_key else None,
        )
        for one in version.columns
    )
    return Table(oid, "public", version.name, "r", "p", version.identity, columns, oid)


def some_shape(random: Random, relation: Relation) -> Definition:
    """A shape of the table."""
    version = relation.version
    names = {column.name for column in version.columns}
    is_full = version.identity == "f"
    fitting = [clause for clause, read in READS.items() if read <= names] if {"grp", "val"} & names else []
    clause = random.choice((None, *fitting))
    keys = [column.name for column in version.columns if column.is_key]
    others = [column.name for column in version.columns if not column.is_key]
    columns = random.choice((None, None, ",".join(keys), ",".join(keys + others[:1])))
    replica = random.choice((None, "full") if is_full else (None, None, None, "full"))
    return _defined(clause, columns, replica, relation.oid, version)


@lru_cache(1000)
def _defined(clause: str | None, columns: str | None, replica: str | None, oid: int, version: Version) -> Definition:
    """Stories ask for the same again and again, and to parse a clause takes a while."""
    return define(Request(clause, {}, columns, replica), facts_of(oid, version))


def predicate_of(where: str | None) -> Predicate:
    """What a clause in its canonical form means; the types of columns, which may change, have no part in it."""
    return _all if where is None else _meanings()[_plain(where)]


@cache
def _meanings() -> dict[str, Predicate]:
    items = relations()[0]  # without partitions
    found = {clause: _defined(clause, None, None, items.oid, items.version) for clause in CLAUSES}
    return {_plain(definition.where or ""): CLAUSES[clause] for clause, definition in found.items()}


@lru_cache(1000)
def _plain(where: str) -> str:
    return re.sub(r'::[\w."]+|[() ]', "", where)


def _all(_row: Named) -> bool:
    return True
