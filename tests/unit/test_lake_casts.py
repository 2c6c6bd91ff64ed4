"""Casts of the lake against a plain reading of each text, one value at a time."""

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.lake.array_text import parse_array
from storage.lake.casts import cast, reason_of
from storage.lake.types import TEXT, lake_type

BAD = object()


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def plain_bool(text: str) -> Any:
    return {"t": True, "f": False}.get(text, BAD)


def plain_int(low: int, high: int) -> Callable[[str], Any]:
    return lambda text: int(text) if re.fullmatch(r"-?\d+", text) and low <= int(text) <= high else BAD


def plain_decimal(text: str) -> Any:
    match = re.fullmatch(r"-?(\d+)(?:\.(\d+))?", text)
    if not match or len((match[2] or "").rstrip("0")) > 2 or len(match[1].lstrip("0")) > 8:
        return BAD
    return Decimal(text)


def plain_date(text: str) -> Any:
    try:
        return dt.date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else BAD
    except ValueError:
        return BAD


def plain_timestamp(text: str) -> Any:
    try:
        whole = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", text)
        return dt.datetime.fromisoformat(text) if whole else BAD
    except ValueError:
        return BAD


def plain_bytes(text: str) -> Any:
    return bytes.fromhex(text[2:]) if re.fullmatch(r"\\x([0-9a-f]{2})*", text) else BAD


DATES = st.dates().map(str) | st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "20240-01-01", "2023-02-30"])
STAMPS = st.datetimes().map(str) | st.sampled_from(["infinity", "2024-01-01 00:00:00 BC", "12024-01-01 00:00:00"])
CASES = [
    pytest.param(16, -1, st.sampled_from(["t", "f", "true", ""]), plain_bool, id="bool"),
    pytest.param(21, -1, st.integers(-40_000, 40_000).map(str), plain_int(-(2**15), 2**15 - 1), id="int2"),
    pytest.param(23, -1, st.integers().map(str) | st.just("x"), plain_int(-(2**31), 2**31 - 1), id="int4"),
    pytest.param(20, -1, st.integers(-(2**64), 2**64).map(str), plain_int(-(2**63), 2**63 - 1), id="int8"),
    pytest.param(
        1700,
        numeric(10, 2),
        st.decimals(-(10**9), 10**9, places=2).map(lambda n: f"{n:f}") | st.sampled_from(["NaN", "Infinity", "0.005"]),
        plain_decimal,
        id="numeric(10,2)",
    ),
    pytest.param(1082, -1, DATES, plain_date, id="date"),
    pytest.param(1114, -1, STAMPS, plain_timestamp, id="timestamp"),
    pytest.param(17, -1, st.binary().map(lambda b: "\\x" + b.hex()) | st.sampled_from(["\\x1", "ab", ""]), plain_bytes),
]


@pytest.mark.parametrize(("oid", "typmod", "texts", "plain"), CASES)
@given(st.data())
def test_a_column_is_its_values_one_by_one(
    oid: int, typmod: int, texts: st.SearchStrategy[str], plain: Callable[[str], Any], data: st.DataObject
) -> None:
    column = data.draw(st.lists(st.none() | texts, max_size=30))
    done = cast(pa.array(column, pa.large_string()), lake_type(oid, typmod))
    expected = [None if text is None else plain(text) for text in column]
    assert done.values.to_pylist() == [None if value is BAD else value for value in expected]
    assert done.quarantined.tolist() == [value is BAD for value in expected]
    assert done.values.type == lake_type(oid, typmod).arrow


@given(st.lists(st.none() | st.floats(allow_nan=False).map(repr) | st.sampled_from(["Infinity", "-Infinity"])))
def test_floats_are_exact_and_may_be_infinite(texts: list[str | None]) -> None:
    done = cast(pa.array(texts, pa.large_string()), lake_type(701))
    assert done.values.to_pylist() == [None if text is None else float(text) for text in texts]
    assert not done.count


def test_a_float_may_be_no_number() -> None:
    (value,) = cast(pa.array(["NaN"], pa.large_string()), lake_type(701)).values.to_pylist()
    assert math.isnan(value)


NUMBERS = st.integers(-500, 500)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(-(10**9), 10**9)), min_size=1))
def test_intervals_keep_months_days_and_microseconds(parts: list[tuple[int, ...]]) -> None:
    texts, expected = [], []
    for years, months, days, hours, minutes, micros in parts:
        seconds = f"{'-' if micros < 0 else ''}{abs(micros) // 10**6}.{abs(micros) % 10**6:06d}"
        texts.append(f"P{years}Y{months}M{days}DT{hours}H{minutes}M{seconds}S")
        time = (hours * 60 + minutes) * 60_000_000 + micros
        expected.append({"months": years * 12 + months, "days": days, "microseconds": time})
    done = cast(pa.array(texts, pa.large_string()), lake_type(1186))
    assert done.values.to_pylist() == expected


