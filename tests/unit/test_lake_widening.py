"""Which types a column may be altered to without a new table: what is wider holds every value."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.lake.types import lake_type, list_of
from storage.lake.widening import is_wider, joined, obstacle, widens

TYPES = st.recursive(
    st.sampled_from([lake_type(oid).arrow for oid in (16, 20, 21, 23, 25, 700, 701, 1082, 1114, 1184)])
    | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
    lambda inner: inner.map(list_of),
    max_leaves=1,
)


def extremes(kind: pa.DataType) -> list[object]:
    """Values at the edges of a type."""
    if pa.types.is_list(kind):
        return [[], extremes(kind.value_type)]
    if pa.types.is_integer(kind):
        return [-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1]
    if pa.types.is_decimal(kind):
        digits = "9" * kind.precision
        whole, part = digits[: kind.precision - kind.scale], digits[kind.precision - kind.scale :]
        return [pa.scalar(f"{sign}{whole or 0}.{part or 0}").cast(kind).as_py() for sign in ("", "-")]
    if pa.types.is_floating(kind):
        return [0.1, float("inf"), -0.0]
    return []


@given(TYPES, TYPES, TYPES)
def test_what_is_wider_holds_every_value(first: pa.DataType, second: pa.DataType, third: pa.DataType) -> None:
    if widens(first, second):
        values = pa.array([*extremes(first), None], first)
        assert values.cast(second).cast(first).equals(values)
        assert not widens(second, first) or first == second
        assert not widens(second, third) or widens(first, third)


@pytest.mark.parametrize(
    ("old", "new", "goes"),
    [
        ((21, -1), (23, -1), True),
        ((23, -1), (20, -1), True),
        ((20, -1), (23, -1), False),
        ((700, -1), (701, -1), True),
        ((23, -1), (701, -1), False),
        ((1043, 4 + 10), (1043, 4 + 20), True),
        ((1043, 4 + 10), (25, -1), True),
        ((1700, (10 << 16 | 2) + 4), (1700, (12 << 16 | 2) + 4), True),
        ((1700, (10 << 16 | 2) + 4), (1700, (12 << 16 | 4) + 4), True),
        ((1700, (10 << 16 | 2) + 4), (1700, (10 << 16 | 4) + 4), False),
        ((1700, (10 << 16 | 2) + 4), (1700, -1), False),
        ((1007, -1), (1016, -1), True),
        ((1082, -1), (1114, -1), False),
    ],
)
def test_which_alterations_go_on(old: tuple[int, int], new: tuple[int, int], *, goes: bool) -> None:
    known, wanted = (pa.schema([("a", lake_type(*one).arrow)]) for one in (old, new))
    assert (obstacle(known, wanted) is None) is goes
    assert is_wider(known, wanted) is (known != wanted)


def test_a_name_in_other_letters_is_another_column() -> None:
    """But no table may have both, as most engines would take them for one."""
    known, wanted = (pa.schema([(name, pa.int32())]) for name in ("Straße_A", "straße_a"))
    assert obstacle(known, wanted) == "column straße_a was spelled Straße_A"
    assert obstacle(known, known) is None


def test_columns_come_and_stay() -> None:
    known = pa.schema([("a", pa.int32()), ("b", pa.string())])
    wanted = pa.schema([("c", pa.bool_()), ("a", pa.int64())])
    assert joined(known, wanted) == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    assert joined(None, wanted) == wanted
    assert not is_wider(joined(known, wanted), joined(joined(known, wanted), wanted))
