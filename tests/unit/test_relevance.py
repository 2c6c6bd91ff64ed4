"""What an alteration means to a shape: its end if it is concerned, by the stream and by the catalog alike.

Strategy: alterations of made-up tables, each with its own plain rule of whom it concerns, written beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc.source.relations import Column, Relation
from shapes.definition import Definition, Replica, Table, TableColumn
from shapes.relevance import IRRELEVANT, Ends, Reason, relevance, what_matters
from shapes.requests import define
from tests.unit.table_strategies import column, defined, requests, table, tables

ITEMS = table(column("id", 1, pk_index=0), column("v", 2), column("w", 3), replica_identity="d")


def as_sent(of: Table) -> Relation:
    """How the stream describes a table."""
    flagged = {"f": {each.name for each in of.columns}, "d": set(of.key)}.get(of.replica_identity, set())
    columns = [Column(each.name, each.type_oid, each.typmod, each.name in flagged) for each in of.columns]
    return Relation(of.oid, of.schema, of.name, of.replica_identity, tuple(columns))


@dataclass(frozen=True)
class Altered:
    """A table after an alteration, and the reason for which it ends a shape, if it does."""

    table: Table
    reason: Callable[[Definition], Reason | None]
    is_sent: bool = True
    """Whether the stream tells of it; the catalog always does."""


def uses(definition: Definition, name: str) -> bool:
    return name in {each.name for each in (*definition.columns, *definition.where_columns)}


@st.composite
def alterations(draw: st.DrawFn, of: Table) -> Altered:
    names = [each.name for each in of.columns]
    plain = [name for name in names if name not in of.key]
    kind = draw(st.sampled_from(["nothing", "add", "drop", "rename", "retype", "again", "table", "key", "identity"]))
    name = draw(st.sampled_from(plain or names))
    if kind in {"drop", "rename", "again", "key"}:
        assume(plain)
    number = max(each.number for each in of.columns) + 1

    def changed(**facts: Any) -> Table:
        changes = [replace(each, **facts) if each.name == name else each for each in of.columns]
        return replace(of, columns=tuple(changes))

    def ends_users(reason: Reason) -> Callable[[Definition], Reason | None]:
        return lambda definition: reason if uses(definition, name) else None

    match kind:
        case "add":
            added = replace(of, columns=(*of.columns, column("new", number)))
            return Altered(added, lambda definition: Reason.COLUMNS_CHANGED if definition.selects_all else None)
        case "drop":
            assume(len(names) > 1)
            without = replace(of, columns=tuple(each for each in of.columns if each.name != name))
            return Altered(without, ends_users(Reason.COLUMN_GONE))
        case "rename" | "retype" | "again":
            ways: dict[str, tuple[dict[str, Any], Reason]] = {
                "rename": ({"name": "new"}, Reason.COLUMN_GONE),
                "retype": (draw(st.sampled_from([{"type_oid": 20}, {"typmod": 99}])), Reason.COLUMN_RETYPED),
                "again": ({"number": number}, Reason.COLUMN_GONE),
            }
            facts, why = ways[kind]
            return Altered(changed(**facts), ends_users(why), is_sent=kind != "again")
        case "table":
            moved = draw(st.sampled_from([replace(of, name="new"), replace(of, schema="new")]))
            return Altered(moved, lambda _: Reason.TABLE_RENAMED)
        case "key":
            is_sent = of.replica_identity == "d"
            return Altered(changed(pk_index=len(of.key)), lambda _: Reason.KEY_CHANGED, is_sent)
        case "identity":
            lost = replace(of, replica_identity=draw(st.sampled_from("dn")))
            return Altered(lost, lambda definition: Reason.IDENTITY_LOST if definition.needs_full_identity else None)
        case _:
            return Altered(of, lambda _: None)


@given(st.data())
def test_a_shape_ends_for_what_concerns_it(data: st.DataObject) -> None:
    of = data.draw(tables())
    definition = define(data.draw(requests(of)), of)
    if definition.needs_full_identity:
        of = replace(of, replica_identity="f")
    altered = data.draw(alterations(of))
    expected = altered.reason(definition)
    assert reason(relevance(definition, altered.table)) == expected
    assert reason(relevance(definition, as_sent(altered.table))) == (expected if altered.is_sent else None)


@given(st.data())
def test_the_order_of_columns_does_not_matter(data: st.DataObject) -> None:
    """A leaf may have its columns in another order than its root."""
    of = data.draw(tables())
    definition = define(data.draw(requests(of)), replace(of, replica_identity="f"))
    shuffled = replace(of, columns=tuple(data.draw(st.permutations(of.columns))), replica_identity="f")
    assert relevance(definition, shuffled) == IRRELEVANT
    assert relevance(definition, as_sent(shuffled)) == IRRELEVANT


def test_what_matters_is_all_but_the_constants_of_a_condition() -> None:
    definition = defined(ITEMS, where="v = 'x'")
    facts: dict[str, Any] = {
        "oid": 8,
        "schema": "other",
        "table": "other",
        "key": ("v",),
        "columns": definition.columns[:1],
        "selects_all": False,
        "where": None,
        "where_columns": (),
        "enums": {"9": ("a",)},
    }
    for name, value in facts.items():
        assert what_matters(replace(definition, **{name: value})) != what_matters(definition), name
    without = replace(definition, where=None)
    assert what_matters(replace(without, replica=Replica.FULL)) != what_matters(without)
    assert what_matters(replace(definition, where="v = 'y'")) == what_matters(definition)
    of_nobodys_concern = {"replica", "log", "specs"}  # but for what needs the full identity, above
    assert facts.keys() | of_nobodys_concern == {field.name for field in fields(Definition)}


def reason(verdict: object) -> Reason | None:
    return verdict.reason if isinstance(verdict, Ends) else None


def test_a_dropped_table_ends_its_shapes() -> None:
    assert reason(relevance(defined(ITEMS), None)) is Reason.TABLE_GONE


def test_a_leaf_may_have_another_name_and_a_key_of_its_own() -> None:
    keyless = replace(ITEMS, columns=tuple(replace(each, pk_index=None) for each in ITEMS.columns))
    leaf = as_sent(replace(ITEMS, oid=8, name="leaf"))
    assert relevance(defined(ITEMS), leaf) == IRRELEVANT
    assert relevance(defined(keyless), leaf) == IRRELEVANT
    assert reason(relevance(defined(keyless), as_sent(ITEMS))) is Reason.KEY_CHANGED
    assert reason(relevance(defined(ITEMS), as_sent(replace(keyless, oid=8)))) is Reason.KEY_CHANGED


def test_a_leaf_needs_the_full_identity_and_its_root_does_not() -> None:
    definition = defined(ITEMS, where="v = 'x'")
    assert relevance(definition, replace(ITEMS, kind="p")) == IRRELEVANT
    assert reason(relevance(definition, as_sent(replace(ITEMS, oid=8)))) is Reason.IDENTITY_LOST
    assert relevance(definition, as_sent(replace(ITEMS, oid=8, replica_identity="f"))) == IRRELEVANT


@pytest.mark.parametrize("generated", ["s", "v"])
def test_a_new_generated_column_is_the_streams_business(generated: str) -> None:
    """Whether it is sent, the publication says; a shape of all columns must not end for what it never gets."""
    added = replace(ITEMS, columns=(*ITEMS.columns, column("g", 4, generated=generated)))
    definition = defined(ITEMS)
    assert relevance(definition, added) == IRRELEVANT
    assert reason(relevance(definition, as_sent(added))) is Reason.COLUMNS_CHANGED


def test_the_order_of_the_keys_columns_is_part_of_the_key() -> None:
    def keyed(first: str, second: str) -> Table:
        places = {first: 0, second: 1}
        return replace(ITEMS, columns=tuple(replace(each, pk_index=places.get(each.name)) for each in ITEMS.columns))

    definition = defined(keyed("id", "v"))
    assert relevance(definition, keyed("id", "v")) == IRRELEVANT
    assert reason(relevance(definition, keyed("v", "id"))) is Reason.KEY_CHANGED


def test_the_text_says_what_happened() -> None:
    def text(after: Table) -> str:
        verdict = relevance(defined(ITEMS), after)
        assert isinstance(verdict, Ends)
        return verdict.text

    def without(name: str, *more: TableColumn) -> Table:
        return replace(ITEMS, columns=(*(each for each in ITEMS.columns if each.name != name), *more))

    assert "column v was dropped or renamed" in text(without("v"))
    assert "column v was dropped, and another of this name added" in text(without("v", column("v", 4)))
    assert "got new ones: x, y" in text(without("", column("y", 4), column("x", 5)))
    assert "was (id), and is now (id, v)" in text(without("v", column("v", 2, pk_index=1)))
    assert "public.t is now called other.t" in text(replace(ITEMS, schema="other"))
