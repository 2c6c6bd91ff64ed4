"""Definitions: equal ones have one identity and no others share it; the catalog gives back what it was given."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.definition import Definition
from shapes.errors import DefinitionUnreadable
from shapes.views import View
from shapes.where.types import Collation, ColumnType
from tests.unit.table_strategies import column, defined, definitions, table

KEYED = table(column("v", 1), column("id", 2, pk_index=1), column("n", 3, pk_index=0), column("w", 4))


@given(definitions())
def test_a_definition_is_read_back_from_json(definition: Definition) -> None:
    content = orjson.loads(orjson.dumps(definition.to_json()))
    assert Definition.from_json(content) == definition
    assert content == definition.to_json(), "the catalog refuses what JSON would change"


@given(st.lists(definitions(), min_size=2, max_size=20))
def test_identities_are_equal_as_definitions_are(made: list[Definition]) -> None:
    for one in made:
        for other in made:
            assert (one.identity == other.identity) == (one == other)


def test_an_identity_is_the_same_in_another_process() -> None:
    definition = defined(KEYED, where="v = 'x'")
    program = (
        "import sys, orjson; from shapes.definition import Definition;"
        "print(Definition.from_json(orjson.loads(sys.stdin.read())).identity)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], input=orjson.dumps(definition.to_json()), check=True, capture_output=True
    )
    assert found.stdout.decode().strip() == definition.identity


def test_what_types_are_made_of_is_kept_beside_what_the_shape_is() -> None:
    """Older definitions do not tell it, and are the same shapes."""
    old = defined(KEYED)
    new = replace(old, specs={"v": {"kind": "range", "of": [23, -1]}})
    assert (new.identity, new, hash(new)) == (old.identity, old, hash(old))
    assert Definition.from_json(new.to_json()).specs == new.specs
    assert "types" not in old.to_json()


def test_the_view_has_the_tables_order_and_the_keys_own() -> None:
    assert defined(KEYED).view == View(("v", "id", "n", "w"), ("n", "id"), full=False, has_key=True)
    chosen = defined(KEYED, columns="n,w,id", replica="full")
    assert chosen.view == View(("id", "n", "w"), ("n", "id"), full=True, has_key=True)


def test_without_a_primary_key_all_selected_columns_are_the_key() -> None:
    keyless = table(column("z", 1), column("a", 2), column("m", 3))
    assert defined(keyless).view == View(("z", "a", "m"), ("a", "m", "z"), full=False, has_key=False)
    assert defined(keyless, columns="m,z").view.key == ("m", "z")


@pytest.mark.parametrize(
    ("fields", "needed"),
    [({}, False), ({"where": "v = 'x'"}, True), ({"replica": "full"}, True), ({"log": "changes_only"}, False)],
)
def test_conditions_and_full_rows_need_old_rows(fields: dict[str, Any], needed: bool) -> None:
    assert defined(KEYED, **fields).needs_full_identity is needed


def test_a_clause_sees_through_domains() -> None:
    domain = column("v", 1, type_oid=9, type_name="d", base_oid=1043, base_typmod=9, collation=Collation.C)
    assert domain.for_where == ColumnType(1043, 9, "d", is_enum=False, collation=Collation.C)
    mood = column("v", 1, type_oid=9, type_name="mood", typmod=-1, labels=("sad",))
    assert mood.for_where == ColumnType(9, -1, "mood", is_enum=True)


@pytest.mark.parametrize(
    "damage",
    [{"version": 2}, {"version": None}, {"columns": [["a"]]}, {"columns": 1}, {"replica": "some"}, {"oid": "x"}],
)
def test_what_is_not_a_definition_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(DefinitionUnreadable):
        Definition.from_json({**defined(KEYED).to_json(), **damage})


def test_a_missing_field_is_named() -> None:
    content = defined(KEYED).to_json()
    del content["key"]
    with pytest.raises(DefinitionUnreadable, match="key"):
        Definition.from_json(content)
