"""Rows as Arrow tables: the schema's types, whatever the rows; what does not fit them is never an error."""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapes.client_arrow import to_arrow
from shapes.client_values import PARSERS, parse_value

INSTANT = dt.datetime(2025, 2, 28, 10, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("column", "values", "kind", "found"),
    [
        ({"type": "int2"}, [1, None], pa.int16(), [1, None]),
        ({"type": "int4", "dims": 2}, [[[1], [None]], None], pa.list_(pa.list_(pa.int32())), [[[1], [None]], None]),
        ({"type": "numeric", "precision": 9, "scale": 2}, [Decimal("1.5")], pa.decimal128(9, 2), [Decimal("1.50")]),
        ({"type": "numeric", "precision": 50, "scale": 1}, [Decimal(1)], pa.decimal256(50, 1), [Decimal("1.0")]),
        ({"type": "numeric"}, [Decimal("1.25")], pa.decimal128(3, 2), [Decimal("1.25")]),
        ({"type": "numeric"}, [Decimal("NaN"), Decimal(1)], pa.string(), ["NaN", "1"]),
        ({"type": "timestamptz"}, [INSTANT], pa.timestamp("us", tz="UTC"), [INSTANT]),
        ({"type": "date"}, ["infinity", dt.date(2025, 1, 1)], pa.string(), ["infinity", "2025-01-01"]),
        ({"type": "jsonb"}, [{"a": [1]}, "x", None, 1], pa.string(), ['{"a":[1]}', '"x"', None, "1"]),
        ({"type": "uuid"}, [UUID(int=1)], pa.string(), [str(UUID(int=1))]),
        ({"type": "bytea"}, [b"\x00"], pa.binary(), [b"\x00"]),
        ({"type": "mood"}, ["sad"], pa.string(), ["sad"]),
        ({"type": "int8", "dims": 2}, [[]], pa.list_(pa.list_(pa.int64())), [[]]),
        ({"type": "text", "dims": 2}, [["ab"]], pa.list_(pa.string()), [["ab"]]),
        ({"type": "text", "dims": 1}, [["a"], "no array"], pa.string(), ['["a"]', "no array"]),
    ],
)
def test_columns(column: dict[str, Any], values: list[Any], kind: pa.DataType, found: list[Any]) -> None:
    table = to_arrow({"v": column}, [{"v": value} for value in values])
    assert table.schema.field("v").type == kind
    assert table.column("v").to_pylist() == found


def test_without_rows_there_are_types() -> None:
    table = to_arrow({"id": {"type": "int8"}, "v": {"type": "text"}}, [])
    assert table.schema.types == [pa.int64(), pa.string()]


@given(
    st.sampled_from(sorted(PARSERS)), st.integers(0, 2), st.lists(st.text('0123456789-:. {},"\\xNULtf', max_size=12))
)
def test_whatever_stands_there_becomes_a_column(kind: str, dims: int, texts: list[str]) -> None:
    column = {"type": kind, "dims": dims}
    values = [parse_value(text, column, PARSERS) for text in texts]
    assert to_arrow({"v": column}, [{"v": value} for value in values]).num_rows == len(texts)
