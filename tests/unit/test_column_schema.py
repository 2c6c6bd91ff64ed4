"""The header `electric-schema`: what the bits of a type's modifier mean. Against real servers: test_tables."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.column_schema import column_schema, column_schemas
from tests.unit.table_strategies import column


def schema(type_name: str, typmod: int = -1, **facts: Any) -> dict[str, Any]:
    return column_schema(column("v", 1, type_name=type_name, typmod=typmod, **facts))


def test_only_what_says_something_is_told() -> None:
    assert schema("int8") == {"type": "int8"}
    assert schema("int8", pk_index=0, not_null=True) == {"type": "int8", "pk_index": 0, "not_null": True}
    columns = [
        column("id", 1, type_name="int8", pk_index=0, not_null=True),
        column("v", 2, type_name="varchar", typmod=12),
    ]
    assert column_schemas(columns) == {
        "id": {"type": "int8", "pk_index": 0, "not_null": True},
        "v": {"type": "varchar", "max_length": 8},
    }


def test_an_array_has_its_elements_type() -> None:
    assert schema("_varchar", 12, dims=2, element_name="varchar") == {"type": "varchar", "dims": 2, "max_length": 8}


@given(st.integers(1, 1000), st.integers(-1000, 1000))
def test_precision_and_scale_come_out_as_they_went_in(precision: int, scale: int) -> None:
    packed = (precision << 16 | scale & 0x7FF) + 4
    assert schema("numeric", packed) == {"type": "numeric", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("type_name", "typmod", "more"),
    [
        ("bpchar", 12, {"length": 8}),
        ("bit", 3, {"length": 3}),
        ("varbit", 7, {"length": 7}),
        ("time", 0, {"precision": 0}),
        ("timetz", 3, {"precision": 3}),
        ("timestamp", 6, {"precision": 6}),
        ("timestamptz", 2, {"precision": 2}),
        ("interval", 0x7FFF0003, {"precision": 3}),
        ("interval", (1 << 2) << 16 | 0xFFFF, {"fields": "YEAR"}),
        ("interval", (1 << 3 | 1 << 10 | 1 << 11 | 1 << 12) << 16 | 2, {"precision": 2, "fields": "DAY TO SECOND"}),
        ("interval", 0x7FFF << 16 | 0xFFFF, {}),
        ("geometry", 5, {"type_mod": 5}),
    ],
)
def test_each_types_modifier(type_name: str, typmod: int, more: dict[str, Any]) -> None:
    assert schema(type_name, typmod) == {"type": type_name, **more}
