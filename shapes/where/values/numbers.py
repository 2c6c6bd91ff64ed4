"""Whole, decimal and floating numbers, as Postgres reads, writes and calculates them.

Decimals are exact, and their exponent is the number of digits shown: 1.00 stays 1.00, though it equals 1.0. Of floats,
NaN equals itself and is above all others.
"""

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from shapes.where.values.value import Invalid

RANGES: Final = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_NAMES: Final = {"int2": "smallint", "int4": "integer", "int8": "bigint"}
_INT_DIGITS: Final = 4000  # Python refuses to read longer ones
_INTEGER: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)[ \t\n\v\f\r]*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_SPECIAL: Final = {
    "nan": "NaN", "infinity": "Infinity", "+infinity": "Infinity", "-infinity": "-Infinity",
    "inf": "Infinity", "+inf": "Infinity", "-inf": "-Infinity",
}  # fmt: skip
_BLANKS: Final = " \t\n\v\f\r"

# Digits of a numeric before and after the point, and how far an exponent may go: those of Postgres.
_WHOLE_DIGITS_MAX: Final = 131072
_SCALE_MAX: Final = 16383
_QUOTIENT_DIGITS_MIN: Final = 16
_QUOTIENT_SCALE_MAX: Final = 1000
_EXACT: Final = Context(prec=400_000, Emax=999_999, Emin=-999_999, rounding=ROUND_HALF_UP, traps=[])


def read_integer(text: str, kind: str) -> int:
    """A whole number, in the range of its type."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise Invalid(f'invalid input syntax for type {_NAMES[kind]}: "{text}"')
    if len(match[1]) > _WHOLE_DIGITS_MAX:
        raise Invalid(f'value "{text[:20]}.." is out of range for type {_NAMES[kind]}')
    value = int(match[1]) if len(match[1]) < _INT_DIGITS else int(Decimal(match[1]))
    if not -RANGES[kind] <= value < RANGES[kind]:
        raise Invalid(f'value "{text}" is out of range for type {_NAMES[kind]}')
    return value


def in_range(value: int, kind: str) -> int:
    """The same number, if its type has it."""
    if not -RANGES[kind] <= value < RANGES[kind]:
        raise Invalid(f"{_NAMES[kind]} out of range")
    return value


def read_numeric(text: str) -> Decimal:
    """A decimal number of any size, NaN or infinite."""
    stripped = text.strip(_BLANKS)
    if special := _SPECIAL.get(stripped.lower()):
        return Decimal(special)
    match = _NUMBER.fullmatch(stripped)
    if match is None:
        raise Invalid(f'invalid input syntax for type numeric: "{text}"')
    exponent = match[1] or "0"
    if len(exponent) > len("+131072") or abs(int(exponent)) > _WHOLE_DIGITS_MAX:
        raise Invalid("value overflows numeric format")
    return bounded(_EXACT.create_decimal(stripped))


def bounded(value: Decimal) -> Decimal:
    """As Postgres would keep it: no exponent above zero, no negative zero, and not too long."""
    if not value.is_finite():
        return value
    exponent = int(value.as_tuple().exponent)
    if value.adjusted() >= _WHOLE_DIGITS_MAX or exponent < -_SCALE_MAX:
        raise Invalid("value overflows numeric format")
    if exponent > 0:
        value = _EXACT.quantize(value, Decimal(1))
    return value.copy_abs() if value.is_zero() else value


def write_numeric(value: Decimal) -> str:
    """As Postgres writes it: all digits, never an exponent."""
    return format(value, "f") if value.is_finite() else str(value)


def read_float8(text: str) -> float:
    """A double."""
    stripped = text.strip(_BLANKS)
    if special := _SPECIAL.get(stripped.lower()):
        return float(special)
    if _NUMBER.fullmatch(stripped) is None:
        raise Invalid(f'invalid input syntax for type double precision: "{text}"')
    value = float(stripped)
    if math.isinf(value) or (value == 0 and re.search("[1-9]", re.split("[eE]", stripped)[0])):
        raise Invalid(f'"{text}" is out of range for type double precision')
    return value


def read_float4(text: str) -> float:
    """A single, rounded once: by way of a double it would be rounded twice."""
    stripped = text.strip(_BLANKS)
    if special := _SPECIAL.get(stripped.lower()):
        return float(special)
    if _NUMBER.fullmatch(stripped) is None:
        raise Invalid(f'invalid input syntax for type real: "{text}"')
    near = float(stripped)
    single = _to_single(near, text)
    if near != 0 and float(single) != near:
        exact = Fraction(stripped)
        with np.errstate(over="ignore", under="ignore"):  # the greatest single has infinity for a neighbour
            neighbours = [np.nextafter(single, np.float32(end)) for end in (-np.inf, np.inf)]
        candidates = [number for number in (single, *neighbours) if np.isfinite(number)]
        single = min(candidates, key=lambda number: (abs(Fraction(float(number)) - exact), number.view("u4") & 1))
    if single == 0 and re.search("[1-9]", re.split("[eE]", stripped)[0]):
        raise Invalid(f'"{text}" is out of range for type real')
    return float(single)


def _to_single(value: float, text: str) -> np.float32:
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
    if np.isinf(single) and not (math.isinf(value) and text.strip(_BLANKS).lower() in _SPECIAL):
        raise Invalid(f'"{text}" is out of range for type real')
    return single


def float8_to_float4(value: float) -> float:
    """Rounded; too large is an error, and so is too small."""
    with np.errstate(over="ignore", under="ignore"):
        single = float(np.float32(value))
    if math.isinf(single) and not math.isinf(value):
        raise Invalid("value out of range: overflow")
    if single == 0 and value != 0:
        raise Invalid("value out of range: underflow")
    return single


def write_float(value: float, kind: str) -> str:
    """The shortest digits that give the number back, with an exponent where Postgres writes one."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if kind == "float4" else np.float64(value)
    digits, _, power = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    exponent = int(power)
    if -5 < exponent < (6 if kind == "float4" else 15):
        return np.format_float_positional(number, unique=True, trim="-")
    return f"{digits}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def float_to_integer(value: float, kind: str) -> int:
    """Rounded to the nearest, halves to the even one."""
    if not math.isfinite(value):
        raise Invalid(f"{_NAMES[kind]} out of range")
    return in_range(round(value), kind)