def test_intervals_of_nothing_and_without_end() -> None:
    done = cast(pa.array(["PT0S", None, "infinity", "P-1DT-0.5S"], pa.large_string()), lake_type(1186))
    nothing = {"months": 0, "days": 0, "microseconds": 0}
    assert done.values.to_pylist() == [nothing, None, None, nothing | {"days": -1, "microseconds": -500_000}]
    assert done.quarantined.tolist() == [False, False, True, False]


def array_text(elements: list[str | None]) -> str:
    def one(text: str | None) -> str:
        if text is None:
            return "NULL"
        if not text or text.upper() == "NULL" or re.search(r'[ \t\n\r\v\f{},"\\]', text):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return text

    return "{" + ",".join(map(one, elements)) + "}"


ELEMENTS = st.lists(
    st.none() | st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=5), max_size=4
)


@given(st.lists(st.none() | ELEMENTS, max_size=8))
def test_arrays_of_text(arrays: list[list[str | None] | None]) -> None:
    texts = [None if array is None else array_text(array) for array in arrays]
    done = cast(pa.array(texts, pa.large_string()), lake_type(1009))
    assert done.values.to_pylist() == arrays
    assert not done.count


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**40), 2**40), max_size=4), max_size=8))
def test_arrays_of_numbers_that_fit_or_not(arrays: list[list[int | None] | None]) -> None:
    texts = [None if array is None else array_text([None if n is None else str(n) for n in array]) for array in arrays]
    done = cast(pa.array(texts, pa.large_string()), lake_type(1007))
    fits = [array is None or all(n is None or -(2**31) <= n < 2**31 for n in array) for array in arrays]
    assert done.quarantined.tolist() == [not fit for fit in fits]
    assert done.values.to_pylist() == [array if fit else None for array, fit in zip(arrays, fits, strict=True)]


def test_arrays_that_are_no_lists_are_kept_as_text() -> None:
    texts = pa.array(["{{1,2},{3,4}}", "[0:1]={1,2}", "{1", "{}"], pa.large_string())
    done = cast(texts, lake_type(1007))
    assert done.quarantined.tolist() == [True, True, True, False]
    assert parse_array('{"a\\"b",NULL,"NULL"}') == ['a"b', None, "NULL"]
    assert parse_array('{"a"b}') is None
    assert parse_array('{"a b",\u00a0,\x1c,\u2003x}') == ["a b", "\u00a0", "\x1c", "\u2003x"]


@given(st.lists(st.none() | st.dates().map(str) | st.just("infinity"), max_size=20), st.data())
def test_some_of_the_rows_are_cast_as_all_are(texts: list[str | None], data: st.DataObject) -> None:
    column = pa.array(texts, pa.large_string())
    rows = data.draw(st.lists(st.sampled_from(range(len(texts))) if texts else st.nothing()))
    part = cast(column.take(pa.array(rows, pa.int64())), lake_type(1082))
    whole = cast(column, lake_type(1082))
    assert part.values.equals(whole.values.take(pa.array(rows, pa.int64())))
    assert part.quarantined.tolist() == whole.quarantined[rows].tolist() if rows else True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("infinity", "infinite"),
        ("-infinity", "infinite"),
        ("NaN", "not_a_number"),
        ("0044-03-15 BC", "before_christ"),
        ("20240-01-01", "year_above_9999"),
        ("{{1},{2}}", "dimensions"),
        ("[0:0]={1}", "dimensions"),
        ("{infinity}", "element"),
        ("so be it", "unreadable"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    assert reason_of(text) == reason


@pytest.mark.parametrize(
    ("oid", "typmod", "arrow"),
    [
        (1700, -1, pa.string()),
        (1700, numeric(38, 10), pa.decimal128(38, 10)),
        (1700, numeric(39, 0), pa.string()),
        (1700, numeric(3, -2), pa.string()),
        (1700, numeric(3, 5), pa.string()),
        (1231, numeric(5, 1), pa.list_(pa.decimal128(5, 1))),
        (99_999, 7, pa.string()),
    ],
)
def test_types_by_oid_and_typmod(oid: int, typmod: int, arrow: pa.DataType) -> None:
    assert lake_type(oid, typmod).arrow == arrow


def test_text_is_text() -> None:
    assert cast(pa.array(["a", None], pa.large_string()), TEXT).values.to_pylist() == ["a", None]
