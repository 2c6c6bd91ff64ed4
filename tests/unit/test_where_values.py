"""Values of Postgres' types: what is written is read again, and arithmetic agrees with simpler ways to do it."""

import contextlib
import datetime as dt
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shapes.where.canonical import canonical, canonical_text, constant_key, element_keys
from shapes.where.tree import Constant
from shapes.where.types import (
    BPCHAR,
    FLOAT4,
    FLOAT8,
    INT4,
    INT8,
    INTERVAL,
    NUMERIC,
    SCALARS,
    TEXT,
    TIMESTAMP,
    Type,
    array_of,
)  # fmt: skip
from shapes.where.values import arrays, datetimes, intervals, numbers
from shapes.where.values.arrays import Array
from shapes.where.values.intervals import Interval
from shapes.where.values.io import reader, writer
from shapes.where.values.value import Invalid

finite = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=6)
micros = st.integers(datetimes.days_of(-4700, 1, 1) * intervals.DAY, datetimes.days_of(290_000, 1, 1) * intervals.DAY)
spans = st.builds(Interval, st.integers(-5000, 5000), st.integers(-50_000, 50_000), st.integers(-(10**15), 10**15))


@given(st.floats())
def test_floats_are_written_so_that_they_come_back(value: float) -> None:
    assert numbers.read_float8(numbers.write_float(value, "float8")) == value or value != value  # noqa: PLR0124 - NaN


@given(st.floats(width=32))
@example(3.4028234663852886e38)  # the greatest: its neighbour is infinite
@example(-3.4028234663852886e38)
def test_singles_are_written_so_that_they_come_back(value: float) -> None:
    assert numbers.read_float4(numbers.write_float(value, "float4")) == value or value != value  # noqa: PLR0124 - NaN


def test_a_single_is_rounded_once() -> None:
    # Just above the middle between two singles, but the nearest double is that middle.
    middle = Fraction(float(np.float32(1))) + Fraction(1, 2**24)
    text = str(Decimal(middle.numerator) / Decimal(middle.denominator)) + "0000000000000001"
    assert numbers.read_float4(text) == float(np.nextafter(np.float32(1), np.float32(2)))


@given(finite, finite)
def test_decimals_are_exact(left: Decimal, right: Decimal) -> None:
    assert Fraction(numbers.add(left, right)) == Fraction(left) + Fraction(right)
    assert Fraction(numbers.subtract(left, right)) == Fraction(left) - Fraction(right)
    assert Fraction(numbers.multiply(left, right)) == Fraction(left) * Fraction(right)
    if right:
        quotient = numbers.divide(left, right)
        unit = Fraction(1, 10 ** -int(quotient.as_tuple().exponent))
        assert abs(Fraction(quotient) - Fraction(left) / Fraction(right)) <= unit / 2


@given(st.dates())
def test_days_are_those_of_the_calendar(date: dt.date) -> None:
    days = datetimes.read_date(date.isoformat())
    assert days == (date - dt.date(2000, 1, 1)).days
    assert datetimes.date_of(days) == (date.year, date.month, date.day)


@given(micros)
def test_timestamps_are_written_so_that_they_come_back(value: int) -> None:
    for kind in ("timestamp", "timestamptz"):
        assert datetimes.read_timestamp(datetimes.write_timestamp(value, kind), kind) == value


@given(st.datetimes(), st.datetimes())
def test_timestamps_are_apart_as_python_says(left: dt.datetime, right: dt.datetime) -> None:
    values = [datetimes.read_timestamp(str(each), "timestamp") for each in (left, right)]
    assert datetimes.between(*values).length == (left - right) // dt.timedelta(microseconds=1)


@given(spans)
def test_intervals_are_written_so_that_they_come_back(span: Interval) -> None:
    assert intervals.read_interval(intervals.write_interval(span)) == span
    assert intervals.justify_interval(span).length == span.length


@given(st.data())
def test_arrays_are_written_so_that_they_come_back(data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    count = int(np.prod(dims))
    items = data.draw(
        st.lists(st.none() | st.text('aN"\\{}, \n', max_size=4), min_size=count, max_size=count), label="items"
    )
    lower = tuple(data.draw(st.integers(-3, 3)) for _ in dims)
    array = Array(tuple(items), dims, lower)
    assert arrays.read_array(arrays.write_array(array, str), str) == array


@pytest.mark.parametrize(
    "text", ["{1,}", "{,1}", "{1", "1}", "{{1},{2,3}}", "{1,{2}}", "{1}x", "[2:1]={}", "[1:3]={1}", ""]
)
def test_arrays_that_are_none(text: str) -> None:
    with pytest.raises(Invalid, match="malformed array literal"):
        arrays.read_array(text, int)


@pytest.mark.parametrize("kind", SCALARS, ids=str)
@given(text=st.text(max_size=12))
def test_any_text_is_a_value_or_invalid(kind: Type, text: str) -> None:
    for each in (kind, array_of(kind)):
        try:
            value = reader(each)(text)
        except Invalid:
            continue
        assert isinstance(writer(each)(value), str)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", SCALARS, ids=str)
@pytest.mark.parametrize("letter", [" ", "1", "1 ", "{", "\\", "{ ", "- ", "1:", "0.1", "P1"])
def test_long_texts_take_no_longer_than_their_length(kind: Type, letter: str) -> None:
    for text in (letter * 60_000, "{" + letter * 60_000 + "x}", letter * 60_000 + "x"):
        for each in (kind, array_of(kind)):
            with contextlib.suppress(Invalid):
                reader(each)(text)


@pytest.mark.parametrize(
    ("kind", "equal", "other"),
    [
        (NUMERIC, ["1", "1.0", "1.00"], "1.01"),
        (NUMERIC, ["0", "0.00"], "100"),
        (NUMERIC, ["100", "100.0"], "1"),
        (FLOAT8, ["0", "-0"], "1e-300"),
        (FLOAT4, ["NaN"], "Infinity"),
        (BPCHAR, ["ab", "ab   "], " ab"),
        (INTERVAL, ["P1M", "P30D", "PT720H"], "P31D"),
        (array_of(NUMERIC), ["{1.0,NULL}", "{1.00,NULL}"], "{NULL,1}"),
        (array_of(INT4), ["{1,2}"], "[0:1]={1,2}"),
        (TIMESTAMP, ["infinity"], "-infinity"),
    ],
    ids=str,
)
def test_keys(kind: Type, equal: list[str], other: str) -> None:
    keys = canonical(kind, pa.array([*equal, other, None])).to_pylist()
    assert len(set(keys[: len(equal)])) == 1
    assert keys[-2] not in keys[: len(equal)]
    assert keys[-1] is None


def test_keys_of_constants() -> None:
    assert constant_key(INT8, Constant(5, INT4)) == canonical_text(INT8, "5")
    assert constant_key(NUMERIC, Constant(Decimal("1.50"), NUMERIC)) == canonical_text(NUMERIC, "1.5")
    assert constant_key(BPCHAR, Constant("a  ", BPCHAR)) == canonical_text(BPCHAR, "a ")
    assert constant_key(TEXT, Constant(5, INT4)) is None
    assert constant_key(INT4, Constant(None, INT4)) is None
    found = element_keys(array_of(NUMERIC), pa.array(["{1.0,1.00,NULL,2}", "{}", None, "no array"])).to_pylist()
    assert found == [["1", "2"], [], None, None]