def numeric_to_integer(value: Decimal, kind: str) -> int:
    """Rounded to the nearest, halves away from zero."""
    if not value.is_finite():
        what = "NaN" if value.is_nan() else "infinity"
        raise Invalid(f"cannot convert {what} to {_NAMES[kind]}")
    return in_range(int(value.to_integral_value(ROUND_HALF_UP, _EXACT)), kind)


def float_to_numeric(value: float, kind: str) -> Decimal:
    """With as many digits as the float is sure of."""
    if not math.isfinite(value):
        return Decimal(write_float(value, kind))
    return bounded(Decimal(f"{value:.{6 if kind == 'float4' else 15}g}"))


def round_numeric(value: Decimal, typmod: int) -> Decimal:
    """To the precision and scale of `numeric(p, s)`."""
    if typmod < 0 or value.is_nan():
        return value
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4 & 0x7FF) ^ 1024) - 1024
    if value.is_infinite():
        raise Invalid("numeric field overflow")
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    if not rounded.is_zero() and rounded.adjusted() >= precision - scale:
        raise Invalid("numeric field overflow")
    return bounded(rounded)


def add(left: Decimal, right: Decimal) -> Decimal:
    """The sum."""
    return _plain_nan(_EXACT.add(left, right))


def subtract(left: Decimal, right: Decimal) -> Decimal:
    """The difference."""
    return _plain_nan(_EXACT.subtract(left, right))


def multiply(left: Decimal, right: Decimal) -> Decimal:
    """The product, with the digits of both."""
    return _plain_nan(_EXACT.multiply(left, right))


def divide(left: Decimal, right: Decimal) -> Decimal:
    """The quotient, with as many digits as Postgres gives it."""
    if left.is_nan() or right.is_nan():
        return Decimal("NaN")
    if right.is_zero():
        raise Invalid("division by zero")
    if not (left.is_finite() and right.is_finite()):
        return Decimal(0) if left.is_finite() else _plain_nan(_EXACT.divide(left, right))
    weight, first = _leading(left)
    by_weight, by_first = _leading(right)
    scale = _QUOTIENT_DIGITS_MIN - 4 * (weight - by_weight - (first <= by_first))
    scale = min(max(scale, _scale(left), _scale(right), 0), _QUOTIENT_SCALE_MAX)
    # The fraction is cut below the digit that decides, and never rounded twice: a rest makes the last digit odd.
    shifted = Fraction(left) / Fraction(right) * 10**scale
    whole, rest = divmod(abs(shifted.numerator), shifted.denominator)
    whole += 2 * rest >= shifted.denominator
    return bounded(_EXACT.scaleb(Decimal(-whole if shifted < 0 else whole), -scale))


def modulo(left: Decimal, right: Decimal) -> Decimal:
    """The rest, with the sign of the dividend."""
    if left.is_nan() or right.is_nan():
        return Decimal("NaN")
    if right.is_zero():
        raise Invalid("division by zero")
    if left.is_infinite():
        return Decimal("NaN")
    return left if right.is_infinite() else bounded(_EXACT.remainder(left, right))


def integer_divide(left: int, right: int) -> int:
    """The quotient, cut towards zero."""
    if right == 0:
        raise Invalid("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def integer_modulo(left: int, right: int) -> int:
    """The rest, with the sign of the dividend."""
    return left - right * integer_divide(left, right)


def _plain_nan(value: Decimal) -> Decimal:
    return Decimal("NaN") if value.is_nan() else bounded(value)


def _scale(value: Decimal) -> int:
    return -int(value.as_tuple().exponent)


def _leading(value: Decimal) -> tuple[int, int]:
    """The place and the value of the first digit in base 10,000, which is how Postgres keeps decimals."""
    if value.is_zero():
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(_EXACT.scaleb(value.copy_abs(), -4 * weight))
