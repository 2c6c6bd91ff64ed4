"""Intervals: months, days and microseconds, which add up separately and compare as if a month had 30 days."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shapes.where.values.value import Invalid

DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000
_MONTH_DAYS: Final = 30
_INT4: Final = 2**31
_INT8: Final = 2**63
_CHARACTERS_MAX: Final = 200  # Postgres has about as much patience

# What each unit stands for: months, days, microseconds.
_UNITS: Final = {
    "millennium": (12_000, 0, 0), "century": (1_200, 0, 0), "decade": (120, 0, 0),
    "year": (12, 0, 0), "month": (1, 0, 0), "week": (0, 7, 0), "day": (0, 1, 0),
    "hour": (0, 0, 3600 * _SECOND), "minute": (0, 0, 60 * _SECOND), "second": (0, 0, _SECOND),
    "millisecond": (0, 0, 1000), "microsecond": (0, 0, 1),
}  # fmt: skip
_SPELLINGS: Final = {
    "millennia": "millennium", "millenniums": "millennium", "centuries": "century", "decades": "decade",
    "y": "year", "yr": "year", "yrs": "year", "years": "year", "mon": "month", "mons": "month", "months": "month",
    "w": "week", "weeks": "week", "d": "day", "days": "day", "h": "hour", "hr": "hour", "hrs": "hour",
    "hours": "hour", "m": "minute", "min": "minute", "mins": "minute", "minutes": "minute", "s": "second",
    "sec": "second", "secs": "second", "seconds": "second", "milliseconds": "millisecond", "ms": "millisecond",
    "microseconds": "microsecond", "us": "microsecond",
}  # fmt: skip
FIELDS: Final = {4: "year", 2: "month", 8: "day", 1024: "hour", 2048: "minute", 4096: "second"}
"""`INTERVAL '1' DAY`: the unit that a type modifier of one field stands for."""

_ISO: Final = re.compile(
    r"P(?:([+-]?\d+)Y)?(?:([+-]?\d+)M)?(?:([+-]?\d+)W)?(?:([+-]?\d+)D)?"
    r"(T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?)(\d+)(\.\d+)?S)?)?",
    re.ASCII,
)
_ISO_FACTORS: Final = ((12, 0, 0), (1, 0, 0), (0, 7, 0), (0, 1, 0))
_WORD: Final = re.compile(
    r"\s*(?:([+-]?)(\d+):(\d{2})(?::(\d{2})(\.\d+)?)?|([+-]?)(\d+)(\.\d+)?\s*([a-z]+))(?=[\s+-]|\d|$)",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """Three numbers, each with its own sign."""

    months: int
    days: int
    micros: int

    @property
    def length(self) -> int:
        """What intervals are compared by, in microseconds."""
        return (self.months * _MONTH_DAYS + self.days) * DAY + self.micros

    def must_be_finite(self) -> None:
        """Older servers have no infinite intervals, so nothing is calculated with them."""
        if self in (INFINITE, MINUS_INFINITE):
            raise Invalid("infinite intervals can only be compared")


INFINITE: Final = Interval(_INT4 - 1, _INT4 - 1, _INT8 - 1)
MINUS_INFINITE: Final = Interval(-_INT4, -_INT4, -_INT8)


def interval_in_range(months: int, days: int, micros: int) -> Interval:
    """The interval, if Postgres has it."""
    if -_INT4 <= months < _INT4 and -_INT4 <= days < _INT4 and -_INT8 <= micros < _INT8:
        return Interval(months, days, micros)
    raise Invalid("interval out of range")


def read_interval(text: str) -> Interval:
    """ISO 8601 (`P1Y2M3DT4H5M6.7S`), or words (`1 year 2 mons 3 days 04:05:06.7`, `-2 hours`)."""
    stripped = text.strip()
    if len(stripped) > _CHARACTERS_MAX:
        raise _wrong(text[:_CHARACTERS_MAX])
    if stripped.lower() in ("infinity", "-infinity"):
        return INFINITE if stripped[0] != "-" else MINUS_INFINITE
    if stripped.startswith("P"):
        return _read_iso(stripped, text)
    return _read_words(stripped, text)


def _wrong(text: str) -> Invalid:
    return Invalid(f'invalid input syntax for type interval: "{text}" (write it like P1DT2H, or 1 day 02:30:00)')


def _read_iso(stripped: str, text: str) -> Interval:
    match = _ISO.fullmatch(stripped)
    if match is None or stripped == "P" or stripped.endswith("T"):
        raise _wrong(text)
    years, months, weeks, days, _, hours, minutes, sign, seconds, fraction = match.groups()
    numbers = [int(number or 0) for number in (years, months, weeks, days)]
    total = [sum(n * factor[place] for n, factor in zip(numbers, _ISO_FACTORS, strict=True)) for place in range(2)]
    micros = _clock(0, 0, int(seconds or 0), fraction)
    micros = int(hours or 0) * 3600 * _SECOND + int(minutes or 0) * 60 * _SECOND + (-micros if sign == "-" else micros)
    return interval_in_range(total[0], total[1], micros)


def _read_words(stripped: str, text: str) -> Interval:
    position, ago = 0, 1
    if re.search(r"\sago$", stripped, re.IGNORECASE):
        stripped, ago = stripped[:-3].rstrip(), -1
    months = days = micros = 0
    seen: set[str] = set()
    if not stripped:
        raise _wrong(text)
    while position < len(stripped):
        match = _WORD.match(stripped, position)
        if match is None:
            raise _wrong(text)
        position = match.end()
        clock_sign, hours, minutes, seconds, fraction, sign, whole, part, unit = match.groups()
        if hours is not None:
            if int(minutes) > 59 or int(seconds or 0) > 59:
                raise Invalid(f'interval field value out of range: "{text}"')
            amount = _clock(int(hours), int(minutes), int(seconds or 0), fraction)
            micros += -amount if clock_sign == "-" else amount
            name = "clock"
        else:
            name = _SPELLINGS.get(unit.lower(), unit.lower())
            factor = _UNITS.get(name)
            if factor is None or (part and not factor[2]):
                raise _wrong(text)
            number = -int(whole) if sign == "-" else int(whole)
            months, days, micros = months + number * factor[0], days + number * factor[1], micros + number * factor[2]
            if part:
                micros += round(float(part) * factor[2]) * (-1 if sign == "-" else 1)
        if name in seen or ("clock" in seen | {name} and seen & {"hour", "minute", "second"}):
            raise _wrong(text)
        seen.add(name)
    return interval_in_range(ago * months, ago * days, ago * micros)


def read_field(text: str, unit: str) -> Interval:
    """`INTERVAL '1' DAY`: a bare number of one unit."""
    if re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII) is None:
        return read_interval(text)
    months, days, micros = (int(text) * factor for factor in _UNITS[unit])
    return interval_in_range(months, days, micros)


def _clock(hours: int, minutes: int, seconds: int, fraction: str | None) -> int:
    whole = (hours * 3600 + minutes * 60 + seconds) * _SECOND
    return whole + (round(float(fraction) * _SECOND) if fraction else 0)


def write_interval(interval: Interval) -> str:
    """As Postgres writes it with `IntervalStyle = iso_8601`."""
    if interval in (INFINITE, MINUS_INFINITE):
        return "infinity" if interval == INFINITE else "-infinity"
    years, months = _split(interval.months, 12)
    minutes, micros = _split(interval.micros, 60 * _SECOND)
    hours, minutes = _split(minutes, 60)
    date = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (interval.days, "D")) if n)
    time = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if micros:
        seconds, fraction = divmod(abs(micros), _SECOND)
        digits = f".{fraction:06d}".rstrip("0") if fraction else ""
        time += f"{'-' if micros < 0 else ''}{seconds}{digits}S"
    if not (date or time):
        return "PT0S"
    return f"P{date}T{time}" if time else f"P{date}"


def _split(value: int, unit: int) -> tuple[int, int]:
    """Quotient and rest, both with the sign of the value."""
    quotient, rest = divmod(abs(value), unit)
    return (-quotient, -rest) if value < 0 else (quotient, rest)


def add(left: Interval, right: Interval) -> Interval:
    """The sum, place by place."""
    left.must_be_finite()
    right.must_be_finite()
    return interval_in_range(left.months + right.months, left.days + right.days, left.micros + right.micros)


def negate(interval: Interval) -> Interval:
    """The same, backwards."""
    interval.must_be_finite()
    return interval_in_range(-interval.months, -interval.days, -interval.micros)


def multiply(interval: Interval, factor: float) -> Interval:
    """Times a number; what is left of months and days flows down."""
    interval.must_be_finite()
    return _scaled(interval, lambda amount: amount * factor)


def divide(interval: Interval, factor: float) -> Interval:
    """By a number; what is left of months and days flows down."""
    interval.must_be_finite()
    if factor == 0:
        raise Invalid("division by zero")
    return _scaled(interval, lambda amount: amount / factor)


def _scaled(interval: Interval, scale: Callable[[int], float]) -> Interval:
    try:
        months, days = int(scale(interval.months)), int(scale(interval.days))
        # Postgres rounds both rests to microseconds of a day, or the noise of floats would show.
        month_days = _rounded((scale(interval.months) - months) * _MONTH_DAYS)
        seconds = _rounded((scale(interval.days) - days + month_days - int(month_days)) * (DAY // _SECOND))
        whole = int(seconds / (DAY // _SECOND)) if abs(seconds) >= DAY // _SECOND else 0
        seconds -= whole * (DAY // _SECOND)
        micros = round(scale(interval.micros) + seconds * _SECOND)
    except (ValueError, OverflowError):  # NaN or infinite
        raise Invalid("interval out of range") from None
    return interval_in_range(months, days + whole + int(month_days), micros)


def _rounded(value: float) -> float:
    return round(value * 1e6) / 1e6


def justify_hours(interval: Interval) -> Interval:
    """24 hours become a day."""
    interval.must_be_finite()
    return _justified(interval, hours=True, days=False)


def justify_days(interval: Interval) -> Interval:
    """30 days become a month."""
    interval.must_be_finite()
    return _justified(interval, hours=False, days=True)


def justify_interval(interval: Interval) -> Interval:
    """Both, and one sign for all."""
    interval.must_be_finite()
    return _justified(interval, hours=True, days=True)


def _justified(interval: Interval, *, hours: bool, days: bool) -> Interval:
    months, day, micros = interval.months, interval.days, interval.micros
    if hours:
        whole, micros = _split(micros, DAY)
        day += whole
    if days:
        whole, day = _split(day, _MONTH_DAYS)
        months += whole
    if days and (months > 0 and (day < 0 or (day == 0 and micros < 0))):
        months, day = months - 1, day + _MONTH_DAYS
    elif days and (months < 0 and (day > 0 or (day == 0 and micros > 0))) and (hours or day):
        months, day = months + 1, day - _MONTH_DAYS
    if hours and day > 0 and micros < 0:
        day, micros = day - 1, micros + DAY
    elif hours and day < 0 and micros > 0:
        day, micros = day + 1, micros - DAY
    return interval_in_range(months, day, micros)
