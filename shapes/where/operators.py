"""The operators and functions that a clause may use, with the types they take and what they do to values.

Polymorphic ones (arrays, `||` of text with anything, `concat`) are in `polymorphic`; which of several is meant is
decided in `resolution`.
"""

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from shapes.where.types import (
    BOOL,
    BPCHAR,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    NAME,
    NUMERIC,
    SCALARS,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    Type,
)  # fmt: skip
from shapes.where.values import datetimes, intervals, numbers, strings
from shapes.where.values.intervals import DAY, Interval
from shapes.where.values.io import sort_key
from shapes.where.values.value import Invalid, Value

Run = Callable[..., Value]

COMPARISONS: Final[dict[str, Callable[[Value, Value], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
EQUALITIES: Final = frozenset({"=", "<>"})
LIKES: Final = frozenset({"~~", "!~~", "~~*", "!~~*"})
_WHOLE: Final = (INT2, INT4, INT8)
_REAL: Final = (FLOAT4, FLOAT8)


@dataclass(frozen=True, slots=True)
class Signature:
    """One operator or function on exactly these types. `run` gets values, never NULL, and may raise `Invalid`."""

    name: str
    args: tuple[Type, ...]
    result: Type
    run: Run


def comparison(name: str, left: Type, right: Type) -> Signature:
    """`=`, `<` and so on, by the order of the type."""
    compare, left_key, right_key = COMPARISONS[name], sort_key(left), sort_key(right)
    return Signature(name, (left, right), BOOL, lambda a, b: compare(left_key(a), right_key(b)))


def _comparisons() -> Iterator[Signature]:
    pairs = {(kind, kind) for kind in SCALARS if kind.name != "varchar"}  # varchar is compared as text
    pairs |= {(left, right) for left in _WHOLE for right in _WHOLE}
    pairs |= {(left, right) for left in _REAL for right in _REAL}
    pairs |= {(NAME, TEXT), (TEXT, NAME)}
    for name in COMPARISONS:
        yield from (comparison(name, left, right) for left, right in pairs)


def _checked(kind: Type, calculate: Run) -> Run:
    return lambda *args: numbers.in_range(calculate(*args), kind.name)


def _integers() -> Iterator[Signature]:
    calculations: dict[str, Run] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    calculations["/"] = numbers.integer_divide
    for left in _WHOLE:
        for right in _WHOLE:
            wider = max(left, right, key=lambda kind: numbers.RANGES[kind.name])
            for name, run in calculations.items():
                yield Signature(name, (left, right), wider, _checked(wider, run))
    bits: dict[str, Run] = {"&": operator.and_, "|": operator.or_, "#": operator.xor}
    for kind in _WHOLE:
        for name, run in (bits | {"%": numbers.integer_modulo}).items():
            yield Signature(name, (kind, kind), kind, run)
        yield Signature("~", (kind,), kind, operator.invert)
        yield Signature("-", (kind,), kind, _checked(kind, operator.neg))
        yield Signature("@", (kind,), kind, _checked(kind, abs))
        yield Signature("+", (kind,), kind, operator.pos)


def _numerics() -> Iterator[Signature]:
    pair = (NUMERIC, NUMERIC)
    yield Signature("+", pair, NUMERIC, numbers.add)
    yield Signature("-", pair, NUMERIC, numbers.subtract)
    yield Signature("*", pair, NUMERIC, numbers.multiply)
    yield Signature("/", pair, NUMERIC, numbers.divide)
    yield Signature("%", pair, NUMERIC, numbers.modulo)
    yield Signature("-", (NUMERIC,), NUMERIC, lambda value: numbers.subtract(Decimal(0), value))
    yield Signature("+", (NUMERIC,), NUMERIC, lambda value: value)
    yield Signature("@", (NUMERIC,), NUMERIC, Decimal.copy_abs)


def _floats() -> Iterator[Signature]:
    for left in _REAL:
        for right in _REAL:
            result = FLOAT4 if left is right is FLOAT4 else FLOAT8
            for name, run in _FLOAT_CALCULATIONS.items():
                yield Signature(name, (left, right), result, _float_result(result, run, name))
    for kind in _REAL:
        yield Signature("-", (kind,), kind, operator.neg)
        yield Signature("+", (kind,), kind, operator.pos)
        yield Signature("@", (kind,), kind, abs)
    yield Signature("^", (FLOAT8, FLOAT8), FLOAT8, _power)
    yield Signature("|/", (FLOAT8,), FLOAT8, _square_root)


def _float_divide(left: float, right: float) -> float:
    if right == 0 and not math.isnan(left):
        raise Invalid("division by zero")
    return left / right if right else math.nan


_FLOAT_CALCULATIONS: Final[dict[str, Run]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _float_divide,
}


def _float_result(result: Type, calculate: Run, name: str) -> Run:
    """Overflow and underflow are errors, unless an infinity came in."""

    def run(left: float, right: float) -> float:
        value: float = calculate(left, right)
        if result is FLOAT4:
            value = numbers.float8_to_float4(value)
        if math.isinf(value) and not (math.isinf(left) or math.isinf(right)):
            raise Invalid("value out of range: overflow")
        is_lost = (name == "*" and left and right) or (name == "/" and left and not math.isinf(right))
        if value == 0 and is_lost:
            raise Invalid("value out of range: underflow")
        return value

    return run


def _power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        raise Invalid("zero raised to a negative power is undefined")
    if math.isfinite(base) and base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent):
        raise Invalid("a negative number raised to a non-integer power yields a complex result")
    try:
        value = math.pow(base, exponent)
    except OverflowError:
        raise Invalid("value out of range: overflow") from None
    if value == 0 and base != 0 and math.isfinite(base) and math.isfinite(exponent):
        raise Invalid("value out of range: underflow")
    return value


def _square_root(value: float) -> float:
    if value < 0:
        raise Invalid("cannot take square root of a negative number")
    return math.sqrt(value)


def _texts() -> Iterator[Signature]:
    for left in (TEXT, BPCHAR, NAME):
        yield Signature("~~", (left, TEXT), BOOL, strings.like)
        yield Signature("!~~", (left, TEXT), BOOL, lambda text, pattern: not strings.like(text, pattern))
        yield Signature("~~*", (left, TEXT), BOOL, strings.ilike)
        yield Signature("!~~*", (left, TEXT), BOOL, lambda text, pattern: not strings.ilike(text, pattern))
    yield Signature("like_escape", (TEXT, TEXT), TEXT, strings.like_escape)
    yield Signature("lower", (TEXT,), TEXT, strings.ascii_lower)
    yield Signature("upper", (TEXT,), TEXT, strings.ascii_upper)


def _dates() -> Iterator[Signature]:
    yield Signature("+", (DATE, INT4), DATE, datetimes.add_days)
    yield Signature("+", (INT4, DATE), DATE, lambda days, date: datetimes.add_days(date, days))
    yield Signature("-", (DATE, INT4), DATE, lambda date, days: datetimes.add_days(date, -days))
    yield Signature("-", (DATE, DATE), INT4, datetimes.days_between)
    yield Signature("+", (DATE, TIME), TIMESTAMP, _date_and_time)
    yield Signature("+", (TIME, DATE), TIMESTAMP, lambda time, date: _date_and_time(date, time))
    yield Signature("-", (TIME, TIME), INTERVAL, lambda left, right: Interval(0, 0, left - right))
    for name, sign in (("+", 1), ("-", -1)):
        yield Signature(name, (TIME, INTERVAL), TIME, _shift_time(sign))
        yield Signature(name, (DATE, INTERVAL), TIMESTAMP, _shift_date(sign))
        for kind in (TIMESTAMP, TIMESTAMPTZ):
            yield Signature(name, (kind, INTERVAL), kind, _shift(sign))
    yield Signature("+", (INTERVAL, TIME), TIME, lambda span, time: _shift_time(1)(time, span))
    yield Signature("+", (INTERVAL, DATE), TIMESTAMP, lambda span, date: _shift_date(1)(date, span))
    for kind in (TIMESTAMP, TIMESTAMPTZ):
        yield Signature("+", (INTERVAL, kind), kind, lambda span, at: _shift(1)(at, span))
        yield Signature("-", (kind, kind), INTERVAL, datetimes.between)
    for zone, offset in ((TEXT, _utc), (INTERVAL, _fixed_offset)):
        yield Signature("timezone", (zone, TIMESTAMP), TIMESTAMPTZ, _move(offset, -1))
        yield Signature("timezone", (zone, TIMESTAMPTZ), TIMESTAMP, _move(offset, 1))


def _intervals() -> Iterator[Signature]:
    yield Signature("+", (INTERVAL, INTERVAL), INTERVAL, intervals.add)
    yield Signature("-", (INTERVAL, INTERVAL), INTERVAL, lambda a, b: intervals.add(a, intervals.negate(b)))
    yield Signature("-", (INTERVAL,), INTERVAL, intervals.negate)
    yield Signature("*", (INTERVAL, FLOAT8), INTERVAL, intervals.multiply)
    yield Signature("*", (FLOAT8, INTERVAL), INTERVAL, lambda factor, span: intervals.multiply(span, factor))
    yield Signature("/", (INTERVAL, FLOAT8), INTERVAL, intervals.divide)
    yield Signature("justify_hours", (INTERVAL,), INTERVAL, intervals.justify_hours)
    yield Signature("justify_days", (INTERVAL,), INTERVAL, intervals.justify_days)
    yield Signature("justify_interval", (INTERVAL,), INTERVAL, intervals.justify_interval)


def _date_and_time(date: int, time: int) -> int:
    start = datetimes.date_to_timestamp(date)
    if start in (datetimes.INFINITY, datetimes.MINUS_INFINITY):
        return start
    return datetimes.timestamp_in_range(start + time)


def _signed(span: Interval, sign: int) -> Interval:
    return span if sign > 0 else intervals.negate(span)


def _shift(sign: int) -> Run:
    return lambda at, span: datetimes.add_interval(at, _signed(span, sign))


def _shift_date(sign: int) -> Run:
    return lambda date, span: datetimes.add_interval(datetimes.date_to_timestamp(date), _signed(span, sign))


def _shift_time(sign: int) -> Run:
    def run(time: int, span: Interval) -> int:
        span.must_be_finite()
        return (time + sign * span.micros) % DAY

    return run


def _utc(zone: str) -> int:
    if zone.upper() not in {"UTC", "GMT", "Z", "ZULU"}:
        raise Invalid(f"time zone \"{zone}\" is not supported: only UTC, or an interval such as INTERVAL '2 hours'")
    return 0


def _fixed_offset(zone: Interval) -> int:
    if zone.months or zone.days:
        raise Invalid("an interval as a time zone must not include months or days")
    return zone.micros // datetimes.SECOND * datetimes.SECOND


def _move(offset: Run, sign: int) -> Run:
    def run(zone: Value, at: int) -> int:
        micros = offset(zone)
        if at in (datetimes.INFINITY, datetimes.MINUS_INFINITY):
            return at
        return datetimes.timestamp_in_range(at + sign * micros)

    return run


def _table() -> dict[str, tuple[Signature, ...]]:
    found: dict[str, list[Signature]] = {}
    for family in (_comparisons, _integers, _numerics, _floats, _texts, _dates, _intervals):
        for signature in family():
            found.setdefault(signature.name, []).append(signature)
    # Which order they have decides nothing, but messages and tests should not change from run to run.
    return {name: tuple(sorted(all_, key=lambda s: [kind.oid for kind in s.args])) for name, all_ in found.items()}


SIGNATURES: Final = _table()
FUNCTION_NAMES: Final = frozenset(name for name in SIGNATURES if name[0].isalpha())


def signature_of(name: str, args: tuple[Type, ...]) -> Signature | None:
    """The one on exactly these types."""
    return next((found for found in SIGNATURES.get(name, ()) if found.args == args), None)
